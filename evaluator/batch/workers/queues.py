"""Queues of a worker pool: tasks for all slots, and built tasks for slots with a GPU."""

import contextlib
import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

from evaluator.batch.runs.tasks import Task
from evaluator.batch.workers.worker_handle import Slot
from evaluator.grading.request import Begun

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
