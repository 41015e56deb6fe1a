"""One row for each submission of a run: CSV, JSON, Parquet."""

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from evaluator.errors import UsageError
from evaluator.files.card_files import write_whole

SUFFIXES = (".csv", ".json", ".parquet")
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufeff]")
"""Control characters, without white space, and the byte-order mark."""


class SubmissionRow(NamedTuple):
    """Row of one submission. Only correct submissions have speedups.

    Rows of status `missing` or `refused` have neither device nor times. Status `refused` has a `refusal`, the reason,
    and maybe an unknown `problem` without a `level`.

    `reference_calls` and `submission_calls` are the kinds of calls behind the speedup: windows or single calls. `l2` is
    the state of the inputs in the L2 cache. `host_bound`: calls of a side wait for the host rather than for the GPU.
    `benchmark_correct` and `benchmark_rule` are as on the card.
    """

    problem: str
    level: int | None
    name: str
    status: str
    reason: str | None
    built: bool
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    device: str | None
    device_name: str | None
    wall_s: float | None
    graded_at: str | None
    problem_sha256: str
    submission_sha256: str | None
    origin: str | None
    mode: str | None
    reference_calls: str | None = None
    submission_calls: str | None = None
    l2: str | None = None
    host_bound: bool | None = None
    refusal: str | None = None
    benchmark_correct: bool | None = None
    benchmark_rule: str | None = None


def no_formula(text: str) -> str:
    r"""Return text without control characters that a spreadsheet does not parse as a formula.

    A carriage return becomes a line feed: Python's csv quotes no carriage return, which begins a new row.

    >>> no_formula("=1+1"), no_formula("relu"), no_formula(" -x"), no_formula("\x00=1"), no_formula("a\r=1")
    ("'=1+1", 'relu', "' -x", "'=1", 'a\n=1')
    """
    text = _CONTROL.sub("", text).replace("\r", "\n")
    return f"'{text}" if text.lstrip().startswith(_FORMULA) or text[:1] in {"\t", "\n"} else text


def check_suffix(path: Path) -> None:
    """Raise UsageError for a file of another format."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path} is not a file of rows", hint=f"end the name with {' or '.join(SUFFIXES)}")


def write_rows(path: Path, rows: Iterable[SubmissionRow]) -> None:
    """Write rows to a file, whose suffix selects the format. The file is replaced as a whole.

    Raises:
        OSError: the file cannot be written.
        UsageError: the format is unknown, or its package is missing.
    """
    check_suffix(path)
    match path.suffix.lower():
        case ".csv":
            content = _csv(rows)
        case ".json":
            content = msgspec.json.format(msgspec.json.encode([row._asdict() for row in rows]), indent=2) + b"\n"
        case _:
            content = _parquet(rows)
    write_whole(path, content)


def _csv(rows: Iterable[SubmissionRow]) -> bytes:
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow(SubmissionRow._fields)
    for row in rows:
        table.writerow([no_formula(cell) if isinstance(cell, str) else cell for cell in row])
    return buffer.getvalue().encode("utf-8", "backslashreplace")


def _parquet(rows: Iterable[SubmissionRow]) -> bytes:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError("Parquet needs the package pyarrow", hint="pip install 'warpgrade[parquet]'") from error
    numbers = {"speedup", "speedup_low", "speedup_high", "wall_s"}
    flags = ("built", "host_bound", "benchmark_correct")
    kinds = {"level": arrow.int64()} | dict.fromkeys(flags, arrow.bool_()) | dict.fromkeys(numbers, arrow.float64())
    layout = arrow.schema([(name, kinds.get(name, arrow.string())) for name in SubmissionRow._fields])
    buffer = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist([row._asdict() for row in rows], schema=layout), buffer)
    return buffer.getvalue()
