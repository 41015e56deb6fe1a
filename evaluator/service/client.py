"""Client of the HTTP service: `RemoteGrader`, with the interface of `Grader`.

with RemoteGrader("http://judge:8000", token) as grader:
    card = grader.grade("relu", source)
    cards = grader.grade_many([Candidate("relu", each) for each in sources])

Requests are repeated while the service is unreachable or busy, never after a refusal.
"""

import atexit
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Self

import msgspec

from evaluator.api.any_grader import AnyGrader, OnProgress, cards_of
from evaluator.api.candidate import Candidate, submission_of
from evaluator.api.scorecard import Scorecard
from evaluator.batch.runs.problems import ProblemText
from evaluator.errors import InfraError, UsageError
from evaluator.grading.request import Unread
from evaluator.service.messages import (
    MOST_BODY_BYTES,
    MOST_NAMED,
    Grade,
    GradeOrder,
    GradePage,
    GradeState,
    Refusal,
    TextProblem,
)

if TYPE_CHECKING:
    import httpx


_BUSY = frozenset({408, 429, 500, 502, 503, 504})
"""HTTP statuses after which the same request may succeed later."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_TIMEOUT_S = 20.0
_WAITS = 429


class Transport:
    """Connections to the service. Thread-safe."""

    def __init__(self, url: str, token: str, patience_s: float) -> None:
        """Store address and token. Raises UsageError if httpx is not installed, or the address or token is invalid."""
        self._httpx = _imported()
        if not token.isascii() or not token.isprintable() or not token.strip():
            raise UsageError("the token is empty or not printable", hint="use the output of `warpgrade token CLIENT`")
        try:
            parsed = self._httpx.URL(url)
        except self._httpx.InvalidURL as error:
            raise UsageError(f"{url!r} is not an address: {error}", hint="http://HOST:PORT") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise UsageError(f"{url!r} is not an address", hint="http://HOST:PORT")
        self._patience_s = patience_s
        self._ended = threading.Event()
        # The client's environment must not send the token through a proxy of its own choice.
        self._client: httpx.Client = self._httpx.Client(
            base_url=parsed,
            headers={"Authorization": f"Bearer {token}"},
            timeout=_TIMEOUT_S,
            follow_redirects=False,
            limits=self._httpx.Limits(),
            trust_env=parsed.scheme == "https",
        )

    @property
    def is_closed(self) -> bool:
        """Whether `close` or `end_repetitions` was called."""
        return self._ended.is_set()

    def end_repetitions(self) -> None:
        """End all waiting between repeated requests. Requests on their way are finished."""
        self._ended.set()

    def close(self) -> None:
        """End all connections, and all waiting between repeated requests."""
        self.end_repetitions()
        self._client.close()

    def request(
        self, method: str, path: str, *, content: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Send a request until the service accepts or refuses it; return the body of the response.

        A full queue is no refusal: the request is repeated without end.

        Raises:
            UsageError: the service refuses the request.
            InfraError: the service was unreachable or busy for `patience_s`.
        """
        if len(content) > MOST_BODY_BYTES:
            raise UsageError(f"the submission is larger than {MOST_BODY_BYTES >> 20} MiB, the limit of the service")
        until_s, pause_s = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        while True:
            try:
                response = self._client.request(method, path, content=content, headers=headers)
            except (self._httpx.TransportError, RuntimeError) as error:  # RuntimeError: the client is closed
                cause = str(error) or type(error).__name__
            else:
                if response.status_code not in _BUSY:
                    return _accepted(response)
                cause = _refusal(response).error
                if response.status_code == _WAITS:
                    until_s = time.monotonic() + self._patience_s
            if time.monotonic() + pause_s > until_s:
                message = f"the service did not answer for {self._patience_s:g} s: {cause}"
                raise InfraError(message, hint="check the address, and that the service runs")
            if self._ended.wait(pause_s):
                raise InfraError("the grader was closed")
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def try_once(self, method: str, path: str, timeout_s: float) -> bool:
        """Send a request once; return whether the service replied."""
        try:
            self._client.request(method, path, timeout=timeout_s)
        except (self._httpx.TransportError, RuntimeError):
            return False
        return True


def _accepted(response: "httpx.Response") -> bytes:
    """Return the body of a response. Raises UsageError for a refusal."""
    if response.is_success:
        return response.content
    refusal = _refusal(response)
    message = f"the service refuses the request ({response.status_code}): {refusal.error}"
    raise UsageError(message, hint=refusal.hint)


def _refusal(response: "httpx.Response") -> Refusal:
    """Return the reason in a response; a proxy's response has none."""
    try:
        return msgspec.json.decode(response.content, type=Refusal)
    except msgspec.DecodeError:
        return Refusal(f"HTTP status {response.status_code}")


def _imported() -> ModuleType:
    try:
        import httpx
    except ImportError:
        raise UsageError("httpx is not installed", hint="pip install 'warpgrade[http]'") from None
    return httpx


