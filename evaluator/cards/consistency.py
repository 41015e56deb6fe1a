"""Detection of contradictions between status, checks, times and reason of a card. Pure.

The verdict follows from the recorded evidence: edited or carelessly forged cards are contradictory. Consistency proves
nothing: only a signature detects a consistent forgery.
"""

import datetime
import hashlib
import math
import unicodedata
from collections.abc import Iterator

from evaluator.cards.time_consistency import SAME, Contradiction, contradictions_of_times
from evaluator.findings import Code
from evaluator.records import (
    Check,
    DeviceKind,
    GradeMode,
    Scorecard,
    Status,
    TensorCheck,
)

_FAMILIES = {
    Status.CORRECT: "",
    Status.WRONG_RESULT: "C",
    Status.BUILD_ERROR: "BS",
    Status.RUNTIME_ERROR: "RB",
    Status.TIMEOUT: "RB",
    Status.REJECTED: "SBRTI",
    Status.INCONCLUSIVE: "BRTX",
    Status.INFRA_ERROR: "X",
}
"""Families of the permitted reason codes of each status, for codes that several statuses may have."""
_OWN_STATUS = {
    Code.TIMED_OUT: Status.TIMEOUT,
    Code.MALFORMED_FRAME: Status.REJECTED,
    Code.TOO_MANY_BUILDS: Status.REJECTED,
    Code.TOO_LITTLE_OWN: Status.REJECTED,
    Code.IMPOSSIBLE: Status.REJECTED,
    Code.NOT_QUIET: Status.REJECTED,
    Code.WORK_AFTER_DONE: Status.REJECTED,
    Code.OWN_SHARE_UNKNOWN: Status.INCONCLUSIVE,
    Code.NOT_EMULATED: Status.INCONCLUSIVE,
    Code.HARD_CODED_SIZE: Status.INCONCLUSIVE,
    Code.LANGUAGE_MISSING: Status.INCONCLUSIVE,
    Code.ROUNDING_DECIDES: Status.INCONCLUSIVE,
    Code.RANDOM_REFERENCE: Status.INCONCLUSIVE,
    Code.KERNEL_REFUSED: Status.BUILD_ERROR,
}
"""Codes with a single permitted status."""
_REMARKS = frozenset(
    (
        *(
            Code.LEFT_OUT,
            Code.INTERPRETED,
            Code.FIXED_INPUTS,
            Code.NOT_FLOAT64,
            Code.WIDE_TOLERANCE,
            Code.VALUES_UNTRIED,
            Code.ROUNDING_UNTRIED,
        ),
        *(
            Code.OUTPUT_FLOOD,
            Code.WEIGHTS_NOT_COPIED,
            Code.SET_TO_TRAINING,
            Code.SIZE_REFUSED,
            Code.NO_LAUNCH,
            Code.FAILED_BUILD_IGNORED,
        ),
        *(Code.REFERENCE_DRIFTED, Code.BELOW_RESOLUTION, Code.OUTPUT_COPIED, Code.OUTLIERS, Code.FIRST_CALL_SLOW),
        *(
            Code.HOST_BOUND,
            Code.SHARED_WORK,
            Code.BEATS_TARGET,
            Code.TIME_UNEARNED,
            Code.NOT_TIMED,
            Code.FLOOR_DOUBTED,
            Code.NO_ROOFLINE,
            Code.BASELINE_FAILED,
        ),
    )
)
"""Codes of remarks, never the reason of a verdict."""
_MOST_PACKED = 8
"""Numbers of the fewest bits in an element of a packed format."""


