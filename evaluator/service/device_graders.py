"""Workers of the Unix socket's door: a task grader for each device, made when first needed."""

import contextlib
import threading

import psutil

from evaluator.batch.workers.messages import GradePart
from evaluator.batch.workers.slots import gpus_for, slots_for
from evaluator.batch.workers.task_grader import TaskGrader
from evaluator.batch.workers.worker_handle import Hire, LocalWorker
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind, Record

READY_WORKERS = 2
"""Free workers with a process, apart from a worker for each GPU."""
_PAUSES_S = (0.0,)
"""A worker from before the grade may have died meanwhile: a new worker repeats the grade at once, and only once."""


class WorkerStatus(Record, frozen=True):
    """A worker process: part, problem, number of grades, and the memory of the whole process tree."""

    device: DeviceKind
    part: GradePart
    gpu: str | None
    pid: int
    busy: bool
    grades: int
    problem: str | None
    memory_bytes: int


class DeviceGraders:
    """Task graders by device. Thread-safe."""

    def __init__(self, jobs: int | None, idle_s: float, hire: Hire = LocalWorker) -> None:
        """Allow `jobs` concurrent grades on a device, on cuda builds; None takes the limit of the device.

        Workers end after `idle_s` without a grade.
        """
        self._jobs = jobs
        self._idle_s = idle_s
        self._hire = hire
        self._changing = threading.Lock()
        self._graders: dict[DeviceKind, TaskGrader] = {}
        self._closed = False

    def grader(self, device: DeviceKind) -> TaskGrader:
        """Return the grader of a device; a new one after a failure. Raises WarpgradeError without the device."""
        with self._changing:
            grader = self._graders.get(device)
            if grader is not None and grader.failure is not None:
                grader.close()
                grader = None
            if grader is None:
                options = GradeOptions(device=device)
                # On cpu a single grade has all cores, as without a server: the card is the same.
                slots = slots_for(device, None if device is DeviceKind.CPU else self._jobs, gpus_for(options))
                grader = TaskGrader(
                    slots, options, hire=self._hire, spares=READY_WORKERS, idle_s=self._idle_s, pauses_s=_PAUSES_S
                )
                self._graders[device] = grader
                if self._closed:
                    grader.close()
            return grader

    def close(self) -> None:
        """End all workers, even during a grade."""
        with self._changing:
            self._closed = True
            for grader in self._graders.values():
                grader.close()

    @property
    def devices(self) -> list[DeviceKind]:
        """Devices with a grader."""
        return sorted(self._graders)

    @property
    def workers(self) -> list[WorkerStatus]:
        """Status of all workers with a process."""
        statuses = []
        for device, grader in list(self._graders.items()):
            for number, state in enumerate(grader.pool.states):
                pid = getattr(grader.pool.workers.get(number), "pid", None)
                if pid is not None:
                    statuses.append(
                        WorkerStatus(
                            device=device,
                            part=state.slot.part,
                            gpu=state.slot.gpu,
                            pid=pid,
                            busy=state.is_busy,
                            grades=state.grades,
                            problem=state.problem,
                            memory_bytes=tree_bytes(pid),
                        )
                    )
        return statuses


def tree_bytes(pid: int) -> int:
    """Return the memory of a process and its descendants; shared memory counts once where known."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return sum(map(_bytes, [process, *process.children(recursive=True)]))
    return 0


def _bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.Error, AttributeError):  # a confined process hides the counts of pages
        with contextlib.suppress(psutil.Error):
            return int(process.memory_info().rss)
    return 0
