"""Detection of contradictions between status, checks, times and reason of a card. Pure.

The verdict follows from the recorded evidence: edited or carelessly forged cards are contradictory. Consistency proves
nothing: only a signature detects a consistent forgery.
"""

import datetime
import hashlib
import math
import unicodedata
from collections.abc import Iterator

import msgspec

from evaluator.cards.time_consistency import SAME, Contradiction, contradictions_of_times
from evaluator.findings import Code, entry_of
from evaluator.records import (
    CaseResult,
    Check,
    DeviceKind,
    GradeMode,
    Profile,
    Score,
    Scorecard,
    Status,
    TensorCheck,
    ToleranceRule,
)
from evaluator.timing.quote import score_of

_OF_A_CASE = frozenset({Status.WRONG_RESULT, Status.REJECTED, Status.INCONCLUSIVE})
"""Statuses that follow from the evidence of a case: a deadline or a machine may end a grade between two."""
_MOST_PACKED = 8
"""Numbers of the fewest bits in an element of a packed format."""


def inconsistencies(card: Scorecard, *, intervals: bool = True) -> list[Contradiction]:
    """Return the contradictions in `card`.

    With `intervals`, also recompute the intervals of the times from the samples, in 0.1 s. Intervals of a card of an
    earlier version followed other rules: each is only compared with its value.
    """
    contradictions = [*_reason(card), *_names(card), *_submission(card), *_facts_of_the_grade(card), *_evidence(card)]
    contradictions += [*_second_opinion(card), *_cases(card)]
    for number, check in enumerate(card.checks):
        contradictions += _check(f"checks[{number}]", check)
    contradictions += contradictions_of_times(card, intervals=intervals)
    return contradictions


def _reason(card: Scorecard) -> Iterator[Contradiction]:
    """Check that every status but `correct` has a reason with a permitted code."""
    status, reason = card.status, card.reason
    if reason is None:
        if status is not Status.CORRECT:
            yield Contradiction("reason", f"{status.value} without a reason")
        return
    if status is Status.CORRECT:
        yield Contradiction("reason", f"correct with a reason: {reason.code}")
        return
    if reason.code not in set(Code):
        yield Contradiction("reason.code", f"unknown finding {reason.code[:20]}")
        return
    if status not in entry_of(reason).statuses:
        yield Contradiction("reason.code", f"{reason.code} is no reason for {status.value}")


def _names(card: Scorecard) -> Iterator[Contradiction]:
    """Check that the names can be those of a problem and a submission: a report shows names and links to them."""
    if not {"", ".", ".."}.isdisjoint(card.problem.name.split("/")):
        yield Contradiction("problem.name", "no name of a problem")
    for field, name in (("problem.name", card.problem.name), ("submission.name", card.submission.name)):
        if any(unicodedata.category(character) == "Cc" for character in name):
            yield Contradiction(field, "has control characters")


def _facts_of_the_grade(card: Scorecard) -> Iterator[Contradiction]:
    """Check the time of the grade and the duration of its stages."""
    try:
        datetime.datetime.fromisoformat(card.graded_at)
    except ValueError:
        yield Contradiction("graded_at", "no time")
    for field, duration_s in (
        ("wall_s", card.wall_s),
        *((f"stages_s.{name}", stage_s) for name, stage_s in card.stages_s.items()),
    ):
        if not 0 <= duration_s < math.inf:
            yield Contradiction(field, "no duration")


def _submission(card: Scorecard) -> Iterator[Contradiction]:
    graded = card.submission
    if graded.sha256 is None:
        if card.status is Status.CORRECT or graded.source:
            yield Contradiction("submission.sha256", "missing, although the card has a submission")
    elif hashlib.sha256(graded.source.encode("utf-8", "surrogatepass")).hexdigest() != graded.sha256:
        yield Contradiction("submission.sha256", "differs from the sha256 of the source")


def _evidence(card: Scorecard) -> Iterator[Contradiction]:
    """Check the evidence of a status: passed checks and times, or a failed check."""
    yield from _evidence_of_the_mode(card)
    match card.status:
        case Status.CORRECT:
            yield from _evidence_of_a_pass(card)
        case Status.WRONG_RESULT:
            if all(check.ok for check in card.checks):
                yield Contradiction("checks", "wrong_result without a failed check")
        case Status.BUILD_ERROR:
            if card.timing is not None:
                yield Contradiction("timing", "build_error with times of the submission")
        case Status.RUNTIME_ERROR | Status.TIMEOUT | Status.REJECTED | Status.INCONCLUSIVE | Status.INFRA_ERROR:
            pass


def _evidence_of_the_mode(card: Scorecard) -> Iterator[Contradiction]:
    if card.timing is not None and not card.is_timed:
        untimed = "emulated" if card.device.kind is DeviceKind.EMULATED else "mode check"
        yield Contradiction("timing", f"present, although {untimed} measures no time")
    if card.mode is GradeMode.CHECK:
        for field in (name for name in ("roofline", "baselines", "l2") if getattr(card, name)):
            yield Contradiction(field, "present, although mode check measures no time")
    elif any(finding.code == Code.NOT_TIMED for finding in card.findings):
        yield Contradiction("findings", f"{Code.NOT_TIMED.value}, although the mode is {card.mode.value}")


