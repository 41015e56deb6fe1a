"""Dispatcher: hands grades of the journal's queue to the grader, and tells waiting clients about final grades."""

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from evaluator.api.grader import Grader
from evaluator.api.scorecard import Scorecard
from evaluator.batch.runs.problems import ProblemText
from evaluator.errors import InfraError, UsageError
from evaluator.service.journal import Added, Arrival, Final, GradeAttempt, Journal, OtherRequest, QueueFull
from evaluator.service.messages import Grade, GradeOrder, GradeState, TextProblem
from evaluator.service.metrics import Metrics
from evaluator.text import one_line

MOST_ATTEMPTS = 3
"""Limit of attempts without a result because the server ended; then the card is of status `infra_error`."""
_ALONE = MOST_ATTEMPTS - 1
"""Number of lost attempts before a grade runs alone: the last attempt tells a culprit from a neighbour."""
_TOO_MANY = f"the service ended during {MOST_ATTEMPTS} attempts to grade this submission, at last without other grades"
_ROUND_S = 600.0
"""Time between two deletions of old grades."""


class FairQueue:
    """Waiting grades of all clients. Clients take turns; the grades of a client keep their order.

    A client with many grades delays the first grade of another by one turn.

    >>> queue = FairQueue()
    >>> for client, grade in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1")]:
    ...     queue.put(client, grade)
    >>> [queue.take() for _ in range(4)]
    [('a', 'a1'), ('b', 'b1'), ('a', 'a2'), ('a', 'a3')]
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[str]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, client: str, grade: str) -> None:
        """Add a grade behind all grades of the client."""
        self._waiting.setdefault(client, deque()).append(grade)

    @property
    def first(self) -> str:
        """Return the grade that `take` would remove. Raises StopIteration if the queue is empty."""
        return next(iter(self._waiting.values()))[0]

    def take(self) -> tuple[str, str]:
        """Remove and return the next client and grade. Raises KeyError if the queue is empty."""
        client, grades = self._waiting.popitem(last=False)
        grade = grades.popleft()
        if grades:
            self._waiting[client] = grades  # behind all other clients
        return client, grade

    def remove(self, client: str, grade: str) -> bool:
        """Remove a grade. Return false if the grade does not wait."""
        grades = self._waiting.get(client, deque())
        if grade not in grades:
            return False
        grades.remove(grade)
        if not grades:
            del self._waiting[client]
        return True


class Dispatcher:
    """Queue of the service. All methods belong to a single event loop."""

    def __init__(
        self, journal: Journal, grader: Grader, metrics: Metrics, tell: Callable[[str], None], *, keep_s: float
    ) -> None:
        """Grade the journal's queue by `grader`; forget grades final for longer than `keep_s`."""
        self._journal = journal
        self._grader = grader
        self._metrics = metrics
        self._tell = tell
        self._keep_s = keep_s
        self._queue = FairQueue()
        self._changed = asyncio.Event()
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_progress: set[str] = set()
        self._suspects: set[str] = set()
        self._interrupted: list[str] = []
        self._unfinished: set[str] = set()
        self._ended = asyncio.Event()
        """Set at the next end of a grade, and replaced by another event."""
        self._fault: BaseException | None = None
        self._handing_in = ThreadPoolExecutor(grader.at_once, "hand-in")

    async def run(self) -> None:
        """Grade until `stop`; return after the last grade in progress.

        Raises:
            InfraError: the workers or the disk failed. Grades without a result stay in the journal.
        """
        for client, grade, attempts in await self._journal.waiting():
            self._put(client, grade)
            if attempts >= _ALONE:
                self._suspects.add(grade)
        if len(self._queue):
            self._tell(f"{len(self._queue)} grades wait since an earlier start")
        if self._suspects:
            self._tell(f"{len(self._suspects)} of them were in progress at {_ALONE} ends of the service, and run alone")
        forgetting = asyncio.create_task(self._forget_old())
        try:
            while not self._stopping:
                self._changed.clear()
                self._begin_waiting()
                self._show()
                await self._changed.wait()
            while self._tasks and self._fault is None:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (forgetting, *self._tasks):
                task.cancel()
            await asyncio.gather(forgetting, *self._tasks, return_exceptions=True)
            self._handing_in.shutdown(wait=False, cancel_futures=True)
            with contextlib.suppress(InfraError):  # A failed disk counts the attempts.
                await self._journal.uncount(self._interrupted)
        if self._fault is not None:
            raise self._fault

    def stop(self) -> None:
        """Begin no further grade."""
        self._stopping = True
        self._changed.set()
        self._announce_end()

    def abort(self) -> None:
        """End also the grades in progress; the journal keeps the requests."""
        self.stop()
        for task in self._tasks:
            task.cancel()

    @property
    def is_ending(self) -> bool:
        """Whether no further grade begins."""
        return self._stopping

    async def accept(self, arrival: Arrival) -> Added | OtherRequest | QueueFull:
        """Store an arrival and put the new grade into the queue."""
        added = await self._journal.add(arrival)
        if isinstance(added, Added) and added.is_new:
            self._put(arrival.client, added.grade.id)
            self._changed.set()
        return added

    async def cancel(self, client: str, grade: str) -> bool:
        """Cancel a waiting grade. Return false if the grade is in progress or final."""
        if not self._queue.remove(client, grade):
            return False
        await self._finish(grade, Final(GradeState.CANCELLED))
        self._changed.set()  # The next grade may not need to run alone.
        return True

    def at_present(self, grade: Grade) -> Grade:
        """Return the grade with the present state: the journal does not store the state `grading`."""
        if grade.id in self._in_progress and not grade.state.is_final:
            return msgspec.structs.replace(grade, state=GradeState.GRADING)
        return grade

    async def until_final(self, grades: Sequence[str], timeout_s: float) -> None:
        """Wait until any of the grades is final, or no further grade begins, at most `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._stopping and self._unfinished.issuperset(grades):
                    await self._ended.wait()

    def _announce_end(self) -> None:
        self._ended.set()
        self._ended = asyncio.Event()

    def _put(self, client: str, grade: str) -> None:
        self._queue.put(client, grade)
        self._unfinished.add(grade)

    def _begin_waiting(self) -> None:
        while len(self._queue) and self._has_room():
            self._begin(*self._queue.take())

    def _has_room(self) -> bool:
        """Return whether the first grade of the queue may begin. A suspect runs without other grades."""
        if self._queue.first in self._suspects or self._in_progress & self._suspects:
            return not self._tasks
        return len(self._tasks) < self._grader.at_once

    def _begin(self, client: str, grade: str) -> None:
        self._in_progress.add(grade)
        task = asyncio.create_task(self._graded(client, grade))
        self._tasks.add(task)
        task.add_done_callback(lambda finished_task: self._on_task_end(finished_task, grade))

    def _on_task_end(self, task: asyncio.Task[None], grade: str) -> None:
        self._tasks.discard(task)
        self._in_progress.discard(grade)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fault = self._fault or error
            self.stop()
        self._changed.set()

    async def _graded(self, client: str, grade: str) -> None:
        try:
            attempt = await self._journal.begin(grade)
        except asyncio.CancelledError:  # The journal counts the attempt all the same.
            self._interrupted.append(grade)
            raise
        if attempt is None:
            return
        started_s = time.monotonic()
        try:
            final = await self._result(client, grade, attempt)
            await self._finish(grade, final)
        except (asyncio.CancelledError, InfraError):
            # A signal, the workers or the disk ended the grade: no evidence against the submission.
            self._interrupted.append(grade)
            raise
        wall_s = time.monotonic() - started_s
        self._metrics.graded(final, wall_s)
        outcome = final.verdict.value.replace("_", " ") if final.verdict is not None else final.state.value
        self._tell(f"{client} {grade}: {outcome}, {wall_s:.2f} s")

    async def _result(self, client: str, grade: str, attempt: GradeAttempt) -> Final:
        """Grade a request. After too many attempts, make the card of the failure; after a failed card, a reason."""
        if attempt.attempt > MOST_ATTEMPTS + 1:
            return Final(GradeState.FAILED, reason=_TOO_MANY)
        order = msgspec.json.decode(attempt.request, type=GradeOrder)
        # Threads apart from the threads of requests: the search for a problem's small size may take long.
        loop = asyncio.get_running_loop()
        try:
            if attempt.attempt > MOST_ATTEMPTS:
                card = await loop.run_in_executor(self._handing_in, self._infra_card, order)
            else:
                card = await asyncio.wrap_future(await loop.run_in_executor(self._handing_in, self._submitted, order))
        except UsageError as error:
            return Final(GradeState.FAILED, reason=error.message)
        except (ValueError, TypeError, RecursionError, MemoryError) as error:
            # The same text would cause the same fault of Warpgrade after every later start of the service.
            self._tell(f"{client} {grade}: {type(error).__name__}: {one_line(str(error), 200)}")
            return Final(GradeState.FAILED, reason="Warpgrade cannot read the problem or the submission")
        if self._grader.failure is not None:
            raise InfraError(f"the workers failed: {self._grader.failure}", hint="start the service again")
        return Final(GradeState.FINISHED, card.status, msgspec.json.encode(card))

    def _submitted(self, order: GradeOrder) -> Future[Scorecard]:
        return self._grader.submit(problem_of(order), order.source, name=order.name)

    def _infra_card(self, order: GradeOrder) -> Scorecard:
        return self._grader.infra_card(problem_of(order), order.source, name=order.name, reason=_TOO_MANY)

    async def _finish(self, grade: str, final: Final) -> None:
        await self._journal.finish(grade, final)
        self._unfinished.remove(grade)
        self._announce_end()

    async def _forget_old(self) -> None:
        while True:
            try:
                await self._journal.forget(self._keep_s)
            except InfraError as error:  # A later round may succeed.
                self._tell(error.message)
            await asyncio.sleep(_ROUND_S)

    def _show(self) -> None:
        self._metrics.show(waiting=len(self._queue), grading=len(self._in_progress))


def problem_of(order: GradeOrder) -> str | ProblemText:
    """Return the problem of an order as the library names problems."""
    match order.problem:
        case TextProblem(name=name, source=source):
            return ProblemText(source, name)
        case str() as name:
            return name
