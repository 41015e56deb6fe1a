"""A grader for programs with one submission after another: workers persist between submissions.

with Grader(device="cuda") as grader:
    card = grader.grade("relu", source)              # from any thread
    future = grader.submit("relu", source)           # a concurrent.futures.Future

async with Grader() as grader:
    card = await grader.grade_async("relu", source)
"""

import asyncio
import queue
import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from evaluator.api.ready import places
from evaluator.batch.grading_setup import setup_for
from evaluator.batch.runs.inputs import from_text
from evaluator.batch.runs.tasks import Refused, Task
from evaluator.batch.workers.infra_card import infra_card
from evaluator.batch.workers.messages import Graded
from evaluator.batch.workers.worker_pool import Drained, Ended, WorkerPool
from evaluator.errors import UsageError
from evaluator.grade_options import with_options
from evaluator.records import Scorecard
from evaluator.signatures.signing import signed


class Grader:
    """Grader of submissions, with as many concurrent grades as the device allows. A context manager, sync or async."""

    @with_options
    def __init__(self, *, jobs: int | None = None, ready: bool | None = None, **options: Any) -> None:
        """Read the options. Workers start with the context.

        Args:
            jobs: number of concurrent grades (on cuda: builds); None takes the limit of the device.
            ready: whether the ready judge grades, if one runs (`warpgrade serve`); None means yes, unless the
                environment variable WARPGRADE_READY is 0.
            **options: see `GradeOptions`.

        Raises:
            TypeError: the name of an option is unknown.
            UsageError: the value of an option is invalid.
            InfraError: this machine has no GPU.
        """
        self._options, slots, self._problems, self._key, _ = setup_for(options, jobs)
        self._slots, self._hire = places(self._options, slots, jobs=jobs, ready=ready)
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._futures: dict[int, Future[Scorecard]] = {}
        self._changing = threading.Lock()
        self._closed = True
        self._worker_pool: WorkerPool | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._closed = False
        self._worker_pool = WorkerPool(self._slots, self._options, self._tasks.get, hire=self._hire).__enter__()
        self._reader = threading.Thread(target=self._read, args=(self._worker_pool,), name="grader", daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all workers at once and cancel unfinished grades."""
        with self._changing:
            self._closed = True
            for _ in self._slots:
                self._tasks.put(None)
        if self._worker_pool is not None:
            self._worker_pool.__exit__(kind, error, trace)
        self._cancel()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    @property
    def at_once(self) -> int:
        """Number of submissions to hand in ahead: two for each slot."""
        return 2 * len(self._slots)

    def submit(self, problem: str, source: str, *, name: str = "candidate") -> Future[Scorecard]:
        """Submit Python text, or a model's answer with code. The future returns the scorecard.

        Raises:
            UsageError: the problem does not exist.
            RuntimeError: the context is not active.
        """
        task = from_text(source, name, name, self._problems.find(problem))
        if isinstance(task, Refused):
            raise UsageError(task.reason)
        future: Future[Scorecard] = Future()
        with self._changing:
            if self._closed:
                raise RuntimeError("a Grader grades between `with` and the end of its block")
            self._futures[id(task)] = future
            self._tasks.put(task)
        return future

    def grade(self, problem: str, source: str, *, name: str = "candidate") -> Scorecard:
        """Grade a submission and wait. Status `infra_error` is a failure of this machine. Raises like `submit`."""
        return self.submit(problem, source, name=name).result()

    async def grade_async(self, problem: str, source: str, *, name: str = "candidate") -> Scorecard:
        """Grade a submission without blocking the event loop. Raises like `submit`."""
        return await asyncio.wrap_future(self.submit(problem, source, name=name))

    def _read(self, worker_pool: WorkerPool) -> None:
        left = len(self._slots)
        while left:
            event = worker_pool.events.get()
            if isinstance(event, Ended):
                self._give(event)
            elif isinstance(event, Drained):
                left -= 1
                if event.error is not None:
                    self._fail(event.error)
        self._cancel()

    def _give(self, event: Ended) -> None:
        with self._changing:
            future = self._futures.pop(id(event.task), None)
        if future is None or not future.set_running_or_notify_cancel():
            return
        if isinstance(event.result, Graded):
            future.set_result(signed(event.result.card, self._key))
            return
        try:
            card = infra_card(event.task, self._options, event.result.reason, self._slots[event.slot])
            future.set_result(signed(card, self._key))
        except Exception as error:  # noqa: BLE001 - somebody waits for this future, whatever happens here
            future.set_exception(error)

    def _fail(self, error: BaseException) -> None:
        """Pass the error of a broken slot to all waiting futures, which would otherwise never finish."""
        with self._changing:
            self._closed = True
            waiting, self._futures = list(self._futures.values()), {}
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

    def _cancel(self) -> None:
        with self._changing:
            waiting, self._futures = list(self._futures.values()), {}
        for future in waiting:
            future.cancel()
