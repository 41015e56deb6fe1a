"""Locks of problems: a folder's own lock, and shipped decisions about KernelBench's files.

A bare file has no room for a lock. `evaluator/kernelbench_locks.json`, if present, holds decisions about such files,
keyed by the sha256 of the file; `warpgrade problems decide` writes it.

An entry has the trust of a lock in a problem's folder, and the same fields: input distributions left out, a tolerance
widened by measured rounding, and row sites. No entry names inputs, outputs, limits or code. Users with write access to
the file can change the judge as well; submissions and problems have no write access. An entry for another text,
other rules or another small size has no effect; the first grade decides.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from evaluator.catalog.find import natural
from evaluator.catalog.lock import LOCK_FILE, Lock, RowSitesLock, SizeLock, read_lock
from evaluator.catalog.origin import Origin
from evaluator.catalog.text import read_bytes
from evaluator.errors import ProblemError
from evaluator.records import Constant, Problem, Record, Sha256, SizeName

SHIPPED_FILE = Path(__file__).resolve().parent.parent / "kernelbench_locks.json"


class FileLock(Record, frozen=True, omit_defaults=True):
    """Decisions about a bare file. `small` has the constants of the small size that differ from the file's.

    The small size counts for every size: it decides for large sizes, and row sites are found there.
    """

    name: str
    rules: int
    small: dict[str, Constant] = {}
    sizes: dict[SizeName, SizeLock] = {}
    row_sites: RowSitesLock | None = None


LockTable = Mapping[Sha256, FileLock]


def stored_lock(problem: Problem) -> Lock | None:
    """Return the lock in a problem's folder, or the shipped decisions about a bare file; None if there are none.

    Raises:
        ProblemError: the lock is broken.
    """
    if problem.origin != Origin.KERNELBENCH:
        return read_lock(Path(problem.path) / LOCK_FILE, shipped=problem.origin == Origin.WARPGRADE)
    if (entry := _shipped_entries().get(problem.sha256)) is None:
        return None
    try:
        return lock_of(problem, msgspec.json.decode(entry, type=FileLock))
    except (ValueError, RecursionError) as error:  # msgspec raises UnicodeDecodeError too.
        raise _broken(SHIPPED_FILE, error) from error


def lock_of(problem: Problem, entry: FileLock) -> Lock | None:
    """Return the lock of a bare file from its entry; None if the entry is for another small size."""
    if entry.small != small_constants(problem):
        return None
    return Lock(problem=problem.sha256, rules=entry.rules, sizes=entry.sizes, row_sites=entry.row_sites)


def small_constants(problem: Problem) -> dict[str, Constant]:
    """Return the constants of the small size that differ from the full size; none without a small size."""
    full = problem.sizes.get(SizeName.FULL, {})
    small = problem.sizes.get(SizeName.SMALL, {})
    return {name: value for name, value in small.items() if name not in full or full[name] != value}


def read_table(path: Path) -> dict[Sha256, FileLock]:
    """Read a table; an absent file is an empty table. Raises ProblemError for a broken file."""
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(read_bytes(path), type=dict[Sha256, FileLock])
    except (ValueError, RecursionError) as error:  # msgspec raises UnicodeDecodeError too.
        raise _broken(path, error) from error


def table_text(table: LockTable) -> str:
    """Return a table as JSON, with a line for each file, in the order of their names."""
    rows = sorted(table.items(), key=lambda row: (natural(row[1].name), row[0]))
    lines = [f'"{sha256}": {msgspec.json.encode(entry).decode()}' for sha256, entry in rows]
    return "{\n" + ",\n".join(lines) + "\n}\n"


@cache
def _shipped_entries() -> dict[str, msgspec.Raw]:
    """Return the shipped entries, undecoded: a grade needs one of them."""
    if not SHIPPED_FILE.exists():
        return {}
    try:
        return msgspec.json.decode(read_bytes(SHIPPED_FILE), type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError) as error:  # msgspec raises UnicodeDecodeError too.
        raise _broken(SHIPPED_FILE, error) from error


def _broken(path: Path, error: Exception) -> ProblemError:
    return ProblemError(f"{path}: {error}", hint="write the file anew: warpgrade problems decide --output FILE")
