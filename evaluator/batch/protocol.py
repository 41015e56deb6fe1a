"""What a batch and its workers say to each other, on pipes of their own: JSON behind its length in four bytes.

Both ends are trusted, so what is guarded against is a death in the middle of a message, not malice: a message that is
not whole is an `EOFError`. Nothing that either side prints comes near these pipes.
"""

import os
import struct

import msgspec

from evaluator.batch.manifest import Terms
from evaluator.devices.gpu import choose
from evaluator.isolation import SandboxMode
from evaluator.pipeline import GradeRequest, Unread
from evaluator.records import DeviceKind, Problem, Record, Scorecard
from evaluator.submissions import Submission

_LENGTH = struct.Struct(">I")


class Order(Record, frozen=True):
    """One grade for a worker to make: of `submission`, or of one that could not be made out. `gpu` is a UUID."""

    problem: Problem
    submission: Submission | None
    unread: Unread | None
    terms: Terms
    gpu: str | None

    def request(self) -> GradeRequest:
        """Put together what the pipeline is asked. Raises InfraError where the GPU is gone."""
        submission = self.submission or self.unread
        assert submission is not None  # noqa: S101 - for the type checker: an order has one of them
        return GradeRequest(
            problem=self.problem,
            submission=submission,
            device=self.terms.device,
            gpu=choose(self.gpu) if self.terms.device is DeviceKind.CUDA else None,
            size=self.terms.actual_size,
            tolerance=self.terms.tolerance,
            sandbox=SandboxMode(self.terms.sandbox),
            timeout_s=self.terms.timeout_s,
            build_timeout_s=self.terms.build_timeout_s,
            replay=None,
        )


class Stage(Record, frozen=True, tag=True):
    """A worker: the grade is in this stage now."""

    name: str
    detail: str


class Graded(Record, frozen=True, tag=True):
    """A worker: the grade is made."""

    card: Scorecard


class NotGraded(Record, frozen=True, tag=True):
    """A worker: no grade could be made, for a reason that is not the submission's; whether trying again may help."""

    reason: str
    again: bool


Reply = Stage | Graded | NotGraded

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
