"""A grade of the command line by the ready judge, if one runs."""

import sys
from collections.abc import Callable

from msgspec.structs import replace

from evaluator.api import ready_client
from evaluator.batch.workers.messages import GradeFinished, NotGraded, StageEntered, WorkerOrder
from evaluator.batch.workers.worker_handle import NoWorker
from evaluator.commands import terminal
from evaluator.grading.request import GradeRequest, stages_of
from evaluator.records import Scorecard
from evaluator.report.progress_line import progress_on
from evaluator.submission.read import Submission


def graded_ready(request: GradeRequest, *, quiet: bool, meanwhile: Callable[[], None]) -> Scorecard | None:
    """Return the card by the ready judge; None without a ready judge, or after a refusal, with a line on stderr.

    `meanwhile` is called while the ready judge works, once for each stage.
    """
    try:
        answer = _answer(request, quiet=quiet, meanwhile=meanwhile)
    except NoWorker as no_worker:
        reason = str(no_worker)
    else:
        if isinstance(answer, GradeFinished):
            if not quiet:
                terminal.tell("graded by the ready judge")
            return answer.card
        reason = answer.reason
    if reason:
        terminal.tell(f"graded without the ready judge: {reason}")
    return None


def _answer(request: GradeRequest, *, quiet: bool, meanwhile: Callable[[], None]) -> GradeFinished | NotGraded:
    if request.replay is not None:
        raise NoWorker("a replay needs the seeds of its card" if ready_client.is_running() else "")
    with progress_on(sys.stderr, quiet=quiet, stages=stages_of(request.terms)) as progress:

        def on_stage(stage: StageEntered) -> None:
            progress.stage(stage.name, stage.detail)
            meanwhile()

        return ready_client.grade(_order(request), on_stage)


def _order(request: GradeRequest) -> WorkerOrder:
    """Return the request for another process: texts instead of paths, and a GPU only if the user chose one."""
    terms, submission = request.terms, request.submission
    chosen = terms.gpu.uuid if terms.gpu is not None and terms.options.gpu is not None else None
    order = WorkerOrder(terms.problem, None, None, terms.options.for_worker(chosen))
    if isinstance(submission, Submission):
        return replace(order, submission=submission)
    return replace(order, unread=submission)
