"""Messages between a client and the ready judge, as JSON of limited length on a Unix socket.

For a grade, a client sends `Hello`, receives `Welcome` or `Refusal`, sends an `Order`, and receives stages and
the result. `AskStatus` and `AskStop` need no greeting: every version of the client can stop every server.
"""

import msgspec

from evaluator.batch.workers.messages import Graded, NotGraded, Order, Stage
from evaluator.records import DeviceKind, Record
from evaluator.serve.identity import Identity

MOST_REQUEST_BYTES = 32 << 20
"""A problem, a submission and another submission of 1 MiB each, escaped in JSON."""
MOST_REPLY_BYTES = 256 << 20


class Hello(Record, frozen=True, tag=True):
    """Client's first message before a grade on `device`."""

    identity: Identity
    device: DeviceKind


class AskStatus(Record, frozen=True, tag=True):
    """Client's request for the server's status."""


class AskStop(Record, frozen=True, tag=True):
    """Client's request to end the server. The server closes the connection when the server ends."""


class Welcome(Record, frozen=True, tag=True):
    """Server's consent: the client may send an order. `at_once` is the number of concurrent grades on the device."""

    pid: int
    at_once: int


class Refusal(Record, frozen=True, tag=True):
    """Server's refusal of a grade, with the reason."""

    reason: str


First = Hello | AskStatus | AskStop
Greeting = Welcome | Refusal
Answer = Stage | Graded | NotGraded | Refusal

first_messages: msgspec.json.Decoder[First] = msgspec.json.Decoder(First)
greetings: msgspec.json.Decoder[Greeting] = msgspec.json.Decoder(Greeting)
orders = msgspec.json.Decoder(Order)
answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)
