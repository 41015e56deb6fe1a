"""Journal of the service: every grade from its arrival to its card, in an SQLite file.

A grade is acknowledged only after its row is on the disk, and reported as finished only after its card is. After any
end of the process, rows without a result are the queue. All statements run in one thread, which commits the statements
that arrived meanwhile together: a hundred clients share a flush of the disk.
"""

import asyncio
import datetime
import os
import queue
import secrets
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from evaluator.errors import InfraError
from evaluator.records import Status
from evaluator.service.messages import Grade, GradeState

MOST_TOGETHER = 200
"""Limit of operations in a transaction."""
_LAYOUT = 1
_CREATED = """
CREATE TABLE IF NOT EXISTS grades (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE, client TEXT NOT NULL, key TEXT, request_sha256 TEXT NOT NULL,
    problem TEXT NOT NULL, name TEXT NOT NULL, request BLOB, submitted_at TEXT NOT NULL,
    state TEXT NOT NULL, final_number INTEGER, finished_at TEXT, verdict TEXT, reason TEXT, card BLOB,
    UNIQUE (client, key), UNIQUE (client, final_number)
);
CREATE INDEX IF NOT EXISTS queued ON grades (client) WHERE state = 'queued';
"""
_COLUMNS = "id, state, problem, name, submitted_at, key, finished_at, verdict, reason"
_Result = TypeVar("_Result")


class Arrival(NamedTuple):
    """A request for a grade, checked, with its bytes."""

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
    """Refusal: the client, or all clients together, have too many waiting grades."""

    is_the_clients: bool


class Final(NamedTuple):
    """Result of a grade. Only a finished grade has a verdict and a card."""

    state: GradeState
    verdict: Status | None = None
    card: bytes | None = None
    reason: str | None = None


class Numbered(NamedTuple):
    """A final grade with its number among the client's final grades."""

    number: int
    grade: Grade


class Limits(NamedTuple):
    """Limits of waiting grades."""

    of_a_client: int
    of_all: int


class _Operation(NamedTuple):
    run: Callable[[sqlite3.Connection], Any]
    loop: asyncio.AbstractEventLoop
    done: "asyncio.Future[Any]"


