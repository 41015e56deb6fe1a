"""Journal of the service: every grade from arrival to card, in an SQLite file.

A grade is acknowledged only after the row is on the disk, and reported as finished only after the card is. After any
end of the process, rows without a result are the queue. A single thread runs all operations, and commits waiting
operations together: a hundred clients share a flush of the disk.

A grade's row has a request until the result, then a card. `kept` counts the bytes of each client's final grades; two
triggers keep the count right. `finished_s` is a time of the service's own clock, independent of the system's clock.
"""

import asyncio
import contextlib
import datetime
import functools
import os
import secrets
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

import msgspec

from evaluator.errors import InfraError
from evaluator.records import Status
from evaluator.service.messages import Grade, GradeState

LAYOUT = 3
_LOG_BYTES = 64 << 20
"""Size of the write-ahead log after a commit; SQLite shortens a longer log."""
_ROW_BYTES = 1000
"""Bytes of a final grade beside the card: names, key, reason, indexes."""
_CREATED = f"""
CREATE TABLE IF NOT EXISTS grades (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE, client TEXT NOT NULL, key TEXT, request_sha256 TEXT NOT NULL,
    problem TEXT NOT NULL, name TEXT NOT NULL, submitted_at TEXT NOT NULL, state TEXT NOT NULL,
    request BLOB, request_bytes INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    finished_at TEXT, finished_s REAL, verdict TEXT, reason TEXT, card BLOB,
    UNIQUE (client, key)
);
CREATE INDEX IF NOT EXISTS queued ON grades (client, request_bytes) WHERE state = 'queued';
CREATE INDEX IF NOT EXISTS owned ON grades (client, number);
CREATE INDEX IF NOT EXISTS final ON grades (client, finished_s) WHERE finished_s IS NOT NULL;
CREATE TABLE IF NOT EXISTS kept (client TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS became_final AFTER UPDATE OF finished_s ON grades BEGIN
    INSERT INTO kept VALUES (new.client, {_ROW_BYTES} + ifnull(length(new.card), 0))
    ON CONFLICT (client) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER IF NOT EXISTS deleted AFTER DELETE ON grades BEGIN
    UPDATE kept SET bytes = bytes - {_ROW_BYTES} - ifnull(length(old.card), 0) WHERE client = old.client;
END;
CREATE TABLE IF NOT EXISTS clock (at_s REAL NOT NULL);
INSERT INTO clock SELECT 0.0 WHERE NOT EXISTS (SELECT * FROM clock);
"""  # noqa: S608 - a constant number
_COLUMNS = ", ".join(Grade.__struct_fields__)


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


