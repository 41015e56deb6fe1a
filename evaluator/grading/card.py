"""Assembly of a grade's card from request and outcome."""

from msgspec.structs import replace

from evaluator.environment import environment
from evaluator.grading.card_remarks import reason_of, with_steps_to_own_kernels
from evaluator.grading.request import GradeRequest, Unread
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.languages.by_text import mentions_in_text
from evaluator.languages.registry import recognized
from evaluator.progress import Stopwatch
from evaluator.records import DeviceFacts, Outcome, ProblemRef, Scorecard, Seeds, SubmissionRef
from evaluator.submission.read import Submission

_COMMON = frozenset(Outcome.__struct_fields__).intersection(Scorecard.__struct_fields__)
"""Fields that a card takes from the outcome unchanged. Inheritance would change the order of the fields in files."""


def card_of(request: GradeRequest, outcome: Outcome, seeds: Seeds | None, stopwatch: Stopwatch) -> Scorecard:
    """Return the card of a grade with the given outcome."""
    terms, machine = request.terms, environment(request.terms.threads)
    required = terms.options.require_own_kernel
    outcome = replace(outcome, reason=reason_of(outcome), findings=with_steps_to_own_kernels(outcome, required))
    card = Scorecard(
        **{name: getattr(outcome, name) for name in _COMMON},
        problem=_problem_ref(terms),
        submission=_submission_ref(request.submission, outcome),
        device=DeviceFacts(
            kind=terms.device, name=machine.cpu if terms.gpu is None else terms.gpu.name, gpu=outcome.gpu
        ),
        environment=machine,
        tolerance=terms.options.tolerance,
        values=terms.options.values,
        seeds=seeds,
        mode=terms.options.mode,
        entry=terms.options.entry,
        required_own_kernel=required,
        benchmark_rule=terms.problem.benchmark,
        graded_at=stopwatch.started_at,
        stages_s=stopwatch.stages_s,
        wall_s=stopwatch.wall_s,
    )
    return replace(card, benchmark_correct=card.benchmark_of_checks)


def _problem_ref(terms: GradeTerms) -> ProblemRef:
    problem = terms.problem
    return ProblemRef(
        name=problem.name,
        title=problem.title,
        level=problem.level,
        origin=problem.origin,
        sha256=problem.sha256,
        size=terms.size,
        constants=problem.cases[terms.size].axes,
        precision=problem.precision,
        mode=problem.mode,
        backward=problem.backward,
        check=problem.check,
    )


def _submission_ref(submission: Submission | Unread, outcome: Outcome) -> SubmissionRef:
    match submission:
        case Submission():
            languages = outcome.toolchains
            if languages is None:
                languages = recognized(mentions_in_text(submission.source))
            return SubmissionRef(
                name=submission.name,
                origin=submission.origin,
                sha256=submission.sha256,
                source=submission.source,
                extracted_from_answer=submission.extracted_from_answer,
                toolchains=languages,
            )
        case Unread(name=name, origin=origin):
            return SubmissionRef(name=name, origin=origin, sha256=None, source="", extracted_from_answer=False)