def _evidence_of_a_pass(card: Scorecard) -> Iterator[Contradiction]:
    failed = next((number for number, check in enumerate(card.checks) if not check.ok), None)
    if failed is not None:
        yield Contradiction(f"checks[{failed}]", "correct, but this check failed")
    if not card.has_passed:
        yield Contradiction("checks", "correct without a passed check")
    if card.timing is None and card.is_timed:
        yield Contradiction("timing", f"correct on {card.device.kind.value} without times")
    if card.build is None:
        yield Contradiction("build", "correct, but the submission was never imported")
    if card.seeds is None:
        yield Contradiction("seeds", "correct without seeds")
    required = card.required_own_kernel
    if required is not None and (card.own_kernels is None or card.own_kernels.share_high < required):
        yield Contradiction("own_kernels", f"correct, but own kernels do less than the required {required:g}")


def _second_opinion(card: Scorecard) -> Iterator[Contradiction]:
    """Check the benchmark's opinion: the card's follows from those of the checks, on the problem's own values."""
    if card.benchmark_correct is not card.benchmark_of_checks:
        yield Contradiction("benchmark_correct", "does not follow from the checks")
    for number, check in enumerate(card.checks):
        if check.benchmark_ok is None:
            continue
        decided = card.tolerance.value in (card.benchmark_rule.value, ToleranceRule.BENCHMARK)
        if check.profile != Profile.AS_GIVEN or decided:
            yield Contradiction(f"checks[{number}].benchmark_ok", "present, although the rule has no second opinion")


def _cases(card: Scorecard) -> Iterator[Contradiction]:
    """Check status and score against the cases, and the times of the card's own case."""
    if not card.cases:
        if card.score is not None:
            yield Contradiction("score", "present without cases")
        return
    for number, case in enumerate(card.cases):
        if case.code is not None and case.status is Status.CORRECT:
            yield Contradiction(f"cases[{number}].code", "the case is correct, but has a code")
        if card.status is Status.CORRECT and case.status not in (None, Status.CORRECT):
            yield Contradiction(f"cases[{number}].status", f"{case.status.value}, but the card is correct")
    if all(case.status in (None, Status.CORRECT) for case in card.cases) and card.status in _OF_A_CASE:
        yield Contradiction("cases", f"no case is {card.status.value}")
    yield from _own_case(card, card.cases[0])
    if not _same_score(card.score, score_of(card.cases)):
        yield Contradiction("score", "does not follow from the cases")


def _own_case(card: Scorecard, own: CaseResult) -> Iterator[Contradiction]:
    if own.name != card.problem.size or own.axes != card.problem.constants:
        yield Contradiction("cases[0]", "differs from the card's own case")
    elif own.is_timed and card.timing is not None:
        ours = (own.speedup, own.median_ms, own.reference_median_ms)
        if ours != (card.timing.speedup, card.timing.submission_median_ms, card.timing.reference_median_ms):
            yield Contradiction("cases[0]", "differs from the times of the card")


def _same_score(score: Score | None, again: Score | None) -> bool:
    if score is None or again is None:
        return score is again
    pairs = zip(msgspec.structs.astuple(score), msgspec.structs.astuple(again), strict=True)
    return all(old is new if old is None or new is None else math.isclose(old, new, rel_tol=SAME) for old, new in pairs)


def _check(field: str, check: Check) -> Iterator[Contradiction]:
    if check.ok and check.finding is not None:
        yield Contradiction(f"{field}.finding", f"the check passed, but has the finding {check.finding.code}")
    for number, tensor in enumerate(check.tensors):
        tensor_field = f"{field}.tensors[{number}]"
        yield from _numbers(tensor_field, tensor)
        if check.ok and not tensor.ok:
            yield Contradiction(tensor_field, "the check passed, but this comparison failed")
        if tensor.ok and (fault := wrong(tensor)) is not None:
            yield Contradiction(tensor_field, f"the comparison passed, but {fault}")


def _numbers(field: str, tensor: TensorCheck) -> Iterator[Contradiction]:
    """Check for negative errors, and for more differing elements than the tensor can have."""
    most = _MOST_PACKED * math.prod(tensor.shape)
    for name in ("mismatches", "nonfinite"):
        if not 0 <= getattr(tensor, name) <= most:
            yield Contradiction(f"{field}.{name}", f"not from 0 to {most}, the number of elements")
    for name in ("max_abs_error", "error_ratio", "honest_error_ratio", "tolerance", "power"):
        number = getattr(tensor, name)
        if number is not None and not 0 <= number < math.inf:
            yield Contradiction(f"{field}.{name}", "no size")


def wrong(tensor: TensorCheck) -> str | None:
    """Return the evidence that a comparison failed, in words; None without evidence."""
    if tensor.mismatches:
        return f"{tensor.mismatches} elements differ"
    if tensor.nonfinite:
        return f"{tensor.nonfinite} elements are NaN or infinite"
    if tensor.first_mismatch is not None:
        return "there is a first mismatch"
    if tensor.error_ratio is not None and tensor.error_ratio > 1 + SAME:
        return f"the worst error is {tensor.error_ratio:g} x what is allowed"
    return None
