"""What a batch and its workers say to each other, on pipes of their own: JSON behind its length in four bytes.

Both ends are trusted, so what is guarded against is a death in the middle of a message, not malice: a message that is
not whole is an `EOFError`. Nothing that either side prints comes near these pipes.
"""

import os
import struct
from enum import StrEnum

import msgspec

from evaluator.batch.manifest import Terms
from evaluator.deadline import limit_s
from evaluator.devices.gpu import Gpu, choose
from evaluator.grading.request import Begun, GradeRequest, Unread
from evaluator.isolation import SandboxMode
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
    """One grade for a worker to make: of `submission`, or of one that could not be made out. `gpu` is a UUID.

    `facts` describe a GPU that this machine may not have: what is begun here is finished on one like it. `begun` is
    what another worker has made of it, where this one is to finish it.
    """

    problem: Problem
    submission: Submission | None
    unread: Unread | None
    terms: Terms
    gpu: str | None
    part: Part = Part.ALL
    begun: Begun | None = None
    facts: GpuModel | None = None

    @property
    def streak(self) -> str:
        """Say what one process may grade in a row: submissions of one problem, on the same terms."""
        return f"{self.problem.name} {self.problem.sha256} {self.terms} {self.gpu} {self.part}"

    @property
    def limit_s(self) -> float:
        """Say how long the grade may take."""
        return limit_s(self.terms.deadline_s, self.terms.build_timeout_s)

    def request(self) -> GradeRequest:
        """Put together what the pipeline is asked. Raises InfraError where the GPU is gone."""
        submission = self.submission or self.unread
        assert submission is not None  # noqa: S101 - for the type checker: an order has one of them
        return GradeRequest(
            problem=self.problem,
            submission=submission,
            device=self.terms.device,
            gpu=self._gpu(),
            size=self.terms.actual_size,
            tolerance=self.terms.tolerance,
            sandbox=SandboxMode(self.terms.sandbox),
            timeout_s=self.terms.timeout_s,
            build_timeout_s=self.terms.build_timeout_s,
            replay=None,
            require_own_kernel=self.terms.require_own_kernel,
            strict=self.terms.strict,
            baselines=self.terms.baselines,
            deadline_s=self.terms.deadline_s,
            weights=self.terms.weights,
        )

    def _gpu(self) -> Gpu | None:
        if self.terms.device is not DeviceKind.CUDA:
            return None
        return choose(self.gpu) if self.facts is None else self.facts.gpu()


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
