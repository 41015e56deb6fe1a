"""Places of a device and their assignment to grades.

A grade prefers a place whose worker keeps the problem's context, then a place with a ready worker. Grades wait in the
order of arrival, but a free place prefers a waiting grade of the problem in the worker's context.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from evaluator.batch.workers.messages import GradePart, Order
from evaluator.serve.call import ClientCall
from evaluator.serve.place import WorkerPlace, context_key_of

READY_PLACES = 2
"""Workers of a part to keep ready, apart from a worker for each GPU."""
_LOOK_S = 0.25
_END_S = 30.0


class GradeAbandoned(Exception):
    """The grade was abandoned, or the server ends, before a place was free."""


class _WaitingGrade:
    """A waiting grade, without a place."""

    def __init__(self, part: GradePart, order: Order) -> None:
        self.part = part
        self.context_key = context_key_of(order)
        self.gpu = order.options.gpu if part is GradePart.FINISH else None
        self.place: WorkerPlace | None = None

    def fits(self, place: WorkerPlace) -> bool:
        return place.slot.part is self.part and self.gpu in (None, place.slot.gpu)


class Crew:
    """Places of a device. Thread-safe."""

    def __init__(self, places: Sequence[WorkerPlace]) -> None:
        """Manage `places`, all free."""
        self.places = tuple(places)
        self._changed = threading.Condition()
        self._waiting: list[_WaitingGrade] = []
        self._closed = False

    @property
    def parts(self) -> tuple[GradePart, ...]:
        """Parts of a grade, in the order of execution."""
        return (
            (GradePart.BEGIN, GradePart.FINISH)
            if any(place.slot.part is GradePart.FINISH for place in self.places)
            else (GradePart.ALL,)
        )

    @contextlib.contextmanager
    def place_for(
        self, part: GradePart, order: Order, call: ClientCall, on_wait: Callable[[], None]
    ) -> Iterator[WorkerPlace]:
        """Wait for a place, and keep the place inside the context. Call `on_wait` first if no place is free.

        Raises GradeAbandoned if the client abandons the grade, or the crew is closed.
        """
        waiting = _WaitingGrade(part, order)
        with self._changed:
            self._waiting.append(waiting)
            self._assign()
            waits = waiting.place is None
        try:
            if waits:
                on_wait()
            yield self._awaited(waiting, call)
        finally:
            with self._changed:
                if waiting.place is not None:
                    waiting.place.busy = False
                else:
                    self._waiting.remove(waiting)
                self._assign()

    def prepare_spares(self) -> None:
        """Start workers, in sequence, until enough free places have a worker."""
        while (place := self._reserve_spare()) is not None:
            try:
                ready = place.prepare()
            except OSError:
                ready = False
            finally:
                self._free(place)
            if not ready:  # The next grade shows the error; a loop would only repeat the error.
                return

    def release_idle(self, idle_s: float) -> None:
        """End the workers without a grade for `idle_s`."""
        now_s = time.monotonic()
        with self._changed:
            idle = [
                place for place in self.places if not place.busy and place.has_worker and now_s - place.used_s > idle_s
            ]
            for place in idle:
                place.busy = True
        for place in idle:  # interrupt all before waiting for any
            place.interrupt()
        for place in idle:
            place.dismiss()
            self._free(place)

    def close(self) -> None:
        """End all workers, even during a grade. Waiting grades end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            until_s = time.monotonic() + _END_S
            while True:
                for place in self.places:  # Again and again: a busy place may just be starting its worker.
                    place.interrupt()
                if time.monotonic() > until_s or not any(place.busy for place in self.places):
                    break
                self._changed.wait(_LOOK_S)
        for place in self.places:
            place.dismiss()

    def _awaited(self, waiting: _WaitingGrade, call: ClientCall) -> WorkerPlace:
        with self._changed:
            while waiting.place is None and not (self._closed or call.is_abandoned):
                self._changed.wait(_LOOK_S)
            if waiting.place is None or self._closed:
                raise GradeAbandoned
            return waiting.place

    def _reserve_spare(self) -> WorkerPlace | None:
        with self._changed:
            if self._closed:
                return None
            for part in self.parts:
                free = [place for place in self.places if place.slot.part is part and not place.busy]
                empty = [place for place in free if not place.has_worker]
                ready_count = len(self.places) if part is GradePart.FINISH else READY_PLACES
                if empty and len(free) - len(empty) < ready_count:
                    empty[0].busy = True
                    return empty[0]
        return None

    def _free(self, place: WorkerPlace) -> None:
        with self._changed:
            place.busy = False
            self._assign()

    def _assign(self) -> None:
        """Give free places to waiting grades. The caller holds the lock."""
        for reuses_context in (True, False):
            for waiting in list(self._waiting):
                free = [place for place in self.places if not place.busy and waiting.fits(place)]
                fitting = (
                    [place for place in free if place.context_key == waiting.context_key] if reuses_context else free
                )
                if fitting and not self._closed:
                    self._give(waiting, min(fitting, key=_rank))
        self._changed.notify_all()

    def _give(self, waiting: _WaitingGrade, place: WorkerPlace) -> None:
        waiting.place, place.busy = place, True
        self._waiting.remove(waiting)


def _rank(place: WorkerPlace) -> tuple[bool, bool, float]:
    """Order of places for a grade: a ready worker first, preferably without a context, else the longest unused."""
    return not place.has_worker, place.context_key is not None, place.used_s
