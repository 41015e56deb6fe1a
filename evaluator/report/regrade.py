"""Draw the conclusions of a card again, from what it holds: the comparisons, and the samples of both sides.

A later version may know better how to conclude; a card that somebody edited says something else than it shows. What a
card does not hold (outputs, how a process ended) is not looked at again: a failure to build or to run stands as it is.
"""

from typing import Any, NamedTuple

from msgspec.structs import replace

from evaluator.findings import Code, finding
from evaluator.records import Check, DeviceKind, Finding, Scorecard, Status
from evaluator.timing.quote import quote

_OF_THE_SAMPLES = frozenset(
    code.value
    for code in (
        Code.REFERENCE_DRIFTED,
        Code.BELOW_RESOLUTION,
        Code.OUTPUT_COPIED,
        Code.NOT_QUIET,
        Code.OUTLIERS,
        Code.FIRST_CALL_SLOW,
        Code.HOST_BOUND,
    )
)
"""The findings that samples alone lead to: they are made anew with the statistics."""
_NUMBERS = (
    "speedup",
    "speedup_low",
    "speedup_high",
    "significant",
    "reference_median_ms",
    "submission_median_ms",
    "resolution_ms",
)


class Change(NamedTuple):
    """What is concluded otherwise. `field` is named as in a card."""

    problem: str
    name: str
    field: str
    before: Any
    after: Any


def regraded(card: Scorecard) -> Scorecard:
    """Give the card with its verdict and its statistics drawn anew."""
    if card.timing is not None:
        card = _with_new_statistics(card)
    if card.status is not Status.CORRECT:
        return card
    if (contradiction := next(filter(None, map(_contradiction, card.checks)), None)) is not None:
        return replace(card, status=Status.WRONG_RESULT, reason=contradiction)
    if (missing := _missing(card)) is not None:
        reason = finding(Code.JUDGE_FAILED, f"the card calls it correct, and holds no {missing}")
        return replace(card, status=Status.INFRA_ERROR, reason=reason)
    return card


def changes(before: Scorecard, after: Scorecard) -> list[Change]:
    """List what differs between a card and the same drawn anew."""
    found: list[tuple[str, Any, Any]] = [("status", before.status.value, after.status.value)]
    found += [(field, getattr(before.timing, field, None), getattr(after.timing, field, None)) for field in _NUMBERS]
    found.append(("findings", _codes(before), _codes(after)))
    problem, name = before.problem.name, before.submission.name
    return [Change(problem, name, field, was, now) for field, was, now in found if was != now]


def _codes(card: Scorecard) -> str:
    return " ".join(sorted(each.code for each in card.findings))


def _with_new_statistics(card: Scorecard) -> Scorecard:
    timing = card.timing
    assert timing is not None  # noqa: S101 - for the type checker: the caller has looked
    said = quote(timing.clock, timing.reference_before, timing.submission, timing.reference_after)
    others = [each for each in card.findings if not _of_the_samples(each)]
    place = next((at for at, each in enumerate(card.findings) if _of_the_samples(each)), len(others))
    return replace(card, timing=said.timing, findings=[*others[:place], *said.findings, *others[place:]])


def _of_the_samples(remark: Finding) -> bool:
    """Say whether samples alone lead to it; that a side was timed again they do not show."""
    return remark.code in _OF_THE_SAMPLES and "attempt" not in remark.details


def _contradiction(check: Check) -> Finding | None:
    """Find a check that is called a pass and shows a failure."""
    if not check.ok:
        return None  # A correct card may hold one: it was made again, and the call before was not to blame.
    if check.finding is not None:
        return check.finding
    for tensor in check.tensors:
        if not tensor.ok or tensor.mismatches or tensor.nonfinite:
            message = f"call {check.index} is called a pass, and {tensor.mismatches} values of {tensor.path} differ"
            return finding(Code.WRONG_VALUES, message, path=tensor.path)
    return None


def _missing(card: Scorecard) -> str | None:
    """Say what a correct card must hold and this one does not."""
    if not any(check.ok and check.tensors for check in card.checks):
        return "check that passed"
    if card.timing is None and card.device.kind is not DeviceKind.EMULATED:
        return "times"
    return None