def inconsistencies(card: Scorecard, *, intervals: bool = True) -> list[Contradiction]:
    """Return the contradictions in `card`.

    With `intervals`, also recompute the intervals of the times from the samples, in 0.1 s. Intervals of a card of an
    earlier version followed other rules: each is only compared with its value.
    """
    found = [*_reason(card), *_names(card), *_submission(card), *_facts_of_the_grade(card), *_evidence(card)]
    for number, check in enumerate(card.checks):
        found += _check(f"checks[{number}]", check)
    found += contradictions_of_times(card, intervals=intervals)
    return found


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
    code = Code(reason.code)
    own = _OWN_STATUS.get(code)
    if (status, code) == (Status.INFRA_ERROR, Code.DEADLINE):
        return  # The grade exceeded its deadline without the submission's fault.
    is_permitted = code.value[0] in _FAMILIES[status] if own is None else own == status
    if code in _REMARKS or not is_permitted:
        yield Contradiction("reason.code", f"{code.value} is no reason for {status.value}")


def _names(card: Scorecard) -> Iterator[Contradiction]:
    """Check that the names can be those of a problem and a submission: a report shows names and links to them."""
    if not {"", ".", ".."}.isdisjoint(card.problem.name.split("/")):
        yield Contradiction("problem.name", "no name of a problem")
    for place, name in (("problem.name", card.problem.name), ("submission.name", card.submission.name)):
        if any(unicodedata.category(character) == "Cc" for character in name):
            yield Contradiction(place, "has control characters")


def _facts_of_the_grade(card: Scorecard) -> Iterator[Contradiction]:
    """Check the time of the grade and the duration of its stages."""
    try:
        datetime.datetime.fromisoformat(card.graded_at)
    except ValueError:
        yield Contradiction("graded_at", "no time")
    for place, spent_s in (
        ("wall_s", card.wall_s),
        *((f"stages_s.{name}", each) for name, each in card.stages_s.items()),
    ):
        if not 0 <= spent_s < math.inf:
            yield Contradiction(place, "no duration")


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
        yield Contradiction("timing", f"present, although {_untimed(card)} measures no time")
    if card.mode is GradeMode.CHECK:
        for place in (name for name in ("roofline", "baselines", "l2") if getattr(card, name)):
            yield Contradiction(place, "present, although mode check measures no time")
    elif any(each.code == Code.NOT_TIMED for each in card.findings):
        yield Contradiction("findings", f"{Code.NOT_TIMED.value}, although the mode is {card.mode.value}")


def _untimed(card: Scorecard) -> str:
    return "emulated" if card.device.kind is DeviceKind.EMULATED else "mode check"


def _evidence_of_a_pass(card: Scorecard) -> Iterator[Contradiction]:
    failed = next((number for number, check in enumerate(card.checks) if not check.ok), None)
    if failed is not None:
        yield Contradiction(f"checks[{failed}]", "correct, but this check failed")
    if not any(check.ok and check.tensors for check in card.checks):
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


def _check(place: str, check: Check) -> Iterator[Contradiction]:
    if check.ok and check.finding is not None:
        yield Contradiction(f"{place}.finding", f"the check passed, but has the finding {check.finding.code}")
    for number, tensor in enumerate(check.tensors):
        at = f"{place}.tensors[{number}]"
        yield from _numbers(at, tensor)
        if check.ok and not tensor.ok:
            yield Contradiction(at, "the check passed, but this comparison failed")
        if tensor.ok and (why := wrong(tensor)) is not None:
            yield Contradiction(at, f"the comparison passed, but {why}")


def _numbers(place: str, tensor: TensorCheck) -> Iterator[Contradiction]:
    """Check that no error is negative, and that no more elements differ than the tensor can have."""
    most = _MOST_PACKED * math.prod(tensor.shape)
    for name in ("mismatches", "nonfinite"):
        if not 0 <= getattr(tensor, name) <= most:
            yield Contradiction(f"{place}.{name}", f"not from 0 to {most}, the number of elements")
    for name in ("max_abs_error", "error_ratio", "honest_error_ratio", "tolerance", "power"):
        number = getattr(tensor, name)
        if number is not None and not 0 <= number < math.inf:
            yield Contradiction(f"{place}.{name}", "no size")


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
