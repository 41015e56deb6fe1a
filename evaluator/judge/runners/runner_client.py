"""Client of one runner process: requests, answers, and the meaning of failures."""

import contextlib
import os
import socket
import time
from collections.abc import Callable
from typing import Self

from evaluator.deadline import Deadline, TimeUse
from evaluator.errors import JudgeFailed
from evaluator.findings import Code, finding
from evaluator.judge.runners.build_service import BuildService
from evaluator.judge.runners.language_faults import of_refused_launch
from evaluator.judge.runners.runner_faults import Stage, death, failure, invalid_frame, too_slow, unexpected_frame
from evaluator.protocol.frames import (
    BuildReply,
    BuildRequest,
    Call,
    Channel,
    Closed,
    Construct,
    Constructed,
    DeadlinePassed,
    Done,
    Frame,
    FrameError,
    FromRunner,
    Items,
    Load,
    Loaded,
    Prepare,
    Queued,
    Raised,
    Warm,
    Warmed,
    WindowDone,
)
from evaluator.protocol.frames.bounds import most_bytes_from_runner
from evaluator.protocol.frames.oversize import oversized_answer
from evaluator.records import DeviceKind, Fault, Status
from evaluator.sandbox import Child
from evaluator.sandbox.time_limit import CpuTime, TimeLimit

RUNNER = "evaluator.runner.main:run"
"""Entry point of runner processes, for a fork server."""
_EXIT_WAIT_S = 5.0
_FAREWELL_S = 1.0
"""Time for a runner to flush the output. The exit would take a tenth of a second more, for the GPU context."""
_STOP_S = 5.0
_STOP_AGAIN_S = 0.001
_MAX_BUILD_REQUESTS = 64