_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def _operation(
    run: Callable[Concatenate["Journal", _Parameters], _Result],
) -> Callable[Concatenate["Journal", _Parameters], Coroutine[Any, Any, _Result]]:
    """Let a method run in a transaction, in the thread of the journal; the coroutine ends after the commit."""

    @functools.wraps(run)
    async def in_the_thread(journal: "Journal", /, *args: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        return await journal.do(functools.partial(run, journal, *args, **named))

    return in_the_thread


class _Operation(NamedTuple):
    run: Callable[[], Any]
    result: Future[Any]


class Journal:
    """Journal in `folder`. Coroutines are for an event loop; a failed disk raises InfraError."""

    def __init__(self, folder: Path, limits: QueueLimits, clock: Callable[[], float] = time.monotonic) -> None:
        """Open or create the file.

        Args:
            folder: folder of the file.
            limits: limits of stored grades.
            clock: seconds since any start; the ages of grades add up over the starts of the service.

        Raises:
            InfraError: the disk refuses the file, or the file is of another version.
        """
        self._path = folder / "journal.sqlite"
        self._limits = limits
        self._clock = clock
        try:
            # SQLite gives all further files the mode of the first.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._create_tables()
            self._start_s = float(self._row("SELECT at_s FROM clock")[0]) - clock()
        except (OSError, sqlite3.Error) as error:
            hint = "free space, or choose another folder with --state"
            raise InfraError(f"cannot use the journal {self._path}: {error}", hint=hint) from error
        self._waiting: deque[_Operation] = deque()
        self._thread = ThreadPoolExecutor(1, "journal")

    def close(self) -> None:
        """Finish all operations and close the file."""
        self._thread.shutdown()
        with contextlib.suppress(sqlite3.Error):  # An older time keeps grades a little longer.
            self._store_clock()
        self._connection.close()

    async def do(self, run: Callable[[], _Result]) -> _Result:
        """Run a function in a transaction, in the thread of the journal."""
        operation = _Operation(run, Future())
        self._waiting.append(operation)
        self._thread.submit(self._commit_waiting)
        # Shielded: a lost client must not cancel an operation before the commit.
        return cast("_Result", await asyncio.shield(asyncio.wrap_future(operation.result)))

    @_operation
    def add(self, arrival: Arrival) -> Added | OtherRequest | QueueFull:
        """Store an arrival, unless the idempotency key is known or the queue is full."""
        if arrival.key is not None:
            query = f"SELECT request_sha256, {_COLUMNS} FROM grades WHERE client = ? AND key = ?"  # noqa: S608 - constant columns
            earlier = self._row(query, arrival.client, arrival.key)
            if earlier is not None:
                is_same = earlier[0] == arrival.request_sha256
                return Added(_grade(earlier[1:]), is_new=False) if is_same else OtherRequest()
        size_bytes, limits = len(arrival.request), self._limits
        queued = "SELECT count(*), ifnull(sum(request_bytes), 0) FROM grades WHERE state = 'queued'"
        number, used_bytes = self._row(f"{queued} AND client = ?", arrival.client)
        if number >= limits.of_a_client or used_bytes + size_bytes > limits.bytes_of_a_client:
            return QueueFull(is_the_clients=True)
        number, used_bytes = self._row(queued)
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
        self._connection.execute(
            "INSERT INTO grades (id, client, key, request_sha256, problem, name, request, request_bytes, submitted_at, "
            "state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(grade.id, arrival.client, grade.key, arrival.request_sha256, grade.problem, grade.name),
                *(arrival.request, size_bytes, grade.submitted_at, grade.state.value),
            ),
        )
        return Added(grade, is_new=True)

    @_operation
    def begin(self, grade: str) -> GradeAttempt | None:
        """Count an attempt of a waiting grade, and return the request; None for a final grade."""
        statement = "UPDATE grades SET attempts = attempts + 1 WHERE id = ? AND state = 'queued'"
        self._connection.execute(statement, (grade,))
        row = self._row("SELECT request, attempts FROM grades WHERE id = ? AND state = 'queued'", grade)
        return None if row is None else GradeAttempt(*row)

    @_operation
    def uncount(self, grades: Sequence[str]) -> None:
        """Take back the last attempt of grades without a result: the server ended for another reason."""
        statement = "UPDATE grades SET attempts = attempts - 1 WHERE id = ? AND state = 'queued'"
        self._connection.executemany(statement, [(grade,) for grade in grades])

    @_operation
    def finish(self, grade: str, final: Final) -> None:
        """Store the result of a grade; old grades of the client make room. A second result has no effect."""
        row = self._row("SELECT client FROM grades WHERE id = ? AND state = 'queued'", grade)
        if row is None:
            return
        # The request is deleted: the card holds the submission.
        self._connection.execute(
            "UPDATE grades SET state = ?, finished_at = ?, finished_s = ?, verdict = ?, reason = ?, card = ?, "
            "request = NULL WHERE id = ?",
            (
                *(final.state.value, _now(), self._now_s()),
                *(None if final.verdict is None else final.verdict.value, final.reason, final.card, grade),
            ),
        )
        oldest = "SELECT id FROM grades WHERE client = ? AND finished_s IS NOT NULL AND id != ? ORDER BY finished_s"
        while self._row("SELECT bytes FROM kept WHERE client = ?", row[0])[0] > self._limits.kept_bytes:
            if (old := self._row(f"{oldest} LIMIT 1", row[0], grade)) is None:
                return
            self._connection.execute("DELETE FROM grades WHERE id = ?", old)

    @_operation
    def grades(self, client: str, ids: Sequence[str]) -> list[Grade]:
        """Return the named grades of the client, without unknown grades and those of another client."""
        marks = ", ".join("?" * len(ids))
        query = f"SELECT {_COLUMNS} FROM grades WHERE id IN ({marks}) AND client = ?"  # noqa: S608 - constant columns
        return [_grade(row) for row in self._connection.execute(query, (*ids, client))]

    @_operation
    def page(self, client: str, before: str | None, most: int) -> list[Grade] | None:
        """Return at most `most` grades of the client, latest first; None if `before` is no grade of the client.

        Only grades that arrived before the grade `before`, if given.
        """
        number = None
        if before is not None:
            row = self._row("SELECT number FROM grades WHERE id = ? AND client = ?", before, client)
            if row is None:
                return None
            number = row[0]
        query = (
            f"SELECT {_COLUMNS} FROM grades WHERE client = ? AND number < ifnull(?, 1 << 62) "  # noqa: S608 - constant columns
            "ORDER BY number DESC LIMIT ?"
        )
        return [_grade(row) for row in self._connection.execute(query, (client, number, most))]

    @_operation
    def card(self, client: str, grade: str) -> bytes | None:
        """Return the card of a finished grade of the client."""
        row = self._row("SELECT card FROM grades WHERE id = ? AND client = ?", grade, client)
        return None if row is None else row[0]

    @_operation
    def waiting(self) -> list[QueuedGrade]:
        """Return all grades without a result, in the order of arrival."""
        query = "SELECT client, id, attempts FROM grades WHERE state = 'queued' ORDER BY number"
        return [QueuedGrade(*row) for row in self._connection.execute(query)]

    @_operation
    def forget(self, keep_s: float) -> int:
        """Delete grades final for longer than `keep_s`; return the number of deleted grades.

        Only the running time of the service counts: no change of the system's clock deletes a card.
        """
        self._store_clock()
        statement = "DELETE FROM grades WHERE finished_s < ?"
        return self._connection.execute(statement, (self._now_s() - keep_s,)).rowcount

    def _commit_waiting(self) -> None:
        if operations := [self._waiting.popleft() for _ in range(len(self._waiting))]:
            self._commit(operations)

    def _commit(self, operations: Sequence[_Operation]) -> None:
        """Run operations in a transaction. After a failure, each operation has a separate transaction.

        On a nearly full disk, only operations without space fail: a large request must not take a card along.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            results = [operation.run() for operation in operations]
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - the caller gets the error
            # After a failed rollback the next BEGIN fails, and the server ends.
            with contextlib.suppress(sqlite3.Error):
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            if len(operations) > 1:
                for operation in operations:
                    self._commit([operation])
            else:
                message = f"cannot write the journal {self._path}: {error}"
                operations[0].result.set_exception(InfraError(message, hint="free space on its disk"))
            return
        for operation, result in zip(operations, results, strict=True):
            operation.result.set_result(result)

    def _row(self, query: str, *values: Any) -> Any:
        return self._connection.execute(query, values).fetchone()

    def _now_s(self) -> float:
        return self._start_s + self._clock()

    def _store_clock(self) -> None:
        self._connection.execute("UPDATE clock SET at_s = ?", (self._now_s(),))

    def _create_tables(self) -> None:
        self._connection.execute("PRAGMA trusted_schema = OFF")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        self._connection.execute("PRAGMA synchronous = FULL")  # A commit survives a power cut.
        (layout,) = self._row("PRAGMA user_version")
        if layout not in (0, LAYOUT):
            message = f"the journal {self._path} is of another version of Warpgrade (layout {layout})"
            raise InfraError(message, hint="finish its queue with that version, or choose another --state")
        self._connection.executescript(_CREATED)
        self._connection.execute(f"PRAGMA user_version = {LAYOUT}")


def _grade(row: tuple[Any, ...]) -> Grade:
    return msgspec.convert(dict(zip(Grade.__struct_fields__, row, strict=True)), Grade)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
