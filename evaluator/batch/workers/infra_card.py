"""Card of a submission that no worker could grade."""

from msgspec.structs import replace

from evaluator.batch.runs.tasks import Task
from evaluator.batch.workers.messages import Order
from evaluator.batch.workers.worker_handle import Slot
from evaluator.findings import Code, finding
from evaluator.grade_options import GradeOptions
from evaluator.grading import pipeline
from evaluator.grading.request import Unread
from evaluator.progress import Silent
from evaluator.records import Scorecard, Status, SubmissionRef
from evaluator.submission.read import Submission


def infra_card(task: Task, options: GradeOptions, reason: str, slot: Slot, hint: str = "") -> Scorecard:
    """Return a card for a failure of the slot's machine, without any statement about the submission.

    `hint` replaces the next step of X602. The pipeline makes the card, as for an unreadable submission.
    No code runs and PyTorch is not imported.
    """
    failure = finding(Code.JUDGE_FAILED, reason, next_step=hint or None)
    submission = task.submission
    unread = Unread(name=task.name, origin=submission.origin, finding=failure)
    order = Order(task.problem, None, unread, options.for_worker(slot.gpu), facts=slot.facts)
    card = replace(pipeline.grade(order.request(), Silent()), status=Status.INFRA_ERROR)
    if not isinstance(submission, Submission):
        return card
    graded = SubmissionRef(
        name=task.name,
        origin=submission.origin,
        sha256=submission.sha256,
        source=submission.source,
        extracted_from_answer=submission.extracted_from_answer,
    )
    return replace(card, submission=graded)
