"""Journal of the service: every grade from arrival to card, in an SQLite file.

A grade is acknowledged only after the row is on the disk, and reported as finished only after the card is. After any
end of the process, rows without a result are the queue. A single thread runs all operations and commits waiting
operations operations: a hundred clients share a flush of the disk.
"""

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from evaluator.errors import InfraError
from evaluator.service.documents.messages import Grade
from evaluator.service.store import grades_table as table
from evaluator.service.store.grades_table import (
    Added,
    Arrival,
    Final,
    GradeAttempt,
    Numbered,
    Numbers,
    OtherRequest,
    QueuedGrade,
    QueueFull,
    QueueLimits,
)

MOST_TOGETHER = 200
"""Limit of operations in a transaction."""
_LOG_BYTES = 64 << 20
"""Size of the write-ahead log after a commit; SQLite shortens a longer log."""
_Result = TypeVar("_Result")


class _Operation(NamedTuple):
    run: Callable[[sqlite3.Connection], Any]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"


class Journal:
    """Journal in `folder`. The methods may be called from an event loop; a failed disk raises InfraError."""

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
        self._operations: queue.SimpleQueue[_Operation | None] = queue.SimpleQueue()
        try:
            # SQLite gives operation files the mode of the first.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._create_tables()
            self._start_s = table.read_clock(self._connection) - clock()
        except (OSError, sqlite3.Error) as error:
            hint = "free space, or choose another folder with --state"
            raise InfraError(f"cannot use the journal {self._path}: {error}", hint=hint) from error
        self._thread = threading.Thread(target=self._run_operations, name="journal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish all operations and close the file."""
        self._operations.put(None)
        self._thread.join()
        with contextlib.suppress(sqlite3.Error):  # An older time keeps grades a little longer.
            table.store_clock(self._connection, self._now_s())
        self._connection.close()

    async def add(self, arrival: Arrival) -> Added | OtherRequest | QueueFull:
        """Store an arrival, unless the idempotency key is known or the queue is full."""
        return await self._do(lambda connection: table.add(connection, arrival, self._limits))

    async def begin(self, grade: str) -> GradeAttempt | None:
        """Count an attempt of a waiting grade, and return the request; None for a final grade."""
        return await self._do(lambda connection: table.begin(connection, grade))

    async def uncount(self, grades: Sequence[str]) -> None:
        """Take back the last attempt of grades without a result: the server ended for another reason."""
        await self._do(lambda connection: table.uncount(connection, grades))

    async def finish(self, grade: str, final: Final) -> None:
        """Store the result of a grade. A second result of the same grade has no effect."""
        kept_bytes = self._limits.kept_bytes
        await self._do(
            lambda connection: table.finish(connection, grade, final, at_s=self._now_s(), kept_bytes=kept_bytes)
        )

    async def grade(self, client: str, grade: str) -> Grade | None:
        """Return a grade of the client; None for an unknown grade, and for a grade of another client."""
        return await self._do(lambda connection: table.find(connection, client, grade))

    async def page(self, client: str, before: str | None, most: int) -> list[Grade] | None:
        """Return at most `most` grades of the client, latest first; None if `before` is no grade of the client."""
        return await self._do(lambda connection: table.page(connection, client, before, most))

    async def card(self, client: str, grade: str) -> bytes | None:
        """Return the card of a finished grade of the client."""
        return await self._do(lambda connection: table.card(connection, client, grade))

    async def final_after(self, client: str, number: int, most: int) -> list[Numbered]:
        """Return the client's final grades after a number, in the order of the ends, at most `most`."""
        return await self._do(lambda connection: table.final_after(connection, client, number, most))

    async def numbers(self, client: str) -> Numbers:
        """Return the numbers of the client's first and last stored final grade."""
        return await self._do(lambda connection: table.numbers(connection, client))

    async def waiting(self) -> list[QueuedGrade]:
        """Return all grades without a result, in the order of arrival."""
        return await self._do(table.waiting)

    async def forget(self, keep_s: float) -> int:
        """Delete grades final for longer than `keep_s`; return the number of deleted grades.

        Only the running time of the service counts: no change of the system's clock deletes a card.
        """

        def forgotten(connection: sqlite3.Connection) -> int:
            now_s = self._now_s()
            table.store_clock(connection, now_s)
            return table.forget(connection, now_s - keep_s)

        return await self._do(forgotten)

    def _now_s(self) -> float:
        return self._start_s + self._clock()

    async def _do(self, run: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Run an operation in the thread, and return the result after the commit."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[_Result] = loop.create_future()
        self._operations.put(_Operation(run, loop, result))
        # Shielded: a lost client must not cancel an operation before the commit.
        return await asyncio.shield(result)

    def _run_operations(self) -> None:
        while (first := self._operations.get()) is not None:
            operations = [first]
            while len(operations) < MOST_TOGETHER:
                try:
                    operation = self._operations.get_nowait()
                except queue.Empty:
                    break
                if operation is None:
                    self._operations.put(None)
                    break
                operations.append(operation)
            self._commit(operations)

    def _commit(self, operations: list[_Operation]) -> None:
        """Run operations in a transaction. After a failure, each operation has a separate transaction.

        On a nearly full disk, only operations without space fail: a large request must not take a card along.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            results = [operation.run(self._connection) for operation in operations]
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - the caller gets the error
            self._roll_back()
            if len(operations) > 1:
                for operation in operations:
                    self._commit([operation])
            else:
                hint = "free space on its disk"
                _tell(operations[0], None, InfraError(f"cannot write the journal {self._path}: {error}", hint=hint))
            return
        for operation, result in zip(operations, results, strict=True):
            _tell(operation, result, None)

    def _roll_back(self) -> None:
        # A failed rollback must not end the thread: the next BEGIN fails, and the server ends.
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _create_tables(self) -> None:
        self._connection.execute("PRAGMA trusted_schema = OFF")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        self._connection.execute("PRAGMA synchronous = FULL")  # A commit survives a power cut.
        (layout,) = self._connection.execute("PRAGMA user_version").fetchone()
        if layout not in (0, table.LAYOUT):
            message = f"the journal {self._path} is of another version of Warpgrade (layout {layout})"
            raise InfraError(message, hint="finish its queue with that version, or choose another --state")
        self._connection.executescript(table.CREATED)
        self._connection.execute(f"PRAGMA user_version = {table.LAYOUT}")


def _tell(operation: _Operation, result: Any, fault: InfraError | None) -> None:
    def tell() -> None:
        if operation.future.done():
            return
        if fault is None:
            operation.future.set_result(result)
        else:
            operation.future.set_exception(fault)

    try:
        operation.loop.call_soon_threadsafe(tell)
    except RuntimeError:  # The event loop has ended; no caller waits.
        return
