"""Choice between workers of the program and the ready judge, for the Python API."""

import logging
from collections.abc import Sequence

from evaluator.batch.workers.worker_handle import Hire, Slot
from evaluator.grade_options import GradeOptions
from evaluator.serve import client
from evaluator.serve.client import ReadyWorker, Unready

_log = logging.getLogger("warpgrade")


def places(
    options: GradeOptions, slots: Sequence[Slot], *, jobs: int | None, ready: bool | None
) -> tuple[list[Slot], Hire | None]:
    """Return the slots of grades and the factory of their workers: the ready judge if running, else `slots`.

    Args:
        options: options of all grades.
        slots: slots of the program's own workers; the factory for own workers is None.
        jobs: limit of concurrent grades; None takes the limit of the ready judge.
        ready: whether to use the ready judge; None follows the environment variable WARPGRADE_READY.
    """
    if not (client.is_allowed() if ready is None else ready):
        return list(slots), None
    reached = client.reach(options)
    if isinstance(reached, Unready):
        if reached.reason:
            _log.warning("graded without the ready judge: %s", reached.reason)
        return list(slots), None
    _log.info("graded by the ready judge (process %d)", reached.pid)
    gpu = slots[0].gpu if options.gpu is not None else None
    return [Slot(gpu=gpu)] * min(jobs or reached.at_once, reached.at_once), ReadyWorker
