"""Worker of a slot of the ready judge: the worker process, if started, and the context in the process."""

import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from evaluator.batch.workers.messages import NotGraded, Order, Prepare, Result, Stage
from evaluator.batch.workers.retries import worth_another
from evaluator.batch.workers.worker_handle import LocalWorker, Slot
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind
from evaluator.serve.call import ClientCall
from evaluator.serve.status import WorkerStatus, tree_bytes

Hire = Callable[[Slot, Path | None], LocalWorker]
"""Factory of a slot's worker, with the file for the worker's output."""


class SlotWorker:
    """Worker of a slot, in a process that the first grade starts. One thread at a time; `busy` belongs to the crew."""

    def __init__(self, device: DeviceKind, slot: Slot, hire: Hire = LocalWorker) -> None:
        """Create the worker without a process."""
        self.device = device
        self.slot = slot
        self.busy = False
        self.used_s = 0.0
        self.context_key: str | None = None
        """Key (`context_key_of`) of the grades with the context in the process."""
        self._hire = hire
        self._process: LocalWorker | None = None
        self._grades = 0
        self._problem: str | None = None

    @property
    def is_running(self) -> bool:
        """Whether a process exists: the next grade need not import PyTorch."""
        return self._process is not None

    def prepare(self) -> bool:
        """Start a process and wait until the process is ready. Return false after a failure."""
        self._process = self._process or self._hire(self.slot, None)
        ready = self._process.prepare(Prepare(GradeOptions(device=self.device, gpu=self.slot.gpu)))
        if not ready:
            self.dismiss()
        self.used_s = time.monotonic()
        return ready

    def grade(self, order: Order, call: ClientCall, on_stage: Callable[[Stage], None]) -> Result:
        """Make the slot's part of a grade.

        After a failure of the machine in a process from before the grade, a new process repeats the grade: the old
        process may have died in the meantime, or its GPU context may have failed.
        """
        worker_order = replace(order, options=order.options.for_worker(self.slot.gpu), part=self.slot.part)
        while True:
            was_running = self.is_running
            result = self._attempt(worker_order, call, on_stage)
            if call.is_abandoned or worth_another(result):
                self.dismiss()
            if call.is_abandoned or not (was_running and worth_another(result)):
                self.used_s = time.monotonic()
                return result
            on_stage(Stage(name="again", detail="in a new process"))

    def dismiss(self) -> None:
        """End the process, and forget its context."""
        process, self._process = self._process, None
        self._grades, self.context_key, self._problem = 0, None, None
        if process is not None:
            process.close()

    def interrupt(self) -> None:
        """End the process, also from another thread. The worker stays busy until the grade has ended."""
        if (process := self._process) is not None:
            process.interrupt()

    @property
    def status(self) -> WorkerStatus | None:
        """Status of the process; None without a process."""
        process = self._process
        if process is None:
            return None
        return WorkerStatus(
            device=self.device,
            part=self.slot.part,
            gpu=self.slot.gpu,
            pid=process.pid,
            busy=self.busy,
            grades=self._grades,
            problem=self._problem,
            memory_bytes=tree_bytes(process.pid),
        )

    def _attempt(self, order: Order, call: ClientCall, on_stage: Callable[[Stage], None]) -> Result:
        try:
            self._process = self._process or self._hire(self.slot, None)
        except OSError as error:
            return NotGraded(reason=f"no worker process could start: {error.strerror}", again=True)
        self.context_key, self._problem = context_key_of(order), order.problem.name
        try:
            with call.made_by(self._process):
                result = self._process.grade(order, on_stage)
        except BaseException:  # The process may still grade: a late reply must not answer the next order.
            self.dismiss()
            raise
        self._grades += 1
        return result


def context_key_of(order: Order) -> str:
    """Return the key of grades with a common context, independent of the GPU and the part."""
    return f"{order.problem.sha256} {order.options.for_worker(None)}"
