"""Results of a grade that another attempt may improve. A failure of the machine never counts against the submission."""

from evaluator.batch.workers.messages import Built, Graded, NotGraded, Result
from evaluator.findings import Code
from evaluator.records import Status


def worth_another(result: Result) -> bool:
    """Return whether the machine failed, so that a new worker should try again."""
    match result:
        case Built():
            return False
        case Graded(card=card):
            # No retry after a deadline: a grade must not take three times its limit.
            late = card.reason is not None and card.reason.code == Code.DEADLINE
            return card.status is Status.INFRA_ERROR and not late
        case NotGraded(again=again):
            return again


def may_be_the_machines(result: Result) -> bool:
    """Whether a process of the submission was killed: by itself, by the kernel for lack of memory, or from outside.

    The three cases look the same afterwards. A retry shows whether the submission was the cause.
    """
    reason = result.card.reason if isinstance(result, Graded) else None
    if reason is None:
        return False
    return reason.details.get("signal") == "SIGKILL" or reason.details.get("killed") is True
