"""Client of the HTTP service: `RemoteGrader`, with the interface of `Grader`.

with RemoteGrader("http://judge:8000", token) as grader:
    card = grader.grade("relu", source)
    cards = grader.grade_many([Candidate("relu", each) for each in sources])

Requests are repeated while the service is unreachable or busy, never after a refusal.
"""

import asyncio
import atexit
import contextlib
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
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
_QUEUE_FULL = 429
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_TIMEOUT_S = 20.0


class Transport:
    """Connections to the service, in one event loop."""

    def __init__(self, url: str, token: str, patience_s: float) -> None:
        """Store address and token. Raises UsageError if httpx is not installed, or the address or token is invalid."""
        try:
            import httpx
        except ImportError:
            raise UsageError("httpx is not installed", hint="pip install 'warpgrade[http]'") from None
        if not token.isascii() or not token.isprintable() or not token.strip():
            raise UsageError("the token is empty or not printable", hint="use the output of `warpgrade token CLIENT`")
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise UsageError(f"{url!r} is not an address: {error}", hint="http://HOST:PORT") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise UsageError(f"{url!r} is not an address", hint="http://HOST:PORT")
        self._no_response = httpx.TransportError
        self._patience_s = patience_s
        self._failure: InfraError | None = None
        # The client's environment must not send the token through a proxy of its own choice.
        self._client = httpx.AsyncClient(
            base_url=parsed,
            headers={"Authorization": f"Bearer {token}"},
            timeout=_TIMEOUT_S,
            follow_redirects=False,
            limits=httpx.Limits(),
            trust_env=parsed.scheme == "https",
        )

    async def close(self) -> None:
        """End all connections."""
        await self._client.aclose()

    async def request(
        self, method: str, path: str, *, content: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Send a request until the service accepts or refuses it; return the body of the response.

        A full queue is no refusal: the request is repeated without end.

        Raises:
            UsageError: the service refuses the request.
            InfraError: the service was unreachable or busy for `patience_s`, now or for an earlier request.
        """
        if len(content) > MOST_BODY_BYTES:
            raise UsageError(f"the submission is larger than {MOST_BODY_BYTES >> 20} MiB, the limit of the service")
        until_s, pause_s = time.monotonic() + self._patience_s, _FIRST_PAUSE_S
        while self._failure is None:
            try:
                response = await self._client.request(method, path, content=content, headers=headers)
            except self._no_response as error:
                cause = str(error) or type(error).__name__
            else:
                if response.status_code not in _BUSY:
                    return _accepted(response)
                cause = _refusal(response).error
                if response.status_code == _QUEUE_FULL:
                    until_s = time.monotonic() + self._patience_s
            if time.monotonic() + pause_s > until_s:
                message = f"the service did not answer for {self._patience_s:g} s: {cause}"
                self._failure = InfraError(message, hint="check the address, and that the service runs")
                break
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        raise self._failure


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


_HAND_IN, _WATCH = 8, 2
"""Submissions on their way, as many as the server reads of a client at a time, and requests that wait for grades.

A submission may wait while the queue is full; no result waits behind a submission.
"""
_WAIT_S = 2.0
"""Time of a request that waits for the end of a grade. Further grades are noticed afterwards."""
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
        self._changing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # What follows belongs to the event loop.
        self._room = asyncio.Semaphore(self._at_once)
        self._handing_in = asyncio.Semaphore(_HAND_IN)
        self._grades: set[asyncio.Task[Scorecard]] = set()
        self._unwatched: dict[str, asyncio.Future[Grade]] = {}
        """Grades at the service without a waiting request, by id."""
        self._arrived = asyncio.Event()

    def start(self) -> Self:
        """Connect to the service, and return the grader.

        Raises:
            UsageError: the service refuses the token.
            InfraError: the service is not reachable within `patience_s`.
            RuntimeError: the grader has started already.
        """
        with self._changing:
            if self._thread is not None:
                raise RuntimeError("this RemoteGrader has started already")
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="remote-grader", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        try:
            asyncio.run_coroutine_threadsafe(self._transport.request("GET", "/v1/grades?limit=1"), self._loop).result()
            for _ in range(_WATCH):
                asyncio.run_coroutine_threadsafe(self._watch(), self._loop)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Cancel unfinished grades, here and in the queue of the service. A second call has no effect."""
        with self._changing:
            loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        atexit.unregister(self.close)
        try:
            asyncio.run_coroutine_threadsafe(self._end(), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()

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
        with self._changing:
            if self._loop is None:
                raise RuntimeError("a RemoteGrader grades between start() and close(), or in the block of `with`")
            return asyncio.run_coroutine_threadsafe(self._graded(order), self._loop)

    def grade_many(self, candidates: Iterable[Candidate], *, on_progress: OnProgress | None = None) -> list[Scorecard]:
        """Grade candidates concurrently. Return the cards in the order of the candidates. Raises like `grade`.

        `on_progress` is called with a `Progress` after each grade, as by `Grader.grade_many`.
        """
        candidates = list(candidates)
        futures = [self.submit_candidate(candidate) for candidate in candidates]
        return cards_of(candidates, futures, on_progress)

    async def _graded(self, order: bytes) -> Scorecard:
        """Submit, as soon as fewer than `at_once` submissions are at the service; return the card."""
        task: asyncio.Task[Scorecard] | None = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker: a coroutine runs in a task
        self._grades.add(task)
        task.add_done_callback(self._grades.discard)
        async with self._room:
            submitting = asyncio.ensure_future(self._submitted(order))
            ended: asyncio.Future[Grade] = asyncio.get_running_loop().create_future()
            try:
                grade_id = await asyncio.shield(submitting)
                self._unwatched[grade_id] = ended
                self._arrived.set()
                grade = await ended
            except asyncio.CancelledError:
                await self._cancel_there(submitting)
                raise
            if grade.state is GradeState.CANCELLED:
                raise asyncio.CancelledError
            if grade.state is GradeState.FAILED:
                raise UsageError(grade.reason or "the service could not grade the submission")
            content = await self._transport.request("GET", f"/v1/grades/{grade.id}/card")
            return msgspec.json.decode(content, type=Scorecard)

    async def _submitted(self, order: bytes) -> str:
        """Submit, and return the id of the grade."""
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        async with self._handing_in:
            content = await self._transport.request("POST", "/v1/grades", content=order, headers=headers)
        return msgspec.json.decode(content, type=Grade).id

    async def _cancel_there(self, submitting: "asyncio.Future[str]") -> None:
        """Cancel a grade in the queue of the service, if the service answers soon."""
        # RuntimeError: at the end of the program, no thread resolves the service's name.
        with contextlib.suppress(UsageError, InfraError, RuntimeError, TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                await self._transport.request("DELETE", f"/v1/grades/{await submitting}")

    async def _watch(self) -> None:
        """Wait for the ends of the grades without a waiting request."""
        while await self._arrived.wait():
            self._arrived.clear()
            watched = {grade: ended for grade, ended in self._unwatched.items() if not ended.done()}
            self._unwatched = {}
            if not watched:
                continue
            try:
                content = await self._transport.request("GET", f"/v1/grades?ids={','.join(watched)}&wait_s={_WAIT_S:g}")
                page = msgspec.json.decode(content, type=GradePage)
            except Exception as error:  # noqa: BLE001 - callers wait for the ends
                _set_error(watched.values(), error)
                continue
            for grade in page.grades:
                if grade.state.is_final and not (ended := watched.pop(grade.id)).done():
                    ended.set_result(grade)
            lost = watched.keys() - {grade.id for grade in page.grades}
            _set_error(map(watched.pop, lost), UsageError("the service has lost its state", hint="submit again"))
            self._unwatched |= watched
            self._arrived.set()

    async def _end(self) -> None:
        """Cancel all grades, and end all connections."""
        while grades := list(self._grades):
            for task in grades:
                task.cancel()
            await asyncio.wait(grades)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._transport.close()


def _set_error(futures: Iterable["asyncio.Future[Grade]"], error: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)


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
