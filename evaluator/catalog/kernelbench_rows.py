"""KernelBench as rows: a file of JSON lines or Parquet, as in the public data set, used in place of a folder."""

import io
import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from evaluator.catalog.kernelbench import MOST_LEVEL
from evaluator.catalog.strict import Table, parsed, table
from evaluator.catalog.text import decode, read_bytes
from evaluator.errors import ProblemError

PARQUET = ".parquet"
SUFFIXES = (".jsonl", PARQUET)
_MOST_ROWS = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,199}")


class _Row(Table, frozen=True, kw_only=True):
    code: Annotated[str, msgspec.Meta(min_length=1)]
    name: str
    level: Annotated[int, msgspec.Meta(ge=0, le=MOST_LEVEL)] = 0
    problem_id: int | None = None


def is_rows(path: Path) -> bool:
    """Return whether a path names a file of rows."""
    return path.suffix in SUFFIXES and path.is_file()


class Row(NamedTuple):
    """A problem of a file: the level, and the text of the reference in UTF-8."""

    level: int
    code: bytes


def read_rows(file: Path) -> dict[str, Row]:
    """Return the problems of a file by name: `level1/19_ReLU`. No code is run.

    Raises:
        ProblemError: a row has other columns, or a name twice; or a Parquet file, and pyarrow is not installed.
    """
    data = read_bytes(file)
    rows = _parquet(data, file) if file.suffix == PARQUET else _lines(decode(data, file), file)
    if not rows or len(rows) > _MOST_ROWS:
        raise ProblemError(f"{file}: 1 to {_MOST_ROWS} rows are required")
    found: dict[str, Row] = {}
    for where, value in rows:
        row = table(value, _Row, where)
        if _NAME.fullmatch(row.name) is None:
            raise ProblemError(f"{where}: name: {row.name[:80]!r} cannot be a name", hint="such as 19_ReLU")
        name = f"level{row.level}/{row.name}" if row.level else row.name
        if name in found:
            raise ProblemError(f"{where}: name: {name} is there twice")
        found[name] = Row(row.level, row.code.encode())
    return found


def _lines(text: str, file: Path) -> list[tuple[str, Any]]:
    lines = [(f"{file}, line {number}", line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    return [(where, parsed(line, where)) for where, line in lines]


def _parquet(data: bytes, file: Path) -> list[tuple[str, Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        hint = "pip install 'warpgrade[parquet]', or save the rows as JSON lines"
        raise ProblemError(f"{file}: Parquet needs the package pyarrow", hint=hint) from error
    try:
        rows = parquet.read_table(io.BytesIO(data)).to_pylist()
    except (ArrowException, OSError, ValueError) as error:
        raise ProblemError(f"{file}: not Parquet: {error}") from error
    return [(f"{file}, row {number}", row) for number, row in enumerate(rows, 1)]