class RunnerClient:
    """One runner, from start to death. A context manager: the exit kills all processes of the runner."""

    def __init__(self, child: Child, build_service: BuildService | None) -> None:
        """Connect to `child`. Without a `build_service` (the reference's own runner), build requests are refused."""
        self.child = child
        self._channel = Channel(child.socket, receives=FromRunner, most_bytes=most_bytes_from_runner)
        self._build_service = build_service
        self._source, self._device = "", DeviceKind.CPU
        self._stopped = False
        self._build_requests = 0
        self._owes = 0
        self._deadline: Callable[[], Deadline] = Deadline
        self._code: TimeUse | None = None
        self._builds: TimeUse | None = None
        self._cpu_time: Callable[[], CpuTime] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self._channel.close()

    def leave(self) -> bool:
        """Let the runner flush its output and exit, without waiting. Return whether it will.

        A runner with an unanswered request stays. The socket of a dead runner is closed.
        """
        with contextlib.suppress(JudgeFailed, OSError):  # The processes may be gone already.
            if not self._owes and self.child.poll_exit() is None:
                self.child.socket.shutdown(socket.SHUT_WR)
                self.let_go()
                return True
        return False

    def farewell(self) -> None:
        """Let the runner flush the output, and wait. A runner with an unanswered request stays."""
        if self.leave():
            with contextlib.suppress(OSError, ValueError):  # Another thread may close the socket.
                self._channel.readable(_FAREWELL_S)  # The runner ends the connection.

    def warm(self, device: DeviceKind) -> None:
        """Start the runner's device initialization; `warmed` waits for the end."""
        self._channel.send(Warm(device=device.value))

    def warmed(self, timeout_s: float) -> None:
        """Wait for the device initialization. Raises JudgeFailed on failure, since no submission code is loaded yet."""
        try:
            answer = self._channel.receive(timeout_s)
        except (Closed, DeadlinePassed, FrameError) as error:
            raise JudgeFailed(f"an empty runner did not start: {type(error).__name__}: {error}") from None
        if not isinstance(answer, Warmed):
            reason = answer.message if isinstance(answer, Raised) else type(answer).__name__
            raise JudgeFailed(f"an empty runner did not start: {reason}")

    def serve_from(self, build_service: BuildService | None) -> None:
        """Answer build requests from `build_service`."""
        self._build_service = build_service

    def under(self, deadline: Callable[[], Deadline], *, is_submission: bool, in_cpu_time: bool) -> None:
        """Limit all waits by the grade's deadline; with `is_submission`, charge the waiting time to the submission.

        With `in_cpu_time`, the time limits of the runner count its CPU time: see `TimeLimit`.
        """
        self._deadline = deadline
        self._cpu_time = self.child.cpu_time if in_cpu_time else None
        self._code, self._builds = (TimeUse.CODE, TimeUse.BUILDS) if is_submission else (None, None)

    def load(
        self,
        frame: Load,
        descriptors: tuple[int, ...],
        *,
        timeout_s: float,
        meanwhile: Callable[[], object] | None = None,
    ) -> Fault | None:
        """Load the submission. Build time does not count against `timeout_s`, nor does a call of `meanwhile`."""
        self._source, self._device = frame.submission, DeviceKind(frame.device)
        fault = self.send(frame, Stage.IMPORT, timeout_s, descriptors)
        if fault is None and meanwhile is not None:
            meanwhile()
        return self._loaded(fault or self.answer(Stage.IMPORT, timeout_s))

    def construct(self, frame: Construct, *, timeout_s: float) -> Constructed | Fault:
        """Construct ModelNew and copy the weights."""
        return self._constructed(self.ask(frame, Stage.CONSTRUCT, timeout_s))

    def begin(
        self, load: Load, construct: Construct, descriptors: tuple[int, ...], *, timeout_s: float
    ) -> Fault | None:
        """Send the requests of `load` and `construct` without waiting; `begun` waits for both answers."""
        self._source, self._device = load.submission, DeviceKind(load.device)
        return self.send(load, Stage.IMPORT, timeout_s, descriptors) or self.send(construct, Stage.CONSTRUCT, timeout_s)

    def begun(self, timeout_s: float) -> Constructed | Fault:
        """Wait for the answers to `begin`."""
        fault = self._loaded(self.answer(Stage.IMPORT, timeout_s))
        return fault or self._constructed(self.answer(Stage.CONSTRUCT, timeout_s))

    def _loaded(self, answer: Frame | Fault) -> Fault | None:
        if isinstance(answer, Fault | Loaded):
            return answer if isinstance(answer, Fault) else None
        return unexpected_frame(answer)

    def _constructed(self, answer: Frame | Fault) -> Constructed | Fault:
        return answer if isinstance(answer, Constructed | Fault) else unexpected_frame(answer)

    def prepare(self, frame: Prepare, *, timeout_s: float) -> Done | Fault:
        """Prepare the runner for a call, outside the timed interval."""
        answer = self.ask(frame, Stage.CALL, timeout_s)
        if isinstance(answer, Done) and answers(answer, frame):
            return answer
        return answer if isinstance(answer, Fault) else unexpected_frame(answer)

    def window_answer(self, calls: list[Call], timeout_s: float) -> WindowDone | Fault:
        """Wait for the two answers to a window of `calls`."""
        answer = self.answer(Stage.CALL, timeout_s)
        if isinstance(answer, Queued):
            answer = self.answer(Stage.CALL, timeout_s)
        if not isinstance(answer, WindowDone):
            return answer if isinstance(answer, Fault) else unexpected_frame(answer)
        agree = len(answer.calls) == len(calls) and all(map(answers, answer.calls, calls))
        return answer if agree else unexpected_frame(answer)

    def stop(self) -> Fault | None:
        """Stop every process of the runner until the next call. Return a fault after 5 s with a running process."""
        give_up = time.monotonic() + _STOP_S
        while not self._stopped:
            self._stopped = self.child.freeze()
            if not self._stopped:
                if time.monotonic() >= give_up:
                    message = f"a process or thread of the submission did not stop within {_STOP_S:g} s"
                    return Fault(Status.RUNTIME_ERROR, finding(Code.NOT_STOPPED, message))
                # A parent in vfork cannot stop before its child continues, and the child is stopped: thaw both.
                self.child.thaw()
                time.sleep(_STOP_AGAIN_S)
        return None

    def let_go(self) -> None:
        """Resume the runner's processes."""
        if self._stopped:
            self.child.thaw()
            self._stopped = False

    def ask(self, frame: Frame, stage: Stage, timeout_s: float, descriptors: tuple[int, ...] = ()) -> Frame | Fault:
        """Send a frame and wait for the answer."""
        fault = self.send(frame, stage, timeout_s, descriptors)
        return fault if fault is not None else self.answer(stage, timeout_s)

    def send(self, frame: Frame, stage: Stage, timeout_s: float, descriptors: tuple[int, ...] = ()) -> Fault | None:
        """Send a frame without waiting for the answer."""
        self._owes += 1
        deadline, limit = self._deadline(), TimeLimit(timeout_s, self._cpu_time)
        try:
            with deadline.used_by(self._code):
                self._channel.send(frame, descriptors, deadline.within(limit.left_s))
        except DeadlinePassed:
            deadline.check()
            return too_slow(stage, limit)
        except Closed:
            deadline.check()  # At the deadline, all processes are killed.
            return self._death(stage)
        return None

    def within(self, timeout_s: float) -> float:
        """Return `timeout_s`, or the time to the grade's deadline if shorter."""
        return self._deadline().within(timeout_s)

    def answered(self, within_s: float) -> bool:
        """Return whether part of an answer arrives within `within_s`."""
        return self._channel.readable(within_s)

    def answer(self, stage: Stage, timeout_s: float) -> Frame | Fault:
        """Wait for an answer and serve build requests meanwhile; a failure is returned as a fault."""
        deadline, limit = self._deadline(), TimeLimit(timeout_s, self._cpu_time)
        try:
            while True:
                answer = self._received(limit, deadline)
                if isinstance(answer, Done | WindowDone) and (beyond := _oversized(answer)) is not None:
                    return invalid_frame(beyond)
                if not isinstance(answer, BuildRequest):
                    self._owes -= not isinstance(answer, Queued)
                    if isinstance(answer, Raised):
                        return failure(answer, stage, self._build_service, self._device, self._source)
                    return answer
                self._build_requests += 1
                if self._build_requests > _MAX_BUILD_REQUESTS:
                    message = f"the submission asked for more than {_MAX_BUILD_REQUESTS} builds"
                    return Fault(Status.REJECTED, finding(Code.TOO_MANY_BUILDS, message))
                with deadline.used_by(self._builds):
                    limit.spend(self._serve(answer, limit.left_s))
        except DeadlinePassed:
            deadline.check()
            return too_slow(stage, limit)
        except Closed:
            deadline.check()
            return self._death(stage)
        except FrameError as error:
            return invalid_frame(str(error))

    def _received(self, limit: TimeLimit, deadline: Deadline) -> Frame:
        """Wait for a frame. Raises DeadlinePassed at the limit, and after the grade's deadline."""
        while True:
            asked, wait_s = time.monotonic(), deadline.within(limit.wait_s)
            try:
                with deadline.used_by(self._code):
                    frame = self._channel.receive(wait_s)
            except DeadlinePassed:
                limit.spend(wait_s)
                if deadline.left_s <= 0 or limit.reached():
                    raise
            else:
                limit.spend(time.monotonic() - asked)
                return frame

    def _serve(self, request: BuildRequest, timeout_s: float) -> float:
        """Answer a build request. Return the time to send the reply: the runner reads the reply on its own time."""
        if self._build_service is None:
            reply, descriptor = BuildReply(ok=False, log="the reference builds nothing"), None
        else:
            reply, descriptor = self._build_service.serve(request)
        sending = time.monotonic()
        try:
            self._channel.send(reply, () if descriptor is None else (descriptor,), timeout_s)
        finally:
            if descriptor is not None:
                os.close(descriptor)
        return time.monotonic() - sending

    def with_refused_launch(self, fault: Fault, refused: str) -> Fault:
        """Return the fault of a wrong output, explained by the runner's description of a `refused` launch."""
        texts = {} if self._build_service is None else self._build_service.texts
        return fault._replace(finding=of_refused_launch(fault.finding, refused, texts, self._source))

    def _death(self, stage: Stage) -> Fault:
        return death(self.child.wait_exit(_EXIT_WAIT_S), stage, self._device, self._source, self._build_service)


def answers(done: Done, frame: Prepare | Call) -> bool:
    """Return whether `done` answers `frame`. The token proves that `done` was sent after `frame` was read."""
    return done.index == frame.index and done.token == frame.token


def _oversized(answer: Done | WindowDone) -> str | None:
    """Return the violated limit of an answer; a window has the limit of one call for all its calls together."""
    return oversized_answer(
        answer.outputs
        if isinstance(answer, Done)
        else Items(is_tuple=False, items=[done.outputs for done in answer.calls])
    )
