"""Requests to the ready judge and its responses: HTTP on a Unix socket, with JSON documents of limited length.

`POST /v1/hello` asks whether the judge grades for a client. `POST /v1/grades` grades: the response has a line for each
stage, and a last line with the result. `GET /v1/status` and `POST /v1/stop` need no identity: every version of the
client can stop every server. The body of a refusal is that of the HTTP service.
"""

import msgspec

from evaluator.batch.workers.messages import Graded, NotGraded, Order, Stage
from evaluator.records import DeviceKind, Record
from evaluator.serve.identity import Identity

HELLO, GRADES, STATUS, STOP = "/v1/hello", "/v1/grades", "/v1/status", "/v1/stop"
MOST_REQUEST_BYTES = 32 << 20
"""A problem, a submission and another submission of 1 MiB each, escaped in JSON."""
MOST_REPLY_BYTES = 256 << 20


class Hello(Record, frozen=True):
    """Question whether the judge grades on `device` for a client with this identity."""

    identity: Identity
    device: DeviceKind


class Welcome(Record, frozen=True):
    """Server's consent. `at_once` is the number of concurrent grades on the device."""

    pid: int
    at_once: int


class LocalOrder(Record, frozen=True):
    """Order of a grade, by a client with this identity."""

    identity: Identity
    order: Order


class Stopping(Record, frozen=True):
    """Server's consent to end. The end of the process releases the lock of the socket's folder."""

    pid: int


Answer = Stage | Graded | NotGraded
answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)
