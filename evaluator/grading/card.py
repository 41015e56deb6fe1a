"""Assembly of a grade's card from request and outcome."""

from evaluator.environment import environment
from evaluator.grading.card_remarks import reason_of, with_steps_to_own_kernels
from evaluator.grading.request import GradeRequest, Unread
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.languages.by_text import mentions_in_text
from evaluator.languages.registry import recognized
from evaluator.progress import Stopwatch
from evaluator.records import DeviceFacts, Outcome, ProblemRef, Scorecard, Seeds, SubmissionRef
from evaluator.submission.read import Submission


def card_of(request: GradeRequest, outcome: Outcome, seeds: Seeds | None, stopwatch: Stopwatch) -> Scorecard:
    """Return the card of a grade with the given outcome."""
    terms, machine = request.terms, environment(request.terms.threads)
    return Scorecard(
        status=outcome.status,
        reason=reason_of(outcome),
        problem=_problem_ref(terms),
        submission=_submission_ref(request.submission, outcome),
        device=DeviceFacts(
            kind=terms.device, name=machine.cpu if terms.gpu is None else terms.gpu.name, gpu=outcome.gpu
        ),
        environment=machine,
        sandbox=outcome.sandbox,
        tolerance=terms.options.tolerance,
        values=terms.options.values,
        seeds=seeds,
        build=outcome.build,
        checks=outcome.checks,
        timing=outcome.timing,
        l2=outcome.l2,
        mode=terms.options.mode,
        entry=terms.options.entry,
        roofline=outcome.roofline,
        baselines=outcome.baselines,
        profiling=outcome.profiling,
        own_kernels=outcome.own_kernels,
        machine_code=outcome.machine_code,
        weights=outcome.weights,
        required_own_kernel=terms.options.require_own_kernel,
        findings=with_steps_to_own_kernels(outcome, terms.options.require_own_kernel),
        output=outcome.output,
        graded_at=stopwatch.started_at,
        stages_s=stopwatch.stages_s,
        wall_s=stopwatch.wall_s,
    )


def _problem_ref(terms: GradeTerms) -> ProblemRef:
    problem = terms.problem
    return ProblemRef(
        name=problem.name,
        title=problem.title,
        level=problem.level,
        origin=problem.origin,
        sha256=problem.sha256,
        size=terms.size,
        constants=problem.sizes[terms.size],
        precision=problem.precision,
        mode=problem.mode,
        backward=problem.backward,
        further_sizes={size: problem.sizes[size] for size in terms.further_sizes},
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
