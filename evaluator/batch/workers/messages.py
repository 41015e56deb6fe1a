"""What a batch and its workers say to each other, on pipes of their own: JSON behind its length in four bytes.

Both ends are trusted, so what is guarded against is a death in the middle of a message, not malice: a message that is
not whole is an `EOFError`. Nothing that either side prints comes near these pipes.
"""

import os
import struct
from enum import StrEnum

import msgspec

from evaluator.devices.gpu import Gpu, choose
from evaluator.grade_options import GradeOptions
from evaluator.grading.request import Begun, GradeRequest, Unread
from evaluator.grading.resources import threads
from evaluator.judge.setup.terms import Terms
from evaluator.records import DeviceKind, Problem, Record, Scorecard
from evaluator.submission.read import Submission

_LENGTH = struct.Struct(">I")


class Part(StrEnum):
    """How much of a grade is wanted: all of it, or what needs no GPU, or the rest."""

    ALL = "all"
    BEGIN = "begin"
    FINISH = "finish"


class GpuModel(Record, frozen=True):
    """What a GPU of another machine is like."""

    number: int
    uuid: str
    name: str
    capability: tuple[int, int]
    memory_bytes: int
    driver: str

    def gpu(self) -> Gpu:
        """Describe it as one of this machine, which has no device files of it."""
        return Gpu(self.number, self.uuid, self.name, self.capability, self.memory_bytes, self.driver, nodes=())


class Order(Record, frozen=True):
    """One grade for a worker to make: of `submission`, or of one that could not be made out.

    The GPU of `options` is a UUID. `facts` describe a GPU that this machine may not have: what is begun here is
    finished on one like it. `begun` is what another worker has made of it, where this one is to finish it.
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
        """Say what one process may grade in a row: submissions of one problem, with the same options."""
        return f"{self.problem.name} {self.problem.sha256} {self.options} {self.part}"

    def request(self) -> GradeRequest:
        """Put together what the pipeline is asked. Raises InfraError where the GPU is gone."""
        submission = self.submission or self.unread
        assert submission is not None  # noqa: S101 - for the type checker: an order has one of them
        return GradeRequest(submission, Terms(self.problem, self.options, self._gpu(), threads()))

    def _gpu(self) -> Gpu | None:
        if self.options.device is not DeviceKind.CUDA:
            return None
        return choose(self.options.gpu) if self.facts is None else self.facts.gpu()


class Stage(Record, frozen=True, tag=True):
    """A worker: the grade is in this stage now."""

    name: str
    detail: str


class Built(Record, frozen=True, tag=True):
    """A worker: the grade is begun; a worker with a GPU is to finish it."""

    begun: Begun


class Graded(Record, frozen=True, tag=True):
    """A worker: the grade is made."""

    card: Scorecard


class NotGraded(Record, frozen=True, tag=True):
    """A worker: no grade could be made, for a reason that is not the submission's; whether trying again may help."""

    reason: str
    again: bool


Result = Built | Graded | NotGraded
Reply = Stage | Result

_orders = msgspec.json.Decoder(Order)
_replies: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


def send(descriptor: int, message: Order | Reply) -> None:
    """Write one message. Raises OSError where the other end is gone."""
    body = msgspec.json.encode(message)
    left = memoryview(_LENGTH.pack(len(body)) + body)
    while left:
        left = left[os.write(descriptor, left) :]


def receive_order(descriptor: int) -> Order | None:
    """Wait for the next order; None where there will be no more."""
    try:
        return _orders.decode(_receive(descriptor))
    except EOFError:
        return None


def receive_reply(descriptor: int) -> Reply:
    """Read the next reply. Raises EOFError where the worker is gone, also in the middle of it."""
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
