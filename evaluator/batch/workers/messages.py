"""Messages between a batch and its workers: JSON after a length of four bytes, on dedicated pipes.

Both ends are trusted. The protocol guards against a crash in the middle of a message, not against malice: an incomplete
message raises `EOFError`. Printed output goes elsewhere.
"""

import os
import struct
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from evaluator.devices.gpu import Gpu, choose
from evaluator.grade_options import GradeOptions
from evaluator.grading.request import Begun, GradeRequest, Unread
from evaluator.grading.resources import threads
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.records import DeviceKind, Problem, Record, Scorecard
from evaluator.submission.read import Submission

_LENGTH = struct.Struct(">I")


class Part(StrEnum):
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


class Order(Record, frozen=True):
    """Request to a worker for one grade, of `submission` or of an unreadable submission.

    The GPU in `options` is a UUID. `facts` describe a GPU of another machine: a build here serves any GPU of the same
    kind. `begun` is another worker's build result, for the worker that finishes the grade.
    """

    problem: Problem
    submission: Submission | None
    unread: Unread | None
    options: GradeOptions
    part: Part = Part.ALL
    begun: Begun | None = None
    facts: GpuModel | None = None

    @property
    def streak(self) -> str:
        """Key of grades that one process may make in a row: same problem, options and part."""
        return f"{self.problem.name} {self.problem.sha256} {self.options} {self.part}"

    def on_gpu(self, uuid: str) -> "Order":
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


class Stage(Record, frozen=True, tag=True):
    """Worker's reply: the grade enters a stage."""

    name: str
    detail: str


class Built(Record, frozen=True, tag=True):
    """Worker's reply: the submission is built, and a worker with a GPU must finish the grade."""

    begun: Begun


class Graded(Record, frozen=True, tag=True):
    """Worker's reply: the grade is finished."""

    card: Scorecard


class NotGraded(Record, frozen=True, tag=True):
    """Worker's reply: no grade, for a reason outside the submission. `again` tells whether a retry may help."""

    reason: str
    again: bool


Result = Built | Graded | NotGraded
Reply = Stage | Result

_orders = msgspec.json.Decoder(Order)
_replies: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


def send(descriptor: int, message: Order | Reply) -> None:
    """Write one message. Raises OSError if the other end is closed."""
    body = msgspec.json.encode(message)
    left = memoryview(_LENGTH.pack(len(body)) + body)
    while left:
        left = left[os.write(descriptor, left) :]


def receive_order(descriptor: int) -> Order | None:
    """Wait for the next order; None at the end of the orders."""
    try:
        return _orders.decode(_receive(descriptor))
    except EOFError:
        return None


def receive_reply(descriptor: int) -> Reply:
    """Read the next reply. Raises EOFError if the worker died, even in the middle of a message."""
    return _replies.decode(_receive(descriptor))


def _receive(descriptor: int) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(descriptor, _LENGTH.size))
    return _exactly(descriptor, length)


def _exactly(descriptor: int, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = os.read(descriptor, min(left, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
