"""Findings about answers that are wrong for other input values than the problem's own."""

from evaluator.findings import Code, Trait, finding, has_trait
from evaluator.findings.comparing import CANCELLATION, HARDLY_BEYOND, OF_FORMS, OF_ROUNDING, OVERFLOW
from evaluator.judge.numerics.rounding_of_call import is_near
from evaluator.records import Finding, Profile, TensorCheck


def of_other_values(problem: Finding | None, values: str | None, checks: list[TensorCheck]) -> Finding | None:
    """Return the finding for wrong values of a call; a finding of its own if the inputs had other `values`.

    The first checked call has the problem's own inputs, so a call with other inputs follows correct answers.
    """
    if problem is None or values is None or not has_trait(problem, Trait.WRONG_VALUES):
        return problem
    message = f"{wrong_for(values)}{problem.message}"
    step = problem.next_step if problem.next_step in (*OF_FORMS, *OF_ROUNDING) else None
    if step in (None, HARDLY_BEYOND):
        step = _step_for(values, checks) or step
    path = problem.details.get("path")
    return finding(Code.WRONG_ON_OTHER_VALUES, message, next_step=step, path=path, profile=values)


def wrong_for(values: str) -> str:
    """Return the beginning of the message about a call that is wrong for other `values` alone."""
    return f"correct for the problem's own inputs, wrong for {values}: "


def _step_for(values: str, checks: list[TensorCheck]) -> str | None:
    """Return the next step if the values and the size of the errors suggest a single kind; None for the usual step."""
    if values == Profile.LARGE.value and any(check.nonfinite for check in checks):
        return OVERFLOW
    return CANCELLATION if values == Profile.ILL_CONDITIONED.value and all(map(is_near, checks)) else None
