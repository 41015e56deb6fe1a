"""Queue of built submissions that wait for a GPU."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from evaluator.batch.runs.tasks import Task
from evaluator.grading.request import Begun

_PATIENCE_S = 1.5
"""Time for which a slot waits for builds of its problem while others are built: to come back to a problem, with the
reference measured again, costs as much (docs/measured.md)."""


class BuiltTask(NamedTuple):
    """Task with a built submission: build result, number of attempts, start of the grade (monotonic clock, s)."""

    task: Task
    begun: Begun
    attempts: int
    since_s: float


class GpuQueue:
    """Queue between slots that build and slots with a GPU. Thread-safe.

    A GPU slot receives a task of its previous problem while the queue has any, or soon has: the judge then keeps the
    reference's runner and measurements. Otherwise the slot receives the oldest task of a problem without further builds
    in progress, if there is one, and with the most tasks for each slot, itself included: every slot sets up a problem
    anew, so two slots rather take two problems than share one.
    """

    def __init__(self, builders: int, room: int) -> None:
        """Create a queue for `builders` building slots. `put` blocks while the queue holds `room` tasks."""
        self._builders = builders
        self._room = room
        self._waiting: list[BuiltTask] = []
        self._changed = threading.Condition()
        self._closed = False
        self._in_progress = 0
        self._slots_on: Counter[str] = Counter()
        self._coming: Counter[str] = Counter()

    @contextlib.contextmanager
    def coming(self, context: str) -> Iterator[None]:
        """Context manager while a task of a problem (`Task.context`) is being built and put."""
        with self._changed:
            self._coming[context] += 1
        try:
            yield
        finally:
            with self._changed:
                self._coming[context] -= 1
                self._changed.notify_all()

    def put(self, waiting: BuiltTask) -> None:
        """Append a task."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < self._room or self._closed)
            self._waiting.append(waiting)
            self._changed.notify_all()

    def put_back(self, waiting: BuiltTask) -> None:
        """Return a taken task to the queue, because the GPU slot cannot finish the task."""
        with self._changed:
            self._waiting.insert(0, waiting)
            self._changed.notify_all()

    def done(self) -> None:
        """Count a taken task as finished or returned."""
        with self._changed:
            self._in_progress -= 1
            self._changed.notify_all()

    def builder_left(self) -> None:
        """Count a building slot as ended."""
        with self._changed:
            self._builders -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Wake up all waiting threads and end the queue."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """Whether no further task can come. A taken task may still be put back."""
        with self._changed:
            return self._closed or not (self._waiting or self._builders or self._in_progress)

    def take(self, context: str | None, timeout_s: float, gpu: str | None = None) -> BuiltTask | None:
        """Take a task for a slot with `gpu`, preferably with the context of the slot's last task.

        None after `timeout_s` without a task, or at the end.
        """
        with self._changed:
            if context is not None:
                self._changed.wait_for(lambda: self._settles(context, gpu), min(_PATIENCE_S, timeout_s))
            self._changed.wait_for(lambda: self._fitting(gpu) or self.over, timeout_s)
            fitting = self._fitting(gpu)
            if self._closed or not fitting:
                return None
            counts = Counter(waiting.task.context for waiting in fitting)
            chosen_context = context
            if chosen_context is None or chosen_context not in counts:
                chosen_context = max(
                    counts, key=lambda one: (not self._coming[one], counts[one] / (1 + self._slots_on[one]))
                )
            if context is not None:
                self._slots_on[context] -= 1
            self._slots_on[chosen_context] += 1
            chosen = next(waiting for waiting in fitting if waiting.task.context == chosen_context)
            self._waiting.remove(chosen)
            self._in_progress += 1
            self._changed.notify_all()
            return chosen

    def remove(self, task: Task) -> BuiltTask | None:
        """Remove and return a waiting task; None if the task does not wait."""
        with self._changed:
            for waiting in self._waiting:
                if waiting.task is task:
                    self._waiting.remove(waiting)
                    self._changed.notify_all()
                    return waiting
        return None

    def _settles(self, context: str, gpu: str | None) -> bool:
        """Return whether a task with the context waits, or none can come."""
        none_comes = not self._coming[context] or len(self._waiting) >= self._room
        return none_comes or any(waiting.task.context == context for waiting in self._fitting(gpu)) or self.over

    def _fitting(self, gpu: str | None) -> list[BuiltTask]:
        """Return the waiting tasks for a slot with `gpu`: all tasks for `gpu` or for any GPU."""
        return [waiting for waiting in self._waiting if gpu is None or _gpu_of(waiting.task) in (None, gpu)]


def _gpu_of(task: Task) -> str | None:
    return None if task.options is None else task.options.gpu
