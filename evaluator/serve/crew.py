"""Workers of a device and their assignment to grades.

A grade prefers a worker with the problem's context, then a worker with a ready process. Grades wait in the order of
arrival, but a free worker prefers a waiting grade of the problem in its context.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from evaluator.batch.workers.messages import GradePart, Order
from evaluator.serve.call import ClientCall
from evaluator.serve.slot_worker import SlotWorker, context_key_of

READY_WORKERS = 2
"""Workers of a part with a ready process, apart from a worker for each GPU."""
_LOOK_S = 0.25
_END_S = 30.0


class GradeAbandoned(Exception):
    """The grade was abandoned, or the server ends, before a worker was free."""


class _WaitingGrade:
    """A waiting grade, without a worker."""

    def __init__(self, part: GradePart, order: Order) -> None:
        self.part = part
        self.context_key = context_key_of(order)
        self.gpu = order.options.gpu if part is GradePart.FINISH else None
        self.worker: SlotWorker | None = None

    def fits(self, worker: SlotWorker) -> bool:
        return worker.slot.part is self.part and self.gpu in (None, worker.slot.gpu)


class Crew:
    """Workers of a device. Thread-safe."""

    def __init__(self, workers: Sequence[SlotWorker]) -> None:
        """Manage `workers`, all free."""
        self.workers = tuple(workers)
        self._changed = threading.Condition()
        self._waiting: list[_WaitingGrade] = []
        self._closed = False

    @property
    def parts(self) -> tuple[GradePart, ...]:
        """Parts of a grade, in the order of execution."""
        has_gpus = any(worker.slot.part is GradePart.FINISH for worker in self.workers)
        return (GradePart.BEGIN, GradePart.FINISH) if has_gpus else (GradePart.ALL,)

    @contextlib.contextmanager
    def worker_for(
        self, part: GradePart, order: Order, call: ClientCall, on_wait: Callable[[], None]
    ) -> Iterator[SlotWorker]:
        """Wait for a worker, and keep the worker inside the context. Call `on_wait` first if no worker is free.

        Raises GradeAbandoned if the client abandons the grade, or the crew is closed.
        """
        waiting = _WaitingGrade(part, order)
        with self._changed:
            self._waiting.append(waiting)
            self._assign()
            waits = waiting.worker is None
        try:
            if waits:
                on_wait()
            yield self._awaited(waiting, call)
        finally:
            with self._changed:
                if waiting.worker is not None:
                    waiting.worker.busy = False
                else:
                    self._waiting.remove(waiting)
                self._assign()

    def prepare_spares(self) -> None:
        """Start processes, in sequence, until enough free workers have a process."""
        while (worker := self._reserve_spare()) is not None:
            try:
                ready = worker.prepare()
            except OSError:
                ready = False
            finally:
                self._free(worker)
            if not ready:  # The next grade shows the error; a loop would only repeat the error.
                return

    def release_idle(self, idle_s: float) -> None:
        """End the processes of workers without a grade for `idle_s`."""
        now_s = time.monotonic()
        with self._changed:
            idle = [
                worker
                for worker in self.workers
                if not worker.busy and worker.is_running and now_s - worker.used_s > idle_s
            ]
            for worker in idle:
                worker.busy = True
        for worker in idle:  # interrupt all before waiting for any
            worker.interrupt()
        for worker in idle:
            worker.dismiss()
            self._free(worker)

    def close(self) -> None:
        """End all processes, even during a grade. Waiting grades end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            until_s = time.monotonic() + _END_S
            while True:
                for worker in self.workers:  # Again and again: a busy worker may just be starting its process.
                    worker.interrupt()
                if time.monotonic() > until_s or not any(worker.busy for worker in self.workers):
                    break
                self._changed.wait(_LOOK_S)
        for worker in self.workers:
            worker.dismiss()

    def _awaited(self, waiting: _WaitingGrade, call: ClientCall) -> SlotWorker:
        with self._changed:
            while waiting.worker is None and not (self._closed or call.is_abandoned):
                self._changed.wait(_LOOK_S)
            if waiting.worker is None or self._closed:
                raise GradeAbandoned
            return waiting.worker

    def _reserve_spare(self) -> SlotWorker | None:
        with self._changed:
            if self._closed:
                return None
            for part in self.parts:
                free = [worker for worker in self.workers if worker.slot.part is part and not worker.busy]
                empty = [worker for worker in free if not worker.is_running]
                ready_count = len(self.workers) if part is GradePart.FINISH else READY_WORKERS
                if empty and len(free) - len(empty) < ready_count:
                    empty[0].busy = True
                    return empty[0]
        return None

    def _free(self, worker: SlotWorker) -> None:
        with self._changed:
            worker.busy = False
            self._assign()

    def _assign(self) -> None:
        """Give free workers to waiting grades. The caller holds the lock."""
        for reuses_context in (True, False):
            for waiting in list(self._waiting):
                free = [worker for worker in self.workers if not worker.busy and waiting.fits(worker)]
                fitting = (
                    [worker for worker in free if worker.context_key == waiting.context_key] if reuses_context else free
                )
                if fitting and not self._closed:
                    self._give(waiting, min(fitting, key=_rank))
        self._changed.notify_all()

    def _give(self, waiting: _WaitingGrade, worker: SlotWorker) -> None:
        waiting.worker, worker.busy = worker, True
        self._waiting.remove(waiting)


def _rank(worker: SlotWorker) -> tuple[bool, bool, float]:
    """Order of workers for a grade: a ready process first, preferably without a context, else the longest unused."""
    return not worker.is_running, worker.context_key is not None, worker.used_s
