"""Table of the journal's grades: layout, and the statements of each operation inside a transaction.

A grade's row has a request until the result, then a card. `kept` counts the bytes of each client's final grades; two
triggers keep the count right. `finished_s` is a time of the service's own clock, independent of the system's clock.
"""

import datetime
import secrets
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

from evaluator.records import Status
from evaluator.service.documents.messages import Grade, GradeState

LAYOUT = 2
_ROW_BYTES = 1000
"""Bytes of a final grade beside the card: names, key, reason, indexes."""
CREATED = f"""
CREATE TABLE IF NOT EXISTS grades (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE, client TEXT NOT NULL, key TEXT, request_sha256 TEXT NOT NULL,
    problem TEXT NOT NULL, name TEXT NOT NULL, submitted_at TEXT NOT NULL, state TEXT NOT NULL,
    request BLOB, request_bytes INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    final_number INTEGER, finished_at TEXT, finished_s REAL, verdict TEXT, reason TEXT, card BLOB,
    UNIQUE (client, key), UNIQUE (client, final_number)
);
CREATE INDEX IF NOT EXISTS queued ON grades (client, request_bytes) WHERE state = 'queued';
CREATE INDEX IF NOT EXISTS owned ON grades (client, number);
CREATE TABLE IF NOT EXISTS kept (client TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS became_final AFTER UPDATE OF final_number ON grades BEGIN
    INSERT INTO kept VALUES (new.client, {_ROW_BYTES} + ifnull(length(new.card), 0))
    ON CONFLICT (client) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER IF NOT EXISTS deleted AFTER DELETE ON grades BEGIN
    UPDATE kept SET bytes = bytes - {_ROW_BYTES} - ifnull(length(old.card), 0) WHERE client = old.client;
END;
CREATE TABLE IF NOT EXISTS clock (at_s REAL NOT NULL);
INSERT INTO clock SELECT 0.0 WHERE NOT EXISTS (SELECT * FROM clock);
"""  # noqa: S608 - a constant number
_COLUMNS = "id, state, problem, name, submitted_at, key, finished_at, verdict, reason"


class QueueLimits(NamedTuple):
    """Limits of stored grades: number and bytes of waiting requests, and bytes of a client's final grades."""

    of_a_client: int
    of_all: int
    bytes_of_a_client: int
    bytes_of_all: int
    kept_bytes: int


class Arrival(NamedTuple):
    """A checked request for a grade."""

    client: str
    key: str | None
    request: bytes
    request_sha256: str
    problem: str
    name: str


class Added(NamedTuple):
    """Row of an arrival; not `is_new` if an earlier request had the same idempotency key."""

    grade: Grade
    is_new: bool


class OtherRequest(NamedTuple):
    """Refusal: an earlier request with the same idempotency key had another content."""


class QueueFull(NamedTuple):
    """Refusal: the client, or all clients together, have too many or too large waiting grades."""

    is_the_clients: bool


class QueuedGrade(NamedTuple):
    """A grade without a result, and the number of lost attempts."""

    client: str
    grade: str
    attempts: int


class GradeAttempt(NamedTuple):
    """Request of a grade in progress, and the number of the attempt, from 1."""

    request: bytes
    attempt: int


class Final(NamedTuple):
    """Result of a grade. Only a finished grade has a verdict and a card."""

    state: GradeState
    verdict: Status | None = None
    card: bytes | None = None
    reason: str | None = None


class Numbered(NamedTuple):
    """A final grade, and the number among the client's final grades."""

    number: int
    grade: Grade


class Numbers(NamedTuple):
    """First and last number among a client's stored final grades; 0 and 0 without a final grade."""

    first: int
    last: int


def add(connection: sqlite3.Connection, arrival: Arrival, limits: QueueLimits) -> Added | OtherRequest | QueueFull:
    """Insert a row, unless the idempotency key is known or the queue is full."""
    if arrival.key is not None:
        query = f"SELECT request_sha256, {_COLUMNS} FROM grades WHERE client = ? AND key = ?"  # noqa: S608 - constant columns
        earlier = connection.execute(query, (arrival.client, arrival.key)).fetchone()
        if earlier is not None:
            return Added(_grade(earlier[1:]), is_new=False) if earlier[0] == arrival.request_sha256 else OtherRequest()
    size_bytes = len(arrival.request)
    queued = "SELECT count(*), ifnull(sum(request_bytes), 0) FROM grades WHERE state = 'queued'"
    number, used_bytes = connection.execute(f"{queued} AND client = ?", (arrival.client,)).fetchone()
    if number >= limits.of_a_client or used_bytes + size_bytes > limits.bytes_of_a_client:
        return QueueFull(is_the_clients=True)
    number, used_bytes = connection.execute(queued).fetchone()
    if number >= limits.of_all or used_bytes + size_bytes > limits.bytes_of_all:
        return QueueFull(is_the_clients=False)
    grade = Grade(
        id=secrets.token_hex(16),
        state=GradeState.QUEUED,
        problem=arrival.problem,
        name=arrival.name,
        submitted_at=_now(),
        key=arrival.key,
    )
    connection.execute(
        "INSERT INTO grades (id, client, key, request_sha256, problem, name, request, request_bytes, submitted_at, "
        "state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(grade.id, arrival.client, grade.key, arrival.request_sha256, grade.problem, grade.name),
            *(arrival.request, size_bytes, grade.submitted_at, grade.state.value),
        ),
    )
    return Added(grade, is_new=True)


