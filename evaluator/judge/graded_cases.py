"""The cases of one grade: built once, each checked and timed by the same stages, merged into one outcome.

Every case has separate runners: a constructor may depend on the case, and no process sees two cases.
"""

import contextlib
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.catalog.text import Origin
from evaluator.errors import ProblemError
from evaluator.findings import Code, finding
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.context.reference_timing import ReferenceTimer
from evaluator.progress import Stopwatch
from evaluator.records import Build, Case, CaseResult, Finding, Outcome, Problem, Status
from evaluator.sizes.cases import drawn_cases, replayed_cases
from evaluator.sizes.found_sizes import changes
from evaluator.text import one_line
from evaluator.timing.quote import score_of

GradeOne = Callable[[ReferenceTimer, Build, str], Outcome]
"""Stages at the present case of the context, with a detail for the progress."""
_WORST_FIRST = (
    Status.REJECTED,
    Status.WRONG_RESULT,
    Status.RUNTIME_ERROR,
    Status.TIMEOUT,
    Status.BUILD_ERROR,
    Status.INFRA_ERROR,
    Status.INCONCLUSIVE,
    Status.CORRECT,
)
"""Proven failures of the submission come before unknown verdicts."""
_REFUSALS = (Code.CONSTRUCTOR_FAILED, Code.FORWARD_FAILED)
_OF_A_LAUNCH = "CUDA error"
"""Part of the message for a launch that fails: an empty grid is a fault of the host code."""
_MESSAGE = 300
_NAMED = 8


class _Graded(NamedTuple):
    """A case with the outcome. A case without an outcome was left out, with the reason in `finding` or `message`."""

    case: Case
    outcome: Outcome | None
    message: str | None = None
    finding: Finding | None = None


def grade_cases(
    context: GradeContext, timer: ReferenceTimer, build: Build, stopwatch: Stopwatch, grade_one: GradeOne
) -> Outcome:
    """Grade the card's own case, then the further cases, in a secret order unless a failure ends the grade."""
    started = time.monotonic()
    first = grade_one(timer, build, "")
    problem = context.terms.problem
    own, *listed = (problem.cases[name] for name in context.terms.cases)
    hidden = _hidden_cases(context, [own, *listed])
    further = [*listed, *hidden]
    if not further:
        return first
    timer.rest()
    graded = [_Graded(own, first)]
    for case in _in_order(further, context):
        if (reason := _why_no_more(graded, context, time.monotonic() - started)) is not None:
            graded.append(_Graded(case, None, reason))
            continue
        build = graded[-1].outcome.build or build if graded[-1].outcome is not None else build
        graded.append(_graded_at(context, timer, case, build, stopwatch, grade_one, is_hidden=case in hidden))
    order = [own.name, *(case.name for case in further)]
    graded.sort(key=lambda each: order.index(each.case.name))
    return _merged(graded, hidden, context)


def _hidden_cases(context: GradeContext, graded: Sequence[Case]) -> list[Case]:
    """Draw the hidden cases of a grade, or take the hidden cases of a replayed card."""
    if not context.terms.draws_hidden:
        return []
    replayed = context.seeds.replayed_cases
    problem = context.terms.problem
    return drawn_cases(problem, graded) if replayed is None else replayed_cases(problem, graded, replayed)


def _in_order(cases: Sequence[Case], context: GradeContext) -> list[Case]:
    """Return the further cases in a secret order; under a budget, the heaviest first."""
    options = context.terms.options
    if options.ends_at_failure:  # Otherwise the order would decide between two failures.
        return list(cases)
    mixed = random.SystemRandom().sample(cases, len(cases))
    return mixed if options.budget_s is None else sorted(mixed, key=lambda case: -case.weight)


def _why_no_more(graded: Sequence[_Graded], context: GradeContext, spent_s: float) -> str | None:
    """Return the reason to end the grade; None if a further case may begin."""
    options = context.terms.options
    if options.budget_s is not None and spent_s >= options.budget_s:
        return f"the budget of {options.budget_s:g} s was spent"
    failed = next((each for each in graded if each.outcome and each.outcome.status is not Status.CORRECT), None)
    return f"case {failed.case.name} failed" if failed is not None and options.ends_at_failure else None


