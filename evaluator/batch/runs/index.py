"""Index of a run: one SQLite row for each card: a report without a read of 100 000 files.

The cards are the source of truth. A row is valid as long as size and modification time of its card are unchanged. All
other cards are read again. A missing or broken index is rebuilt.
"""

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from evaluator.batch.runs.run_folder import RunFolder
from evaluator.batch.runs.tasks import Planned, equality_key
from evaluator.cards.consistency import inconsistencies
from evaluator.cards.time_consistency import Contradiction
from evaluator.errors import CardError
from evaluator.files.card_files import card_place, read_card
from evaluator.files.safe_open import kind
from evaluator.records import Scorecard, Status
from evaluator.report.card.measurement import axes_text, differing_axes
from evaluator.text import one_line

_LAYOUT = 11
_SAID = 200


class CardSummary(NamedTuple):
    """Summary of a card. `card` is the path below `cards/`. Only correct submissions have speedups and kinds of calls.

    `reference_calls` and `submission_calls` are values of `CallKind`, `l2` is a value of `L2Rule`. `cases` is the JSON
    of `_cases_text`. `contradiction` describes inconsistencies of the card, found without recomputing confidence
    intervals.
    """

    card: str
    size_bytes: int
    mtime_ns: int
    problem: str
    level: int
    name: str
    problem_sha256: str
    submission_sha256: str | None
    device: str
    device_name: str
    status: str
    reason: str | None
    built: bool
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    wall_s: float
    graded_at: str
    contradiction: str | None
    signed: bool
    mode: str
    reference_calls: str | None
    submission_calls: str | None
    l2: str | None
    host_bound: bool
    benchmark_correct: bool | None
    benchmark_rule: str
    cases: str

    @property
    def key(self) -> str | None:
        """Same as `Task.key`."""
        return equality_key(self.problem, self.problem_sha256, self.submission_sha256)

    def is_of(self, planned: Planned) -> bool:
        """Whether problem and code are equal to a line of the plan."""
        return (self.problem_sha256, self.submission_sha256) == (planned.problem_sha256, planned.submission_sha256)


_CREATED = f"CREATE TABLE cards ({', '.join(CardSummary._fields)}, PRIMARY KEY (card))"
_TABLE = _CREATED.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1)
_MARKS = ", ".join("?" * len(CardSummary._fields))


class Index:
    """Rows of a run, in memory and in `index.sqlite`."""

    def __init__(self, folder: RunFolder, *, believed: bool = True) -> None:
        """Open the index and update all rows from the cards. `broken` lists files without a valid card.

        With `believed` false the index file is not used and every card is read: cards and index came from an untrusted
        source.
        """
        self.broken: list[CardError] = []
        self._folder = folder
        self._connection = _connect(folder.index) if believed else _in_memory()
        try:
            stored = map(CardSummary._make, self._connection.execute("SELECT * FROM cards"))  # Booleans are 0 or 1.
            self.rows: dict[str, CardSummary] = {row.card: row for row in stored}
        except sqlite3.DatabaseError:  # damage behind the pages read by `_connect`
            self._connection.close()
            with contextlib.suppress(OSError):
                folder.index.unlink()
            self._connection = _connect(folder.index)
            self.rows = {}
        self._refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def add(self, card: str, content: Scorecard) -> CardSummary:
        """Add the row of a new card."""
        facts = (self._folder.cards / card).stat(follow_symlinks=False)
        row = row_of(content, card, facts.st_size, facts.st_mtime_ns)
        self.rows[card] = row
        self._store([row])
        return row

    def _refresh(self) -> None:
        stamps: dict[str, tuple[int, int]] = {}
        for card, stamp in card_files(self._folder.cards):
            if isinstance(stamp, CardError):
                self.broken.append(stamp)
            else:
                stamps[card] = stamp
        removed = [card for card in self.rows if card not in stamps]
        for card in removed:
            del self.rows[card]
        added = []
        for card, (size_bytes, mtime_ns) in stamps.items():
            row = self.rows.get(card)
            if row is not None and (row.size_bytes, row.mtime_ns) == (size_bytes, mtime_ns):
                continue
            try:
                cards = self._folder.cards
                self.rows[card] = row_of(read_card(cards / card, cards), card, size_bytes, mtime_ns)
                added.append(self.rows[card])
            except CardError as error:
                self.rows.pop(card, None)
                removed.append(card)
                self.broken.append(error)
        self._store(added, removed)

    def _store(self, rows: list[CardSummary], removed: list[str] | None = None) -> None:
        """Store new rows and delete rows of missing cards. After a failed write, the next opening reads the cards."""
        with contextlib.suppress(sqlite3.DatabaseError), self._connection:
            self._connection.executemany("DELETE FROM cards WHERE card = ?", [(card,) for card in removed or []])
            self._connection.executemany(f"INSERT OR REPLACE INTO cards VALUES ({_MARKS})", rows)  # noqa: S608


