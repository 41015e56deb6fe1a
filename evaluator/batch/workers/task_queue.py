"""Sources of a worker pool's tasks: a stream, read on demand, and a queue, filled by programs."""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum

from evaluator.batch.runs.tasks import Task
from evaluator.batch.workers.worker_handle import Slot

_MOST_OVERTAKING = 4
"""Limit of tasks with a kept problem that overtake, in a row, the first task of a queue."""
_LOOK_S = 0.5


class SlotState:
    """State of a slot, written by the slot's thread: the worker, if started, and the worker's context."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.has_worker = False
        self.context: str | None = None
        """Context (`Task.context`) of the worker's last task."""
        self.used_s = 0.0
        self.grades = 0
        self.problem: str | None = None
        self.task: Task | None = None
        """Task in progress."""
        self.is_preparing = False

    @property
    def is_busy(self) -> bool:
        """Whether the slot has a task, or starts a worker."""
        return self.task is not None or self.is_preparing

    def started(self) -> None:
        """Note a new worker, without a context."""
        self.has_worker, self.used_s = True, time.monotonic()

    def dismissed(self) -> None:
        """Note the end of the worker and of the context."""
        self.has_worker, self.grades, self.context, self.problem = False, 0, None, None


class Errand(Enum):
    """Work of a slot without a task."""

    PREPARE = "start a worker, so that the next task need not wait for the import of PyTorch"
    RELEASE = "end the idle worker, and free its memory"


class TaskStream:
    """Tasks from `next_task`, called by a single thread at a time, until the first None."""

    def __init__(self, next_task: Callable[[], Task | None]) -> None:
        self._next_task = next_task
        self._returned: list[Task] = []
        self._busy = 0
        self._has_more = True
        self._taking = threading.Lock()
        self._counting = threading.Lock()
        self._closed = threading.Event()

    def take(self, state: SlotState) -> Task | Errand | None:  # noqa: ARG002 - for `TaskQueue`
        """Return a task of a lost slot, or a new task. A busy slot may still put a task back."""
        while not self._closed.is_set():
            with self._taking:
                task = self._returned.pop(0) if self._returned else self._new()
                if task is not None:
                    self._count_busy(1)
                    return task
                if not self._busy:
                    return None
            self._closed.wait(_LOOK_S)
        return None

    def put_back(self, task: Task) -> None:
        """Take back the task of a slot without a machine."""
        self._returned.append(task)

    def done(self) -> None:
        """Count a taken task as finished or put back."""
        self._count_busy(-1)

    def end(self) -> None:
        """Read no further task. Does not wait for a thread in `next_task`."""
        self._has_more = False

    def close(self) -> None:
        """End all waiting, except for a thread in `next_task`."""
        self._closed.set()

    def _new(self) -> Task | None:
        task = self._next_task() if self._has_more else None
        if task is None:
            self._has_more = False
        return task

    def _count_busy(self, change: int) -> None:
        # Not under `_taking`: a slot may hold `_taking` for long, while the next task is read from a pipe.
        with self._counting:
            self._busy += change


class TaskQueue:
    """Tasks in the order of `put`; a free slot prefers a task with the context of the slot's worker.

    Otherwise the task goes to a free slot with a worker, or to any free slot. With `spares`, `prepare` starts workers
    until as many free slots have a worker; an idle worker is released after `idle_s`.
    """

    def __init__(self, *, spares: int = 0, idle_s: float = math.inf) -> None:
        self._spares = spares
        self._idle_s = idle_s
        self._changed = threading.Condition()
        self._waiting: OrderedDict[int, Task] = OrderedDict()
        self._of_context: dict[str, OrderedDict[int, Task]] = {}
        self._idle: list[SlotState] = []
        self._overtaken = 0
        self._needs_spares = False
        self._preparing: SlotState | None = None
        self._closed = False

    def put(self, task: Task) -> bool:
        """Append a task. Return whether a slot takes the task at once."""
        with self._changed:
            self._waiting[id(task)] = task
            self._of_context.setdefault(task.context, OrderedDict())[id(task)] = task
            self._assign()
            return id(task) not in self._waiting

    def put_back(self, task: Task) -> None:
        """Take back the task of a slot without a machine, as the first."""
        self.put(task)
        with self._changed:
            if id(task) in self._waiting:
                self._waiting.move_to_end(id(task), last=False)

    def remove(self, task: Task) -> bool:
        """Remove a waiting task. Return false if a slot has the task."""
        with self._changed:
            return self._remove(task)

    def take(self, state: SlotState) -> Task | Errand | None:
        """Return the next task of a slot, or an errand; None after `close`."""
        with self._changed:
            if self._preparing is state:  # A failure would only repeat: the next task shows the cause.
                self._preparing, self._needs_spares = None, self._needs_spares and state.has_worker
            self._idle.append(state)
            try:
                self._assign()
                while not self._closed and state.task is None:
                    if (errand := self._errand(state)) is not None:
                        return errand
                    left_s = state.used_s + self._idle_s - time.monotonic() if state.has_worker else math.inf
                    self._changed.wait(None if left_s == math.inf else max(left_s, 0.0))
                return state.task
            finally:
                self._idle.remove(state)

    def done(self) -> None:
        """Do nothing: only `close` ends a queue."""

    def end(self) -> None:
        """Do nothing: only `close` ends a queue."""

    def prepare(self) -> None:
        """Let free slots start workers, in sequence, until enough have a worker."""
        with self._changed:
            self._needs_spares = self._spares > 0
            self._changed.notify_all()

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _errand(self, state: SlotState) -> Errand | None:
        if state.has_worker and time.monotonic() - state.used_s >= self._idle_s:
            self._needs_spares = False
            return Errand.RELEASE
        if not self._needs_spares or state.has_worker or self._preparing is not None:
            return None
        if sum(idle.has_worker for idle in self._idle) >= self._spares:
            self._needs_spares = False
            return None
        self._preparing = state
        return Errand.PREPARE

    def _assign(self) -> None:
        """Give waiting tasks to idle slots. The caller holds the lock."""
        for state in self._idle:
            kept = self._of_context.get(state.context) if state.context is not None and state.task is None else None
            if kept:
                task = next(iter(kept.values()))
                if self._overtaken < _MOST_OVERTAKING or task is self._first:
                    self._give(task, state)
        while self._waiting and (free := [state for state in self._idle if state.task is None]):
            self._give(self._first, min(free, key=_rank))
        self._changed.notify_all()

    @property
    def _first(self) -> Task:
        return next(iter(self._waiting.values()))

    def _give(self, task: Task, state: SlotState) -> None:
        self._overtaken = 0 if task is self._first else self._overtaken + 1
        self._remove(task)
        state.task = task

    def _remove(self, task: Task) -> bool:
        if self._waiting.pop(id(task), None) is None:
            return False
        kept = self._of_context[task.context]
        del kept[id(task)]
        if not kept:
            del self._of_context[task.context]
        return True


def _rank(state: SlotState) -> tuple[bool, bool, float]:
    """Order of slots for a task: with a worker first, preferably without a context, else the longest unused."""
    return not state.has_worker, state.context is not None, state.used_s


TaskSource = TaskStream | TaskQueue
"""Source of tasks for the slots of a pool. Thread-safe; a slot without a task waits in `take`."""
