"""Grades that are begun and wait for a GPU."""

import threading
from collections import Counter
from typing import NamedTuple

from evaluator.batch.runs.tasks import Task
from evaluator.grading.request import Begun


class Waiting(NamedTuple):
    """A task whose submission is built: what was made of it, after so many attempts, since when (monotonic, s)."""

    task: Task
    begun: Begun
    attempts: int
    since_s: float


class GpuQueue:
    """A queue between those who build and those who have a GPU. Methods are called from their threads.

    Who takes one gets one of the problem that it had before, as long as there is any: so its judge keeps the
    reference's runner and what was measured with it. Else it gets the oldest of the problem that has most.
    """

    def __init__(self, builders: int, room: int) -> None:
        """Expect tasks from so many builders; they wait while there are `room` tasks."""
        self._builders = builders
        self._room = room
        self._waiting: list[Waiting] = []
        self._changed = threading.Condition()
        self._closed = False
        self._at_work = 0

    def put(self, waiting: Waiting) -> None:
        """Hand one over."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < self._room or self._closed)
            self._waiting.append(waiting)
            self._changed.notify_all()

    def put_back(self, waiting: Waiting) -> None:
        """Return one that was taken: whoever took it cannot finish it."""
        with self._changed:
            self._waiting.insert(0, waiting)
            self._changed.notify_all()

    def done(self) -> None:
        """Say that one that was taken is through, or was put back."""
        with self._changed:
            self._at_work -= 1
            self._changed.notify_all()

    def builder_left(self) -> None:
        """Say that a builder brings no more."""
        with self._changed:
            self._builders -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """Whether nothing will come any more. What is at work may come back."""
        with self._changed:
            return self._closed or not (self._waiting or self._builders or self._at_work)

    def take(self, problem_sha256: str | None, timeout_s: float) -> Waiting | None:
        """Take one, if one comes in time, rather of that problem."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.over, timeout_s)
            if self._closed or not self._waiting:
                return None
            counts = Counter(each.task.problem.sha256 for each in self._waiting)
            wanted = problem_sha256 if problem_sha256 in counts else counts.most_common(1)[0][0]
            chosen = next(each for each in self._waiting if each.task.problem.sha256 == wanted)
            self._waiting.remove(chosen)
            self._at_work += 1
            self._changed.notify_all()
            return chosen
