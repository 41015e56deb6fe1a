"""A grader behind the HTTP service, with the interface of `Grader`.

with RemoteGrader("http://judge:8000", token) as grader:
    card = grader.grade("relu", source)
    cards = grader.grade_many([Candidate("relu", each) for each in sources])
"""

import atexit
import threading
import time
import uuid
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from evaluator.api.any_grader import AnyGrader, OnProgress, cards_of
from evaluator.api.candidate import Candidate, submission_of
from evaluator.api.scorecard import Scorecard
from evaluator.batch.runs.problems import ProblemText
from evaluator.errors import UsageError
from evaluator.grading.request import Unread
from evaluator.service.client.event_reader import EventReader
from evaluator.service.client.transport import Transport
from evaluator.service.documents.messages import Grade, GradeOrder, GradeState, TextProblem

_THREADS = 8
"""Requests at a time; also the number of bodies that the server reads from a client at a time."""
_CANCEL_S = 5.0


class _PendingRequest(NamedTuple):
    key: str
    order: bytes
    future: Future[Scorecard]


class _Pools(NamedTuple):
    """Threads for requests. Cards never wait behind submissions, which wait themselves while the queue is full."""

    hand_in: ThreadPoolExecutor
    fetch: ThreadPoolExecutor


class RemoteGrader(AnyGrader):
    """Grader of submissions on another machine, by `warpgrade serve --http`.

    The service decides about device and options. Every submission has an idempotency key: after a lost connection the
    client sends the submission again, and the service grades it once. Needs the extra `warpgrade[http]`.
    """

    def __init__(self, url: str, token: str, *, patience_s: float = 300.0, at_once: int = 64) -> None:
        """Store the address of the service and the token of the client.

        Args:
            url: address of the service, `http://HOST:PORT`.
            token: a token of `warpgrade token`.
            patience_s: time to wait for an unreachable service, before grades raise InfraError.
            at_once: number of submissions that `grade_stream` hands in ahead.

        Raises:
            UsageError: the extra is not installed, or the address is invalid.
        """
        self._transport = Transport(url, token, patience_s)
        self._at_once = at_once
        self._waiting: dict[str, _PendingRequest] = {}
        self._ids: dict[str, str] = {}
        self._changing = threading.Lock()
        self._pools: _Pools | None = None
        self._lost: Exception | None = None
        self._reader: EventReader | None = None

    def start(self) -> Self:
        """Connect to the service, and return the grader.

        Raises:
            UsageError: the service refuses the token.
            InfraError: the service is not reachable within `patience_s`.
            RuntimeError: the grader has started already.
        """
        with self._changing:
            if self._pools is not None or self._transport.is_closed:
                raise RuntimeError("this RemoteGrader has started already")
            self._pools = _Pools(ThreadPoolExecutor(_THREADS, "hand-in"), ThreadPoolExecutor(_THREADS, "fetch"))
        self._reader = EventReader(self._transport, self._on_grade, self._on_lost)
        try:
            self._reader.start()
        except BaseException:
            self.close()
            raise
        atexit.register(self.close)
        return self

    def close(self) -> None:
        """Cancel unfinished grades, here and in the queue of the service. A second call has no effect."""
        with self._changing:
            pools, self._pools = self._pools, None
            reader, self._reader = self._reader, None
            unfinished, self._waiting = list(self._waiting.values()), {}
            ids, self._ids = self._ids, {}
        if pools is None:
            return
        atexit.unregister(self.close)
        if reader is not None:
            reader.close()
        for waiting in unfinished:
            waiting.future.cancel()
        self._transport.end_repetitions()
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        self._cancel_there([ids[waiting.key] for waiting in unfinished if waiting.key in ids])
        pools.hand_in.shutdown(wait=True)  # The thread of a submission on its way cancels the grade.
        self._transport.close()
        pools.fetch.shutdown(wait=True)

    @property
    def at_once(self) -> int:
        """Number of submissions to hand in ahead."""
        return self._at_once

    def submit(
        self, problem: str | ProblemText, source: str | Path | None, *, name: str = "candidate"
    ) -> Future[Scorecard]:
        """Submit Python text, or a model's answer with code. The future returns the scorecard.

        The future raises UsageError if the service refuses the submission, for example for an unknown problem, and
        InfraError if the service stays unreachable.

        Raises:
            TypeError: the source is neither text nor path.
            UsageError: a name is empty or too long.
            RuntimeError: the grader has not started, or is closed.
        """
        key = str(uuid.uuid4())
        waiting = _PendingRequest(key, _encoded(Candidate(problem, source, name)), Future())
        with self._changing:
            if self._pools is None:
                raise RuntimeError("a RemoteGrader grades between start() and close(), or in the block of `with`")
            failure = self._lost
            if failure is None:
                self._waiting[key] = waiting
                self._pools.hand_in.submit(self._hand_in, waiting)
        if failure is not None:
            waiting.future.set_exception(failure)
        else:
            waiting.future.add_done_callback(lambda future: self._on_done(key, future))
        return waiting.future

    def grade_many(self, candidates: Iterable[Candidate], *, on_progress: OnProgress | None = None) -> list[Scorecard]:
        """Grade candidates concurrently. Return the cards in the order of the candidates. Raises like `grade`.

        `on_progress` is called with a `Progress` after each grade, as by `Grader.grade_many`.
        """
        candidates = list(candidates)
        futures = [self.submit_candidate(candidate) for candidate in candidates]
        return cards_of(candidates, futures, on_progress)

    def _hand_in(self, waiting: _PendingRequest) -> None:
        if waiting.future.cancelled():
            return
        try:
            headers = {"Idempotency-Key": waiting.key}
            content = self._transport.request("POST", "/v1/grades", content=waiting.order, headers=headers)
            grade = msgspec.json.decode(content, type=Grade)
        except Exception as error:  # noqa: BLE001 - a caller waits for the future
            self._fail(waiting.key, error)
            return
        with self._changing:
            is_wanted, is_closed = waiting.key in self._waiting, self._pools is None
            if is_wanted:
                self._ids[waiting.key] = grade.id
        if not is_wanted and (is_closed or waiting.future.cancelled()):
            self._cancel_there([grade.id])

    def _on_grade(self, grade: Grade) -> None:
        """Fetch the result of a final grade, unless the grade belongs to another program."""
        with self._changing:
            if grade.key in self._waiting and self._pools is not None:
                self._pools.fetch.submit(self._fetch, grade.key, grade)

    def _on_done(self, key: str, future: Future[Scorecard]) -> None:
        """Cancel the grade in the queue of the service too, after a cancelled future."""
        if not future.cancelled():
            return
        with self._changing:
            self._waiting.pop(key, None)
            grade = self._ids.pop(key, None)
            if grade is not None and self._pools is not None:
                self._pools.fetch.submit(self._cancel_there, [grade])

    def _fetch(self, key: str, grade: Grade) -> None:
        try:
            if grade.state is GradeState.FAILED:
                self._fail(key, UsageError(grade.reason or "the service could not grade the submission"))
                return
            if grade.state is GradeState.CANCELLED:
                cancelled = self._forget(key)
                if cancelled is not None:
                    cancelled.future.cancel()
                return
            card = msgspec.json.decode(self._transport.request("GET", f"/v1/grades/{grade.id}/card"), type=Scorecard)
        except Exception as error:  # noqa: BLE001 - a caller waits for the future
            self._fail(key, error)
            return
        waiting = self._forget(key)
        if waiting is not None and waiting.future.set_running_or_notify_cancel():
            waiting.future.set_result(card)

    def _on_lost(self, error: Exception) -> None:
        """Fail all waiting grades: the service is unreachable, or refuses the token."""
        with self._changing:
            self._lost = error
            keys = list(self._waiting)
        for key in keys:
            self._fail(key, error)

    def _fail(self, key: str, error: Exception) -> None:
        waiting = self._forget(key)
        if waiting is not None and waiting.future.set_running_or_notify_cancel():
            waiting.future.set_exception(error)

    def _forget(self, key: str) -> _PendingRequest | None:
        with self._changing:
            self._ids.pop(key, None)
            return self._waiting.pop(key, None)

    def _cancel_there(self, ids: list[str]) -> None:
        """Cancel grades in the queue of the service, as far as the service answers soon."""
        until_s = time.monotonic() + _CANCEL_S
        for grade in ids:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not self._transport.try_once("DELETE", f"/v1/grades/{grade}", left_s):
                return


def _encoded(candidate: Candidate) -> bytes:
    problem, source = candidate.problem, candidate.source
    if not isinstance(problem, str | ProblemText):
        raise TypeError(f"a problem is a name or a ProblemText, not {type(problem).__name__}")
    if isinstance(source, Path):
        read = submission_of(candidate)
        if isinstance(read, Unread):
            raise UsageError(f"not a valid submission: {source}: {read.finding.message}")
        source = read.source
    if not isinstance(source, str | None):
        raise TypeError(f"a submission is text, not {type(source).__name__}: pass the content of the model's answer")
    problem_field = (
        TextProblem(name=problem.name, source=problem.source) if isinstance(problem, ProblemText) else problem
    )
    try:
        encoded = msgspec.json.encode(GradeOrder(problem=problem_field, source=source, name=candidate.name))
        msgspec.json.decode(encoded, type=GradeOrder)  # A record checks its fields only when decoded.
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise UsageError(f"not a valid submission: {error}") from None
    return encoded