def _graded_at(
    context: GradeContext,
    timer: ReferenceTimer,
    case: Case,
    build: Build,
    stopwatch: Stopwatch,
    grade_one: GradeOne,
    *,
    is_hidden: bool,
) -> _Graded:
    """Grade a further case. A case at which the reference does not run is left out.

    Raises:
        ProblemError: the reference does not run at a hidden case, within the ranges that its author promised.
    """
    with contextlib.ExitStack() as stack:
        try:
            with stopwatch.stage("prepare", case.name):
                stack.enter_context(context.at(case, is_hidden=is_hidden))
        except ProblemError as error:
            axes = one_line(", ".join(f"{name} = {value}" for name, value in case.axes.items()), _MESSAGE)
            message = f"case {case.name} ({axes}): {error.message}"
            if is_hidden:
                raise ProblemError(message, hint="narrow the ranges of [hidden] in problem.toml") from error
            return _Graded(case, None, error.message, finding(Code.CASES_LEFT_OUT, message))
        at_case = stack.enter_context(timer.at(case.name, is_hidden=is_hidden))
        outcome = grade_one(at_case, build, case.name)
    reason = outcome.reason
    if reason is None:
        return _Graded(case, outcome)
    own = context.terms.problem.cases[context.terms.size]
    message = f"at case {case.name} ({changes(own.axes, case.axes)}): {reason.message}"
    if _is_refusal(outcome, context.terms.problem, is_named=bool(context.terms.options.case)):
        return _Graded(case, None, message, finding(Code.SIZE_REFUSED, message, line=reason.line))
    return _Graded(case, replace(outcome, reason=replace(reason, message=message)))


def _is_refusal(outcome: Outcome, problem: Problem, *, is_named: bool) -> bool:
    """Return whether a submission refuses a further size of a bare file, chosen by the judge (R321).

    A case that the user named is no such size.
    """
    reason = outcome.reason
    if reason is None or is_named or problem.origin != Origin.KERNELBENCH or any(check.ok for check in outcome.checks):
        return False
    return Code(reason.code) in _REFUSALS and _OF_A_LAUNCH not in reason.message


def _merged(graded: Sequence[_Graded], hidden: Sequence[Case], context: GradeContext) -> Outcome:
    """Merge the outcomes, the card's own first. The worst outcome gives status and reason."""
    outcomes = [each.outcome for each in graded if each.outcome is not None]
    first, last = outcomes[0], outcomes[-1]
    worst = min(outcomes, key=lambda outcome: _WORST_FIRST.index(outcome.status))
    results = [replace(_result(each), hidden=each.case in hidden) for each in graded]
    return replace(
        first,
        status=worst.status,
        reason=worst.reason,
        build=last.build or first.build,
        checks=[check for outcome in outcomes for check in outcome.checks],
        findings=_findings(graded, context),
        output=last.output if worst.reason is None else worst.output,
        cases=results,
        score=score_of(results),
    )


def _result(graded: _Graded) -> CaseResult:
    case, outcome = graded.case, graded.outcome
    result = CaseResult(case.name, case.axes, case.weight, None)
    if outcome is None:
        code = None if graded.finding is None else graded.finding.code
        return replace(result, code=code, message=one_line(graded.message or "", _MESSAGE))
    if outcome.reason is not None:
        message = one_line(outcome.reason.message, _MESSAGE)
        return replace(result, status=outcome.status, code=outcome.reason.code, message=message)
    timing = outcome.timing
    if timing is None:
        return replace(result, status=outcome.status)
    return replace(
        result,
        status=outcome.status,
        speedup=timing.speedup,
        speedup_low=timing.speedup_low,
        speedup_high=timing.speedup_high,
        median_ms=timing.submission_median_ms,
        reference_median_ms=timing.reference_median_ms,
    )


def _findings(graded: Sequence[_Graded], context: GradeContext) -> list[Finding]:
    """Return the findings of all cases, each message once; findings of further cases name the case."""
    findings = [] if graded[0].outcome is None else list(graded[0].outcome.findings)
    said = {(remark.code, remark.message) for remark in findings}
    for each in graded[1:]:
        remarks = [] if each.outcome is None else each.outcome.findings
        for remark in remarks:
            if (remark.code, remark.message) in said or remark.code == Code.NOT_TIMED.value:
                continue
            said.add((remark.code, remark.message))
            findings.append(replace(remark, message=f"case {each.case.name}: {remark.message}"))
        findings += [] if each.finding is None else [each.finding]
    left_out = [each for each in graded if each.outcome is None and each.finding is None]
    if left_out and context.terms.options.budget_s is not None:
        names = ", ".join(each.case.name for each in left_out[:_NAMED])
        more = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
        weight = math.fsum(each.case.weight for each in left_out) / math.fsum(each.case.weight for each in graded)
        message = f"{len(left_out)} of {len(graded)} cases ({weight:.0%} of the weight) were left out: {names}{more}"
        findings.insert(0, finding(Code.CASES_LEFT_OUT, message))
    return findings