def begin(connection: sqlite3.Connection, grade: str) -> GradeAttempt | None:
    """Count an attempt of a waiting grade, and return the request; None for a final grade."""
    connection.execute("UPDATE grades SET attempts = attempts + 1 WHERE id = ? AND state = 'queued'", (grade,))
    query = "SELECT request, attempts FROM grades WHERE id = ? AND state = 'queued'"
    row = connection.execute(query, (grade,)).fetchone()
    return None if row is None else GradeAttempt(*row)


def uncount(connection: sqlite3.Connection, grades: Sequence[str]) -> None:
    """Take back the last attempt of grades without a result."""
    statement = "UPDATE grades SET attempts = attempts - 1 WHERE id = ? AND state = 'queued'"
    connection.executemany(statement, [(grade,) for grade in grades])


def finish(connection: sqlite3.Connection, grade: str, final: Final, *, at_s: float, kept_bytes: int) -> None:
    """Store a result, and delete the client's oldest final grades beyond `kept_bytes`.

    A second result of the same grade has no effect.
    """
    row = connection.execute("SELECT client FROM grades WHERE id = ? AND state = 'queued'", (grade,)).fetchone()
    if row is None:
        return
    client = row[0]
    # The request is deleted: the card holds the submission.
    connection.execute(
        "UPDATE grades SET state = ?, final_number = ?, finished_at = ?, finished_s = ?, verdict = ?, reason = ?, "
        "card = ?, request = NULL WHERE id = ?",
        (
            *(final.state.value, numbers(connection, client).last + 1, _now(), at_s),
            *(None if final.verdict is None else final.verdict.value, final.reason, final.card, grade),
        ),
    )
    while _kept_bytes(connection, client) > kept_bytes:
        stored = numbers(connection, client)
        if stored.first == stored.last:
            return
        connection.execute("DELETE FROM grades WHERE client = ? AND final_number = ?", (client, stored.first))


def forget(connection: sqlite3.Connection, before_s: float) -> int:
    """Delete grades final before a time, except the last of each client: the last number is not used again."""
    return connection.execute(
        "DELETE FROM grades WHERE finished_s < ? AND final_number < "
        "(SELECT max(final_number) FROM grades AS others WHERE others.client = grades.client)",
        (before_s,),
    ).rowcount


def waiting(connection: sqlite3.Connection) -> list[QueuedGrade]:
    """Return all grades without a result, in the order of arrival."""
    query = "SELECT client, id, attempts FROM grades WHERE state = 'queued' ORDER BY number"
    return [QueuedGrade(*row) for row in connection.execute(query)]


def find(connection: sqlite3.Connection, client: str, grade: str) -> Grade | None:
    """Return a grade of the client."""
    query = f"SELECT {_COLUMNS} FROM grades WHERE id = ? AND client = ?"  # noqa: S608 - constant columns
    row = connection.execute(query, (grade, client)).fetchone()
    return None if row is None else _grade(row)


def page(connection: sqlite3.Connection, client: str, before: str | None, most: int) -> list[Grade] | None:
    """Return the client's grades that arrived before a grade of the client, latest first; None if there is none such.

    Without `before`, the latest grades of all.
    """
    number = None
    if before is not None:
        row = connection.execute("SELECT number FROM grades WHERE id = ? AND client = ?", (before, client)).fetchone()
        if row is None:
            return None
        number = row[0]
    query = (
        f"SELECT {_COLUMNS} FROM grades WHERE client = ? AND number < ifnull(?, 1 << 62) "  # noqa: S608 - constant columns
        "ORDER BY number DESC LIMIT ?"
    )
    return [_grade(row) for row in connection.execute(query, (client, number, most))]


def card(connection: sqlite3.Connection, client: str, grade: str) -> bytes | None:
    """Return the card of a finished grade of the client."""
    row = connection.execute("SELECT card FROM grades WHERE id = ? AND client = ?", (grade, client)).fetchone()
    return None if row is None else row[0]


def final_after(connection: sqlite3.Connection, client: str, number: int, most: int) -> list[Numbered]:
    """Return the client's final grades after a number, in the order of the ends."""
    query = (
        f"SELECT final_number, {_COLUMNS} FROM grades "  # noqa: S608 - constant columns
        "WHERE client = ? AND final_number > ? ORDER BY final_number LIMIT ?"
    )
    return [Numbered(row[0], _grade(row[1:])) for row in connection.execute(query, (client, number, most))]


def numbers(connection: sqlite3.Connection, client: str) -> Numbers:
    """Return the numbers of the client's first and last stored final grade."""
    # Two queries: SQLite finds a single extreme in the index, and reads all rows for both.
    first, last = (
        connection.execute(f"SELECT {extreme}(final_number) FROM grades WHERE client = ?", (client,)).fetchone()[0] or 0  # noqa: S608
        for extreme in ("min", "max")
    )
    return Numbers(first, last)


def read_clock(connection: sqlite3.Connection) -> float:
    """Return the stored time of the service's clock."""
    return float(connection.execute("SELECT at_s FROM clock").fetchone()[0])


def store_clock(connection: sqlite3.Connection, at_s: float) -> None:
    """Store the time of the service's clock."""
    connection.execute("UPDATE clock SET at_s = ?", (at_s,))


def _kept_bytes(connection: sqlite3.Connection, client: str) -> int:
    return int(connection.execute("SELECT bytes FROM kept WHERE client = ?", (client,)).fetchone()[0])


def _grade(row: tuple[Any, ...]) -> Grade:
    grade, state, problem, name, submitted_at, key, finished_at, verdict, reason = row
    return Grade(
        id=grade,
        state=GradeState(state),
        problem=problem,
        name=name,
        submitted_at=submitted_at,
        key=key,
        finished_at=finished_at,
        verdict=None if verdict is None else Status(verdict),
        reason=reason,
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
