"""Messages between a batch and its workers: JSON after a length of four bytes, on dedicated pipes.

Both ends are trusted. The protocol guards against a crash in the middle of a message, not against malice: an incomplete
message raises `EOFError`. Printed output goes elsewhere. The length is checked before anything is read, so no message
takes more memory than the reader allows.
"""

import os
import select
import struct
import time
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec.structs import replace

from evaluator.devices.gpu import Gpu, choose
from evaluator.findings import Code
from evaluator.grade_options import GradeOptions
from evaluator.grading.request import Begun, GradeRequest, Unread, threads
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.records import DeviceKind, Problem, Record, Scorecard, Status
from evaluator.submission.read import Submission

_MOST_BYTES = 256 << 20
"""Limit of a message between processes of one grader."""
_LENGTH = struct.Struct(">I")
_PART_BYTES = 1 << 20


class GradePart(StrEnum):
    """Part of a grade: all stages, the stages without a GPU, or the remaining stages."""

    ALL = "all"
    BEGIN = "begin"
    FINISH = "finish"


class GpuModel(Record, frozen=True):
    """Description of a GPU in another machine."""

    number: int
    uuid: str
    name: str
    capability: tuple[int, int]
    memory_bytes: int
    driver: str

    def gpu(self) -> Gpu:
        """Return the GPU without device files: this machine has none for the GPU."""
        return Gpu(self.number, self.uuid, self.name, self.capability, self.memory_bytes, self.driver, nodes=())


class PrepareWorker(Record, frozen=True, tag=True):
    """Request to a worker to import PyTorch, and to start the fork server for these options, before an order."""

    options: GradeOptions


class WorkerOrder(Record, frozen=True, tag=True):
    """Request to a worker for one grade, of `submission` or of an unreadable submission.

    The GPU in `options` is a UUID. `facts` describe a GPU of another machine: a build here serves any GPU of the same
    kind. `begun` is another worker's build result, for the worker that finishes the grade.
    """

    problem: Problem
    submission: Submission | None
    unread: Unread | None
    options: GradeOptions
    part: GradePart = GradePart.ALL
    begun: Begun | None = None
    facts: GpuModel | None = None

    @property
    def streak(self) -> str:
        """Key of grades that one judge may make in a row: same options and part, and the same problem without a GPU.

        The code of a problem that came as a text runs in a judge of its own: another client wrote the code.
        """
        key = f"{self.options} {self.part}"
        uses_gpu = self.options.device is DeviceKind.CUDA and self.part is not GradePart.BEGIN
        if uses_gpu and Path(self.problem.path).exists():
            return key
        return f"{self.problem.name} {self.problem.sha256} {key}"

    def on_gpu(self, uuid: str) -> "WorkerOrder":
        """Return the order for a worker that has this GPU on its own machine."""
        return replace(self, options=self.options.for_worker(uuid), facts=None)

    def request(self) -> GradeRequest:
        """Return the request to the pipeline. Raises InfraError if the GPU is gone."""
        submission = self.submission or self.unread
        assert submission is not None  # noqa: S101 - for the type checker: an order has one of them
        return GradeRequest(submission, GradeTerms(self.problem, self.options, self._gpu(), threads()))

    def _gpu(self) -> Gpu | None:
        if self.options.device is not DeviceKind.CUDA:
            return None
        return choose(self.options.gpu) if self.facts is None else self.facts.gpu()


class Prepared(Record, frozen=True, tag=True):
    """Worker's reply to `PrepareWorker`: the worker can grade at once."""


class StageEntered(Record, frozen=True, tag=True):
    """Worker's reply: the grade enters a stage."""

    name: str
    detail: str


class Built(Record, frozen=True, tag=True):
    """Worker's reply: the submission is built, and a worker with a GPU must finish the grade."""

    begun: Begun


class GradeFinished(Record, frozen=True, tag=True):
    """Worker's reply: the grade is finished."""

    card: Scorecard


class NotGraded(Record, frozen=True, tag=True):
    """Worker's reply: no grade, for a reason outside the submission. `again` tells whether a retry may help.

    `hint` is the remedy; empty if unknown.
    """

    reason: str
    again: bool
    hint: str = ""


Request = PrepareWorker | WorkerOrder
Result = Built | GradeFinished | NotGraded
Reply = StageEntered | Result

_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_replies: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)
_prepared = msgspec.json.Decoder(Prepared)


def send(descriptor: int, message: Request | Prepared | Reply) -> None:
    """Write one message. Raises OSError if the other end is closed."""
    body = msgspec.json.encode(message)
    unsent = memoryview(_LENGTH.pack(len(body)) + body)
    while unsent:
        unsent = unsent[os.write(descriptor, unsent) :]


def receive_request(descriptor: int) -> Request | None:
    """Wait for the next request; None at the end of the requests."""
    try:
        return _requests.decode(_read_message(descriptor))
    except EOFError:
        return None


def receive_reply(descriptor: int, within_s: float) -> Reply:
    """Wait for the next reply to an order.

    Raises:
        EOFError: the worker died, even in the middle of a message.
        TimeoutError: the reply is not complete after `within_s`.
    """
    return _replies.decode(_read_message(descriptor, within_s=within_s))


def receive_prepared(descriptor: int, within_s: float) -> None:
    """Wait for the reply to `PrepareWorker`. Raises EOFError if the worker died, TimeoutError after `within_s`."""
    _prepared.decode(_read_message(descriptor, within_s=within_s))


def _read_message(descriptor: int, within_s: float | None = None) -> bytes:
    """Read one message; wait at most `within_s` for all of it.

    Raises:
        EOFError: the writer is gone, even in the middle of a message.
        ValueError: the message is longer than `_MOST_BYTES`.
        TimeoutError: the message is not complete in time.
    """
    until_s = None if within_s is None else time.monotonic() + within_s
    (length,) = _LENGTH.unpack(_read_exactly(descriptor, _LENGTH.size, until_s))
    if length > _MOST_BYTES:
        raise ValueError(f"a message of {length} bytes, where {_MOST_BYTES} are allowed")
    return _read_exactly(descriptor, length, until_s)


def _read_exactly(descriptor: int, size: int, until_s: float | None) -> bytes:
    parts, missing_bytes = [], size
    while missing_bytes:
        if until_s is not None:
            _await(descriptor, until_s)
        part = os.read(descriptor, min(missing_bytes, _PART_BYTES))
        if not part:
            raise EOFError
        parts.append(part)
        missing_bytes -= len(part)
    return b"".join(parts)


def _await(descriptor: int, until_s: float) -> None:
    poll = select.poll()  # `select` refuses descriptors above 1023
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(max(0.0, until_s - time.monotonic()) * 1000):
        raise TimeoutError


def worth_another(result: Result) -> bool:
    """Return whether the machine failed: a new worker should try again."""
    match result:
        case Built():
            return False
        case GradeFinished(card=card):
            # No retry after a deadline: a grade must not take three times its limit.
            late = card.reason is not None and card.reason.code == Code.DEADLINE
            return card.status is Status.INFRA_ERROR and not late
        case NotGraded(again=again):
            return again


def may_be_the_machines(result: Result) -> bool:
    """Whether a process of the submission was killed: by itself, by the kernel for lack of memory, or from outside.

    The three cases look the same afterwards. A retry shows whether the submission was the cause.
    """
    reason = result.card.reason if isinstance(result, GradeFinished) else None
    if reason is None:
        return False
    return reason.details.get("signal") == "SIGKILL" or reason.details.get("killed") is True