_HAND_IN, _WATCH = 8, 2
"""Threads that hand in submissions, as many as the server reads bodies of a client at a time, and that wait for grades.

A submission may wait while the queue is full; no result waits behind a submission.
"""
_WAIT_S = 2.0
"""Time of a request that waits for the end of a grade. Cancelled futures and further grades are noticed afterwards."""
_CANCEL_S = 5.0


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
            at_once: number of submissions at the service, at most 100; further submissions wait here.

        Raises:
            UsageError: the extra is not installed, or the address is invalid.
        """
        self._transport = Transport(url, token, patience_s)
        self._at_once = min(at_once, MOST_NAMED)
        self._changed = threading.Condition()
        self._unfinished: set[Future[Scorecard]] = set()
        self._at_service = 0
        self._unwatched: dict[str, Future[Scorecard]] = {}
        """Grades at the service without a waiting thread, by id."""
        self._pool: ThreadPoolExecutor | None = None
        self._watchers = [threading.Thread(target=self._watch, name="watch", daemon=True) for _ in range(_WATCH)]
        self._is_over = False
        self._lost: InfraError | None = None

    def start(self) -> Self:
        """Connect to the service, and return the grader.

        Raises:
            UsageError: the service refuses the token.
            InfraError: the service is not reachable within `patience_s`.
            RuntimeError: the grader has started already.
        """
        with self._changed:
            if self._pool is not None or self._transport.is_closed:
                raise RuntimeError("this RemoteGrader has started already")
            self._pool = ThreadPoolExecutor(_HAND_IN, "hand-in")
        for watcher in self._watchers:
            watcher.start()
        try:
            self._transport.request("GET", "/v1/grades?limit=1")
        except BaseException:
            self.close()
            raise
        atexit.register(self.close)
        return self

    def close(self) -> None:
        """Cancel unfinished grades, here and in the queue of the service. A second call has no effect."""
        with self._changed:
            pool, self._pool = self._pool, None
            unfinished = list(self._unfinished)
            self._changed.notify_all()
        if pool is None:
            return
        atexit.unregister(self.close)
        for future in unfinished:
            future.cancel()
        self._transport.end_repetitions()
        pool.shutdown()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        for watcher in self._watchers:  # The watchers cancel the grades at the service.
            watcher.join()
        self._transport.close()

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
        order = _encoded(Candidate(problem, source, name))
        future: Future[Scorecard] = Future()
        with self._changed:
            if self._pool is None:
                raise RuntimeError("a RemoteGrader grades between start() and close(), or in the block of `with`")
            self._unfinished.add(future)
            self._pool.submit(self._hand_in, order, future)
        return future

    def grade_many(self, candidates: Iterable[Candidate], *, on_progress: OnProgress | None = None) -> list[Scorecard]:
        """Grade candidates concurrently. Return the cards in the order of the candidates. Raises like `grade`.

        `on_progress` is called with a `Progress` after each grade, as by `Grader.grade_many`.
        """
        candidates = list(candidates)
        futures = [self.submit_candidate(candidate) for candidate in candidates]
        return cards_of(candidates, futures, on_progress)

    def _hand_in(self, order: bytes, future: Future[Scorecard]) -> None:
        """Submit, as soon as fewer than `at_once` submissions are at the service."""
        with self._changed:
            self._changed.wait_for(lambda: self._at_service < self._at_once or self._pool is None)
            self._at_service += 1
        if self._lost is not None or future.cancelled():
            self._end(future, self._lost)
            return
        try:
            headers = {"Idempotency-Key": str(uuid.uuid4())}
            content = self._transport.request("POST", "/v1/grades", content=order, headers=headers)
            grade = msgspec.json.decode(content, type=Grade)
        except Exception as error:  # noqa: BLE001 - a caller waits for the future
            self._end(future, error)
            return
        with self._changed:
            self._unwatched[grade.id] = future
            self._changed.notify_all()

    def _watch(self) -> None:
        """Wait for the grades without a waiting thread, until all are final after `close`."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unwatched or self._is_over)
                watched, self._unwatched = self._unwatched, {}
            if not watched:
                return
            cancelled = [grade for grade, future in watched.items() if future.cancelled()]
            self._cancel_there(cancelled)
            for grade in cancelled:
                self._end(watched.pop(grade), None)
            try:
                unfinished = self._wait_for(watched) if watched else {}
            except Exception as error:  # noqa: BLE001 - callers wait for the futures
                self._lost = error if isinstance(error, InfraError) else self._lost
                for future in watched.values():
                    self._end(future, error)
            else:
                with self._changed:
                    self._unwatched |= unfinished

    def _wait_for(self, watched: dict[str, Future[Scorecard]]) -> dict[str, Future[Scorecard]]:
        """Wait for the end of any of the grades, end the futures of final grades, and return all further grades."""
        path = f"/v1/grades?ids={','.join(watched)}&wait_s={_WAIT_S:g}"
        page = msgspec.json.decode(self._transport.request("GET", path), type=GradePage)
        for grade in page.grades:
            if grade.state.is_final:
                self._end(watched.pop(grade.id), self._result(grade))
        for lost in watched.keys() - {grade.id for grade in page.grades}:
            self._end(watched.pop(lost), UsageError("the service has lost its state", hint="submit again"))
        return watched

    def _result(self, grade: Grade) -> Scorecard | Exception | None:
        if grade.state is GradeState.CANCELLED:
            return None
        if grade.state is GradeState.FAILED:
            return UsageError(grade.reason or "the service could not grade the submission")
        try:
            content = self._transport.request("GET", f"/v1/grades/{grade.id}/card")
            return msgspec.json.decode(content, type=Scorecard)
        except Exception as error:  # noqa: BLE001 - the caller waits for the future
            return error

    def _end(self, future: Future[Scorecard], result: Scorecard | Exception | None) -> None:
        """Set the result of a future; None cancels the future, if not cancelled already."""
        with self._changed:
            self._at_service -= 1
            self._unfinished.discard(future)
            self._changed.notify_all()
        if result is None:
            future.cancel()
        if not future.set_running_or_notify_cancel():
            return
        if isinstance(result, Scorecard):
            future.set_result(result)
        else:
            future.set_exception(result)

    def _cancel_there(self, grades: list[str]) -> None:
        """Cancel grades in the queue of the service, as far as the service answers soon."""
        until_s = time.monotonic() + _CANCEL_S
        for grade in grades:
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
