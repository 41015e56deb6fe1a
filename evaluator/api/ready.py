"""Choice between workers of the program and the ready judge, for the Python API."""

import logging
from collections.abc import Sequence

from evaluator.api import ready_client
from evaluator.api.ready_client import ReadyWorker
from evaluator.batch.workers.worker_handle import Hire, NoWorker, Slot
from evaluator.grade_options import GradeOptions

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
    if not (ready_client.is_allowed() if ready is None else ready):
        return list(slots), None
    try:
        reached = ready_client.reach(options)
    except NoWorker as no_worker:
        if str(no_worker):
            _log.warning("graded without the ready judge: %s", no_worker)
        return list(slots), None
    _log.info("graded by the ready judge (process %d)", reached.pid)
    gpu = slots[0].gpu if options.gpu is not None else None
    return [Slot(gpu=gpu)] * min(jobs or reached.at_once, reached.at_once), ReadyWorker
