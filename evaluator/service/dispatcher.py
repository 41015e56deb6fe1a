"""Way of grades from the journal's queue to the grader, and news about final grades for waiting clients."""

import asyncio
import datetime
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import msgspec

from evaluator.api.scorecard import Scorecard
from evaluator.batch.runs.inputs import ProblemText
from evaluator.errors import InfraError, UsageError
from evaluator.report.layout.text import one_line
from evaluator.service.fair_queue import FairQueue
from evaluator.service.journal import Added, Arrival, Final, Journal, Limits, OtherRequest, QueueFull
from evaluator.service.messages import Grade, GradeOrder, GradeState, TextProblem
from evaluator.service.metrics import Metrics

_ROUND_S = 600.0
"""Time between two deletions of old grades."""


class Grading(Protocol):
    """The part of `Grader` that the service uses."""

    @property
    def at_once(self) -> int:
        """Number of submissions to hand in ahead."""

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the workers."""

    def refusal_of(self, problem: str | ProblemText) -> str | None:
        """Return the reason why a problem cannot be graded, as far as known without running code."""

    def submit(self, problem: str | ProblemText, source: str | None, *, name: str) -> Future[Scorecard]:
        """Submit a submission."""


class Dispatcher:
    """Queue of the service. All methods belong to one event loop."""

    def __init__(
        self,
        journal: Journal,
        grading: Grading,
        metrics: Metrics,
        tell: Callable[[str], None],
        *,
        limits: Limits,
        keep: datetime.timedelta,
    ) -> None:
        """Grade the journal's queue by `grading`; forget grades that were final for the time `keep`."""
        self._journal = journal
        self._grading = grading
        self._metrics = metrics
        self._tell = tell
        self._limits = limits
        self._keep = keep
        self._queue = FairQueue()
        self._changed = asyncio.Event()
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._at_work: set[str] = set()
        self._news: dict[str, asyncio.Future[None]] = {}
        self._fault: BaseException | None = None
        self._handing_in = ThreadPoolExecutor(grading.at_once, "hand-in")

    async def run(self) -> None:
        """Grade until `stop`; return after the last grade in progress.

        Raises:
            InfraError: the workers or the disk failed. Grades without a result stay in the journal.
        """
        for client, grade in await self._journal.waiting():
            self._queue.put(client, grade)
        if len(self._queue):
            self._tell(f"{len(self._queue)} grades wait since an earlier start")
        forgetting = asyncio.create_task(self._forget_old())
        try:
            while not self._stopping:
                self._changed.clear()
                while len(self._queue) and len(self._tasks) < self._grading.at_once and not self._stopping:
                    self._begin(*self._queue.take())
                self._show()
                await self._changed.wait()
            while self._tasks and self._fault is None:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (forgetting, *self._tasks):
                task.cancel()
            await asyncio.gather(forgetting, *self._tasks, return_exceptions=True)
            self._handing_in.shutdown(wait=False, cancel_futures=True)
        if self._fault is not None:
            raise self._fault

    def stop(self) -> None:
        """Begin no further grade."""
        self._stopping = True
        self._changed.set()
        self._end_waiting()

    def abort(self) -> None:
        """End also the grades in progress; they stay in the journal."""
        self.stop()
        for task in self._tasks:
            task.cancel()

    @property
    def is_ending(self) -> bool:
        """Whether no further grade begins."""
        return self._stopping

    async def accept(self, arrival: Arrival) -> Added | OtherRequest | QueueFull:
        """Store an arrival and put the arrival into the queue."""
        added = await self._journal.add(arrival, self._limits)
        if isinstance(added, Added) and added.is_new:
            self._queue.put(arrival.client, added.grade.id)
            self._changed.set()
        return added

    async def cancel(self, client: str, grade: str) -> bool:
        """Cancel a waiting grade. Return false if the grade does not wait any more."""
        if not self._queue.remove(client, grade):
            return False
        await self._finish(client, grade, Final(GradeState.CANCELLED))
        return True

    def at_present(self, grade: Grade) -> Grade:
        """Return the grade with the state that the journal does not store: in progress."""
        if grade.id in self._at_work and not grade.state.is_final:
            return msgspec.structs.replace(grade, state=GradeState.GRADING)
        return grade

    def news(self, client: str) -> "asyncio.Future[None]":
        """Return a future of the next final grade of the client; done already if the server ends.

        A caller asks for the future before it reads the journal, so that no grade falls between.
        """
        if self._stopping:
            return _done()
        return self._news.setdefault(client, asyncio.get_running_loop().create_future())

    def _end_waiting(self) -> None:
        waiting, self._news = self._news, {}
        for news in waiting.values():
            if not news.done():
                news.set_result(None)

    def _begin(self, client: str, grade: str) -> None:
        self._at_work.add(grade)
        task = asyncio.create_task(self._graded(client, grade))
        self._tasks.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, grade))

    def _ended(self, task: asyncio.Task[None], grade: str) -> None:
        self._tasks.discard(task)
        self._at_work.discard(grade)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fault = self._fault or error
            self.stop()
        self._changed.set()

    async def _graded(self, client: str, grade: str) -> None:
        request = await self._journal.request(grade)
        if request is None:
            return
        order = msgspec.json.decode(request, type=GradeOrder)
        started_s = time.monotonic()
        try:
            # Threads apart from those of requests: a problem may need a long search for its small size.
            loop = asyncio.get_running_loop()
            future = await loop.run_in_executor(self._handing_in, self._submitted, order)
            card = await asyncio.wrap_future(future)
        except UsageError as error:
            final = Final(GradeState.FAILED, reason=error.message)
        except (ValueError, TypeError, RecursionError) as error:
            # A fault of Warpgrade that this text caused would end every later start of the service too.
            self._tell(f"{client} {grade}: {type(error).__name__}: {one_line(str(error), 200)}")
            final = Final(GradeState.FAILED, reason="Warpgrade cannot read the problem or the submission")
        else:
            if self._grading.failure is not None:
                raise InfraError(f"the workers failed: {self._grading.failure}", hint="start the service again")
            final = Final(GradeState.FINISHED, card.status, msgspec.json.encode(card))
        await self._finish(client, grade, final)
        wall_s = time.monotonic() - started_s
        self._metrics.graded(final, wall_s)
        told = final.verdict.value.replace("_", " ") if final.verdict is not None else final.state.value
        self._tell(f"{client} {grade}: {told}, {wall_s:.2f} s")

    def _submitted(self, order: GradeOrder) -> Future[Scorecard]:
        return self._grading.submit(problem_of(order), order.source, name=order.name)

    async def _finish(self, client: str, grade: str, final: Final) -> None:
        await self._journal.finish(grade, final)
        news = self._news.pop(client, None)
        if news is not None and not news.done():
            news.set_result(None)

    async def _forget_old(self) -> None:
        while True:
            await self._journal.forget(datetime.datetime.now(datetime.UTC) - self._keep)
            await asyncio.sleep(_ROUND_S)

    def _show(self) -> None:
        self._metrics.show(waiting=len(self._queue), grading=len(self._at_work))


async def until(news: "asyncio.Future[None]", timeout_s: float) -> bool:
    """Wait for news. Return false after the time."""
    # Not `wait_for`, which would cancel the future of all other waiting clients.
    done, _ = await asyncio.wait([news], timeout=timeout_s)
    return bool(done)


def _done() -> "asyncio.Future[None]":
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future


def problem_of(order: GradeOrder) -> str | ProblemText:
    """Return the problem of an order as the library names it."""
    match order.problem:
        case TextProblem(name=name, source=source):
            return ProblemText(source, name)
        case str() as name:
            return name
