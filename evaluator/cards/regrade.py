"""Recomputation of a card's verdict from comparisons and samples, for every status.

Later versions may improve the conclusions, and an edited card may contradict its evidence. Facts outside the card
(outputs, exit status of a process) cannot be recomputed: failures of builds and runs stay.
"""

from typing import Any, NamedTuple

from msgspec.structs import replace

from evaluator.cards.consistency import wrong
from evaluator.cards.time_consistency import requoted, requoted_baselines
from evaluator.findings import Code, Trait, finding, has_trait
from evaluator.records import SCHEMA_VERSION, Check, Finding, Samples, Scorecard, Status, Timing
from evaluator.timing.score import score_of

_NUMBERS = (
    "speedup",
    "speedup_low",
    "speedup_high",
    "significant",
    "reference_median_ms",
    "submission_median_ms",
    "resolution_ms",
)


class CardChange(NamedTuple):
    """A changed conclusion. `field` is the name of the card's field."""

    problem: str
    name: str
    field: str
    before: Any
    after: Any


def regraded(card: Scorecard) -> Scorecard:
    """Return the card with recomputed verdict and statistics. Without evidence, the status becomes `infra_error`.

    An unchanged card keeps its signature; a changed card loses the signature. The recomputed card has the current
    version: the statistics follow the current rules.
    """
    again = replace(card, schema_version=SCHEMA_VERSION)
    if again.timing is not None and all(side.samples_ms for side in _sides(again.timing)):
        again = _with_new_statistics(again)
    again = _with_new_verdict(replace(again, checks=[_rechecked(check) for check in again.checks]))
    again = _with_new_score(replace(again, benchmark_correct=again.benchmark_of_checks))
    return card if again == card else replace(again, signature=None)


def _with_new_score(card: Scorecard) -> Scorecard:
    """Return the card with the present times in its own case, and with the score that follows."""
    timing = card.timing
    if not card.cases or timing is None or not card.cases[0].is_timed:
        return card
    own = replace(
        card.cases[0],
        speedup=timing.speedup,
        speedup_low=timing.speedup_low,
        speedup_high=timing.speedup_high,
        median_ms=timing.submission_median_ms,
        reference_median_ms=timing.reference_median_ms,
    )
    cases = [own, *card.cases[1:]]
    return replace(card, cases=cases, score=score_of(cases))


def _with_new_verdict(card: Scorecard) -> Scorecard:
    failed = next((check for check in card.checks if not check.ok), None)
    match card.status:
        case Status.CORRECT if failed is not None:
            return replace(card, status=Status.WRONG_RESULT, reason=_failed_check_finding(failed))
        case Status.CORRECT if (missing := _missing(card)) is not None:
            return _no_verdict(card, f"holds no {missing}")
        case Status.CORRECT:
            return replace(card, reason=None)
        case Status.WRONG_RESULT if failed is None:
            return _no_verdict(card, "holds no check that failed")
        case Status.WRONG_RESULT if card.reason is None and failed is not None:
            return replace(card, reason=_failed_check_finding(failed))
        case _ if card.reason is None:
            return _no_verdict(card, "gives no reason")
        case _:
            return card


def _no_verdict(card: Scorecard, cause: str) -> Scorecard:
    reason = finding(Code.JUDGE_FAILED, f"the card's status is {card.status.value}, but {cause}")
    return replace(card, status=Status.INFRA_ERROR, reason=reason)


def changes(before: Scorecard, after: Scorecard) -> list[CardChange]:
    """Return the differences between a card and its recomputed form."""
    values: list[tuple[str, Any, Any]] = [("status", before.status.value, after.status.value)]
    old, new = (card.reason.code if card.reason else "none" for card in (before, after))
    if before.status is after.status:  # A changed status implies a changed reason.
        values.append(("reason", old, new))
    values.append(("benchmark_correct", before.benchmark_correct, after.benchmark_correct))
    values += [(field, getattr(before.timing, field, None), getattr(after.timing, field, None)) for field in _NUMBERS]
    for number, (old_baseline, new_baseline) in enumerate(zip(before.baselines, after.baselines, strict=True)):
        values.append((f"baselines[{number}].speedup", old_baseline.speedup, new_baseline.speedup))
    values.append(("findings", _codes(before), _codes(after)))
    problem, name = before.problem.name, before.submission.name
    return [CardChange(problem, name, field, old, new) for field, old, new in values if old != new]


def _sides(timing: Timing) -> tuple[Samples, ...]:
    return timing.reference_before, timing.submission, timing.reference_after


def _codes(card: Scorecard) -> str:
    return " ".join(sorted(finding.code for finding in card.findings))


def _with_new_statistics(card: Scorecard) -> Scorecard:
    timing = card.timing
    assert timing is not None  # noqa: S101 - for the type checker: the caller has looked
    requote = requoted(card, timing)
    other_findings = [finding for finding in card.findings if not _of_the_samples(finding)]
    insertion = next(
        (index for index, finding in enumerate(card.findings) if _of_the_samples(finding)), len(other_findings)
    )
    findings = [*other_findings[:insertion], *requote.findings, *other_findings[insertion:]]
    return replace(card, timing=requote.timing, findings=findings, baselines=requoted_baselines(card, requote.timing))


def _of_the_samples(remark: Finding) -> bool:
    """Whether the finding follows from samples alone. Samples do not show repeated timing."""
    return has_trait(remark, Trait.FROM_SAMPLES) and "attempt" not in remark.details


def _rechecked(check: Check) -> Check:
    """Return the check as failed if a comparison shows a failure."""
    tensors = [replace(tensor, ok=tensor.ok and wrong(tensor) is None) for tensor in check.tensors]
    ok = check.ok and check.finding is None and all(tensor.ok for tensor in tensors)
    return check if ok is check.ok and tensors == check.tensors else replace(check, ok=ok, tensors=tensors)


def _failed_check_finding(check: Check) -> Finding:
    """Return the evidence that a check failed."""
    if check.finding is not None:
        return check.finding
    for tensor in check.tensors:
        if not tensor.ok:
            message = f"call {check.index}: {tensor.mismatches} values of {tensor.path} differ"
            return finding(Code.WRONG_VALUES, message, path=tensor.path)
    return finding(Code.WRONG_VALUES, f"call {check.index} failed; the card has no details")


def _missing(card: Scorecard) -> str | None:
    """Return the missing evidence of a correct card."""
    if not any(check.ok and check.tensors for check in card.checks):
        return "check that passed"
    if card.timing is None and card.is_timed:
        return "times"
    return None