def _connect(path: Path) -> sqlite3.Connection:
    """Open the index file. Rebuild a broken file or another layout; use memory if the file is not writable."""
    for _ in range(2):
        connection = None
        try:
            if not _may_hold_index(path):
                break
            connection = sqlite3.connect(path, timeout=5.0)
            # An untrusted file may contain triggers and views: restrict their functions.
            connection.execute("PRAGMA trusted_schema = OFF")
            # A power cut may lose rows: the index is rebuilt from the cards.
            connection.execute("PRAGMA synchronous = OFF")
            (layout,) = connection.execute("PRAGMA user_version").fetchone()
            if layout not in (0, _LAYOUT) or not _is_plain(connection):
                raise sqlite3.DatabaseError("of another layout")  # noqa: TRY301
            _create_table(connection)
        except sqlite3.DatabaseError as error:
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.OperationalError):
                break  # read-only, or locked by another process
            with contextlib.suppress(OSError):
                path.unlink()
            continue
        return connection
    return _in_memory()


def _in_memory() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    _create_table(connection)
    return connection


def _may_hold_index(path: Path) -> bool:
    """Return whether the path may hold an index. A link, pipe or device is left alone."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _is_plain(connection: sqlite3.Connection) -> bool:
    """Return whether the file holds at most our one table. A view named `cards` could yield rows without end."""
    entries = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_autoindex%'")
    return all((entry[0], entry[1], entry[2]) == ("table", "cards", _CREATED) for entry in entries.fetchmany(2))


def _create_table(connection: sqlite3.Connection) -> None:
    with connection:
        connection.execute(_TABLE)
        connection.execute(f"PRAGMA user_version = {_LAYOUT}")


def card_files(top: Path) -> Iterator[tuple[str, tuple[int, int] | CardError]]:
    """Yield the path of each card with size and modification time; yield an error for special files."""
    folders = [""]
    while folders:
        below = folders.pop()
        try:
            entries = os.scandir(top / below)
        except FileNotFoundError:
            continue
        except OSError as error:
            yield below, CardError(f"{top / below} cannot be listed: {error.strerror}")
            continue
        with entries:
            for entry in entries:
                path = f"{below}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{path}/")
                elif not entry.is_file(follow_symlinks=False):
                    file_kind = kind(entry.stat(follow_symlinks=False).st_mode)
                    yield path, CardError(f"{top / path} is {file_kind}: no card is read from that")
                elif path.endswith(".json"):
                    status = entry.stat(follow_symlinks=False)
                    yield path, (status.st_size, status.st_mtime_ns)


def row_of(content: Scorecard, card: str, size_bytes: int, mtime_ns: int) -> CardSummary:
    """Return the row of a card."""
    timing = content.timing if content.status is Status.CORRECT else None
    return CardSummary(
        card=card,
        size_bytes=size_bytes,
        mtime_ns=mtime_ns,
        problem=content.problem.name,
        level=content.problem.level,
        name=content.submission.name,
        problem_sha256=content.problem.sha256,
        submission_sha256=content.submission.sha256,
        device=content.device.kind.value,
        device_name=content.device.name,
        status=content.status.value,
        reason=content.reason.code if content.reason else None,
        built=content.build is not None and content.build.ok,
        speedup=content.quoted.speedup,
        speedup_low=content.quoted.low,
        speedup_high=content.quoted.high,
        wall_s=content.wall_s,
        graded_at=content.graded_at,
        contradiction=_contradiction(content, card),
        signed=content.signature is not None,
        mode=content.mode.value,
        reference_calls=timing.reference_kind.value if timing else None,
        submission_calls=timing.submission.kind.value if timing else None,
        l2=content.l2.rule.value if timing and content.l2 else None,
        host_bound=timing is not None and timing.is_host_bound,
        benchmark_correct=content.benchmark_correct,
        benchmark_rule=content.benchmark_rule.value,
        cases=_cases_text(content),
    )


def _cases_text(content: Scorecard) -> str:
    """Return each case but the hidden ones as the fields of a `CaseSample`, in JSON; maybe empty."""
    differing = differing_axes(content.cases)
    rows = [
        (case.name, case.status, case.speedup, case.speedup_low, case.speedup_high, axes_text(case, differing))
        for case in content.cases
        if not case.hidden
    ]
    return msgspec.json.encode(rows).decode() if rows else ""


def _contradiction(content: Scorecard, card: str) -> str | None:
    """Return the first inconsistency, and the number of further inconsistencies.

    The place of a card follows from its names, which a signature covers: a copy at another place is inconsistent.
    """
    contradictions = inconsistencies(content, intervals=False)
    if card != str(expected_path := card_place(content.problem.name, content.submission.name)):
        contradictions.insert(0, Contradiction("submission.name", f"the card belongs to {expected_path}"))
    if not contradictions:
        return None
    more = f", and {len(contradictions) - 1} more" if len(contradictions) > 1 else ""
    return f"{one_line(str(contradictions[0]), _SAID)}{more}"
