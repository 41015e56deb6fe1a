"""Methods that a grader of this machine and a grader of another machine share."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import Future, as_completed
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple, Self

from evaluator.api.candidate import Candidate, require_candidate
from evaluator.api.scorecard import Scorecard
from evaluator.batch.runs.problems import ProblemText


class AnyGrader(ABC):
    """Grader with futures of cards, as a context manager, and with blocking and awaitable grades."""

    @abstractmethod
    def start(self) -> Self:
        """Make the grader ready, and return the grader."""

    @abstractmethod
    def close(self) -> None:
        """Cancel unfinished grades. A second call has no effect."""

    @property
    @abstractmethod
    def at_once(self) -> int:
        """Number of submissions to hand in ahead."""

    @abstractmethod
    def submit(
        self, problem: str | ProblemText, source: str | Path | None, *, name: str = "candidate"
    ) -> Future[Scorecard]:
        """Submit Python text, or a model's answer with code. The future returns the scorecard."""

    def submit_candidate(self, candidate: Candidate) -> Future[Scorecard]:
        """Submit the submission of a candidate. Raises like `submit`, and TypeError for any other object."""
        require_candidate(candidate)
        return self.submit(candidate.problem, candidate.source, name=candidate.name)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Same as `close`."""
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def grade(self, problem: str | ProblemText, source: str | Path | None, *, name: str = "candidate") -> Scorecard:
        """Grade a submission and wait. Raises like `submit` and its future.

        Status `infra_error` on the card is a failure of the machine.
        """
        return self.submit(problem, source, name=name).result()

    async def grade_async(
        self, problem: str | ProblemText, source: str | Path | None, *, name: str = "candidate"
    ) -> Scorecard:
        """Grade a submission without blocking the event loop. Raises like `grade`."""
        return await asyncio.wrap_future(self.submit(problem, source, name=name))

    def grade_stream(self, candidates: Iterable[Candidate]) -> Generator[tuple[Candidate, Scorecard], None, None]:
        """Grade candidates concurrently. Yield each candidate with the card, in order of completion.

        Other threads read the candidates, at most `at_once` ahead of the cards. The iterable may be endless, and may
        wait for the cards. Closing the iterator cancels unfinished grades. Raises like `grade`.
        """
        coming, room = iter(candidates), threading.Semaphore(self.at_once)
        completed: SimpleQueue[Future[Any]] = SimpleQueue()
        # The future of the next candidate has no candidate yet.
        running: dict[Future[Any], Candidate | None] = {}

        def add(future: Future[Any], candidate: Candidate | None) -> None:
            running[future] = candidate
            future.add_done_callback(completed.put)

        add(_next_of(coming, room), None)
        try:
            while running:
                future = completed.get()
                candidate = running.pop(future)
                if candidate is not None:
                    card = future.result()  # An error must not make room: another candidate would be read, and lost.
                    room.release()
                    yield candidate, card
                elif (candidate := future.result()) is not None:
                    add(self.submit_candidate(candidate), candidate)
                    add(_next_of(coming, room), None)
        finally:
            for future in running:
                future.cancel()
            room.release()

    async def grade_stream_async(
        self, candidates: Iterable[Candidate] | AsyncIterable[Candidate]
    ) -> AsyncGenerator[tuple[Candidate, Scorecard], None]:
        """Grade candidates like `grade_stream`, as an asynchronous iterator.

        Candidates may come from an asynchronous iterable. An ordinary iterable is read in the event loop's thread, and
        must not wait for the cards.
        """
        coming, room = _as_async(candidates), asyncio.Semaphore(self.at_once)

        async def next_candidate() -> Candidate | None:
            await room.acquire()
            return await anext(coming, None)

        # The future of the next candidate has no candidate yet.
        running: dict[asyncio.Future[Any], Candidate | None] = {asyncio.ensure_future(next_candidate()): None}
        try:
            while running:
                for future in (await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED))[0]:
                    candidate = running.pop(future)
                    if candidate is not None:
                        room.release()
                        yield candidate, future.result()
                    elif (candidate := future.result()) is not None:
                        running[asyncio.wrap_future(self.submit_candidate(candidate))] = candidate
                        running[asyncio.ensure_future(next_candidate())] = None
        finally:
            for future in running:
                future.cancel()


def _next_of(candidates: Iterator[Candidate], room: threading.Semaphore) -> Future[Candidate | None]:
    """Wait for room and read the next candidate, in a thread that ends with the program; None at the end."""
    reading: Future[Candidate | None] = Future()

    def read() -> None:
        room.acquire()
        if reading.set_running_or_notify_cancel():
            try:
                reading.set_result(next(candidates, None))
            except BaseException as error:  # noqa: BLE001 - the reader of the future raises the error
                reading.set_exception(error)

    threading.Thread(target=read, name="candidates", daemon=True).start()
    return reading


class Progress(NamedTuple):
    """State of `grade_many` after a grade: the candidate, the card, and the number of finished grades.

    `done` counts from 1 to `total`, in order of completion. A failure of the machine is a card too.
    """

    candidate: Candidate
    card: Scorecard
    done: int
    total: int


OnProgress = Callable[[Progress], object]
"""Callback of `grade_many`, called in the caller's thread. The result is ignored."""


def cards_of(
    candidates: Sequence[Candidate], futures: Sequence[Future[Scorecard]], on_progress: OnProgress | None
) -> list[Scorecard]:
    """Return the cards of futures, in the order of the candidates, and report each card at once.

    The first error, of a future or of the callback, cancels the unfinished futures.
    """
    try:
        if on_progress is not None:
            candidate_of = dict(zip(futures, candidates, strict=True))
            for done, future in enumerate(as_completed(futures), start=1):
                on_progress(Progress(candidate_of[future], future.result(), done, len(futures)))
        return [future.result() for future in futures]
    except BaseException:
        for future in futures:
            future.cancel()
        raise


async def _as_async(candidates: Iterable[Candidate] | AsyncIterable[Candidate]) -> AsyncIterator[Candidate]:
    if isinstance(candidates, AsyncIterable):
        async for candidate in candidates:
            yield candidate
    else:
        for candidate in candidates:
            yield candidate