class Journal:
    """Journal in `folder`. The methods may be called from an event loop; a failed disk raises InfraError."""

    def __init__(self, folder: Path) -> None:
        """Open or create the file. Raises InfraError."""
        self._path = folder / "journal.sqlite"
        self._operations: queue.SimpleQueue[_Operation | None] = queue.SimpleQueue()
        try:
            # SQLite gives its further files the mode of the first.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._lay_out()
        except (OSError, sqlite3.Error) as error:
            hint = "free space, or choose another folder with --state"
            raise InfraError(f"cannot use the journal {self._path}: {error}", hint=hint) from error
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish all operations and close the file."""
        self._operations.put(None)
        self._thread.join()
        self._connection.close()

    async def add(self, arrival: Arrival, limits: Limits) -> Added | OtherRequest | QueueFull:
        """Store an arrival, unless the idempotency key is known or the queue is full."""
        return await self._do(lambda connection: _add(connection, arrival, limits))

    async def finish(self, grade: str, final: Final) -> None:
        """Store the result of a grade. A second result of the same grade has no effect."""
        await self._do(lambda connection: _finish(connection, grade, final))

    async def request(self, grade: str) -> bytes | None:
        """Return the request of a waiting grade; None if the grade is final."""

        def found(connection: sqlite3.Connection) -> bytes | None:
            row = connection.execute("SELECT request FROM grades WHERE id = ?", (grade,)).fetchone()
            return None if row is None else row[0]

        return await self._do(found)

    async def grade(self, client: str, grade: str) -> Grade | None:
        """Return a grade of the client; None for an unknown grade, and for a grade of another client."""

        def found(connection: sqlite3.Connection) -> Grade | None:
            query = f"SELECT {_COLUMNS} FROM grades WHERE id = ? AND client = ?"  # noqa: S608 - constant columns
            row = connection.execute(query, (grade, client)).fetchone()
            return None if row is None else _grade(row)

        return await self._do(found)

    async def card(self, client: str, grade: str) -> bytes | None:
        """Return the card of a finished grade of the client."""

        def found(connection: sqlite3.Connection) -> bytes | None:
            query = "SELECT card FROM grades WHERE id = ? AND client = ?"
            row = connection.execute(query, (grade, client)).fetchone()
            return None if row is None else row[0]

        return await self._do(found)

    async def final_after(self, client: str, number: int, most: int) -> list[Numbered]:
        """Return the client's final grades after a number, in the order of their ends, at most `most`."""

        def found(connection: sqlite3.Connection) -> list[Numbered]:
            rows = connection.execute(
                f"SELECT final_number, {_COLUMNS} FROM grades WHERE client = ? AND final_number > ? "  # noqa: S608
                "ORDER BY final_number LIMIT ?",
                (client, number, most),
            )
            return [Numbered(row[0], _grade(row[1:])) for row in rows]

        return await self._do(found)

    async def last_final(self, client: str) -> int:
        """Return the number of the client's last final grade, 0 without one."""
        return await self._do(lambda connection: _last_final(connection, client))

    async def waiting(self) -> list[tuple[str, str]]:
        """Return client and id of all grades without a result, in the order of arrival."""
        query = "SELECT client, id FROM grades WHERE state = 'queued' ORDER BY number"
        return await self._do(lambda connection: connection.execute(query).fetchall())

    async def forget(self, before: datetime.datetime) -> int:
        """Delete grades that became final before a time; return their number. The numbers of grades stay unique."""

        def forgotten(connection: sqlite3.Connection) -> int:
            return connection.execute(
                "DELETE FROM grades WHERE finished_at < ? AND final_number < "
                "(SELECT max(final_number) FROM grades AS others WHERE others.client = grades.client)",
                (_text(before),),
            ).rowcount

        return await self._do(forgotten)

    async def _do(self, run: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Run an operation in the thread, and return its result after the commit."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_Result] = loop.create_future()
        self._operations.put(_Operation(run, loop, done))
        # Shielded: a client that leaves must not cancel an operation that is committed anyway.
        return await asyncio.shield(done)

    def _work(self) -> None:
        while (first := self._operations.get()) is not None:
            together = [first]
            while len(together) < MOST_TOGETHER:
                try:
                    further = self._operations.get_nowait()
                except queue.Empty:
                    break
                if further is None:
                    self._operations.put(None)
                    break
                together.append(further)
            self._commit(together)

    def _commit(self, together: list[_Operation]) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            results = [each.run(self._connection) for each in together]
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - each waiting caller gets the error
            self._roll_back()
            fault = InfraError(f"cannot write the journal {self._path}: {error}", hint="free space on its disk")
            for each in together:
                _tell(each, None, fault)
            return
        for each, result in zip(together, results, strict=True):
            _tell(each, result, None)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _lay_out(self) -> None:
        self._connection.execute("PRAGMA trusted_schema = OFF")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")  # A commit survives a power cut.
        (layout,) = self._connection.execute("PRAGMA user_version").fetchone()
        if layout not in (0, _LAYOUT):
            message = f"the journal {self._path} is of another version of Warpgrade (layout {layout})"
            raise InfraError(message, hint="finish its queue with that version, or choose another --state")
        self._connection.executescript(_CREATED)
        self._connection.execute(f"PRAGMA user_version = {_LAYOUT}")


def _tell(operation: _Operation, result: Any, fault: InfraError | None) -> None:
    def tell() -> None:
        if operation.done.done():
            return
        if fault is None:
            operation.done.set_result(result)
        else:
            operation.done.set_exception(fault)

    try:
        operation.loop.call_soon_threadsafe(tell)
    except RuntimeError:  # The event loop has ended, and nobody waits.
        return


def _add(connection: sqlite3.Connection, arrival: Arrival, limits: Limits) -> Added | OtherRequest | QueueFull:
    if arrival.key is not None:
        query = f"SELECT request_sha256, {_COLUMNS} FROM grades WHERE client = ? AND key = ?"  # noqa: S608
        known = connection.execute(query, (arrival.client, arrival.key)).fetchone()
        if known is not None:
            return Added(_grade(known[1:]), is_new=False) if known[0] == arrival.request_sha256 else OtherRequest()
    (own,) = connection.execute(
        "SELECT count(*) FROM grades WHERE state = 'queued' AND client = ?", (arrival.client,)
    ).fetchone()
    if own >= limits.of_a_client:
        return QueueFull(is_the_clients=True)
    (all_waiting,) = connection.execute("SELECT count(*) FROM grades WHERE state = 'queued'").fetchone()
    if all_waiting >= limits.of_all:
        return QueueFull(is_the_clients=False)
    grade = Grade(
        id=secrets.token_hex(16),
        state=GradeState.QUEUED,
        problem=arrival.problem,
        name=arrival.name,
        submitted_at=_text(datetime.datetime.now(datetime.UTC)),
        key=arrival.key,
    )
    connection.execute(
        "INSERT INTO grades (id, client, key, request_sha256, problem, name, request, submitted_at, state) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(grade.id, arrival.client, grade.key, arrival.request_sha256, grade.problem, grade.name),
            *(arrival.request, grade.submitted_at, grade.state.value),
        ),
    )
    return Added(grade, is_new=True)


def _finish(connection: sqlite3.Connection, grade: str, final: Final) -> None:
    row = connection.execute("SELECT client FROM grades WHERE id = ? AND state = 'queued'", (grade,)).fetchone()
    if row is None:
        return
    # The request is deleted: the card holds the submission.
    connection.execute(
        "UPDATE grades SET state = ?, final_number = ?, finished_at = ?, verdict = ?, reason = ?, card = ?, "
        "request = NULL WHERE id = ?",
        (
            *(final.state.value, _last_final(connection, row[0]) + 1, _text(datetime.datetime.now(datetime.UTC))),
            *(None if final.verdict is None else final.verdict.value, final.reason, final.card, grade),
        ),
    )


def _last_final(connection: sqlite3.Connection, client: str) -> int:
    (number,) = connection.execute("SELECT max(final_number) FROM grades WHERE client = ?", (client,)).fetchone()
    return int(number or 0)


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


def _text(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).isoformat(timespec="milliseconds")
