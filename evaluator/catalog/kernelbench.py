"""KernelBench's problems, used in place: files such as `level1/19_ReLU.py`, and rows of JSON lines or Parquet.

No problem needs an additional file. The rows are those of the public data set.
"""

import hashlib
import io
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from evaluator.catalog.reference import REQUIRED_NAMES, ParsedReference, read_reference
from evaluator.catalog.strict import Table, parsed, table
from evaluator.catalog.text import MAX_FILE_BYTES, Origin, decode, read_bytes
from evaluator.errors import ProblemError
from evaluator.records import Case, Constant, Problem, Sha256, SizeName, cases_of

_SIZES_FILE = Path(__file__).resolve().parent.parent / "kernelbench_sizes.json"
_LEVEL_FOLDER = re.compile(r"level([0-9]{1,9})")
"""The digits of a `LevelNumber`."""
_NUMBERED_FILE = re.compile(r"[0-9]+_.*\.py")
_NUMBERED_NAME = re.compile(r"(?:level[0-9]+/)[0-9]+\w*|[0-9]+_\w+")
_NO_LEVEL = 0
MOST_LEVEL = 999_999_999
_LONGEST_NAME = 200
WHERE = (
    "problems of KernelBench are not shipped: add --problems DIR, a checkout of KernelBench, or the folder that "
    "`warpgrade problems get kernelbench` makes"
)


class SmallSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Constants that make a known file small enough for a laptop; the others keep the values in the file."""

    name: str
    small: dict[str, Constant]


@cache
def shipped_small_sizes() -> Mapping[Sha256, SmallSize]:
    """Read the shipped table of small sizes, keyed by the sha256 of the file."""
    return msgspec.json.decode(_SIZES_FILE.read_bytes(), type=dict[Sha256, SmallSize])


def level_of(folder: Path) -> int | None:
    """Return the level in a folder's name (`level2`), or None."""
    match = _LEVEL_FOLDER.fullmatch(folder.resolve().name)
    return int(match[1]) if match else None


def problem_files(tree: Path) -> list[Path]:
    """Return the files of a tree that are problems.

    Of a level's folder, a folder of levels, or a checkout of KernelBench: the numbered files. Of any other folder: all
    files directly inside that have the names of a reference.
    """
    if level_of(tree) is not None:
        folders, references = [tree], []
    else:
        folders = [folder for top in (tree, tree / "KernelBench") for folder in top.glob("level*")]
        folders = [folder for folder in folders if level_of(folder) is not None]
        references = [file for file in tree.glob("*.py") if _is_a_reference(file)]
    numbered = [file for folder in folders for file in folder.glob("*.py") if is_numbered(file)]
    return [*references, *numbered]


def is_numbered(file: Path) -> bool:
    """Return whether a file's name is that of a problem in a level's folder: `19_ReLU.py`."""
    return _NUMBERED_FILE.fullmatch(file.name) is not None


def _is_a_reference(file: Path) -> bool:
    """Return whether a file without a number has the names of a reference: other programs may lie beside problems."""
    try:
        data = read_bytes(file, file.parent)
    except ProblemError:
        return False
    return all(name.encode() in data for name in REQUIRED_NAMES)


def problem_name(file: Path) -> str:
    """Return a file's name with its level: `level1/19_ReLU`. Outside a level's folder, the stem alone."""
    folder = file.parent.resolve()
    return file.stem if level_of(folder) is None else f"{folder.name}/{file.stem}"


def other_names(name: str) -> tuple[str, ...]:
    """Return all names of a file; the short names may match several files.

    >>> other_names("level1/19_ReLU")
    ('level1/19_ReLU', '19_ReLU', 'level1/19')
    """
    level, _, stem = name.rpartition("/")
    return name, stem, f"{level}/{stem.partition('_')[0]}"


def looks_like_one(name: str) -> bool:
    """Return whether a name has the form of KernelBench's names, full or short.

    >>> [looks_like_one(name) for name in ("level1/19_ReLU", "level1/19", "19_ReLU.py", "relu")]
    [True, True, True, False]
    """
    return _NUMBERED_NAME.fullmatch(name.removesuffix(".py")) is not None


def read_file(file: Path, found_in: Path | None = None) -> Problem:
    """Read a problem in KernelBench's form; the level is 0 if the folder names none. `found_in` is for `read_bytes`.

    Raises:
        ProblemError: the file cannot be read, or lacks `Model`, `get_inputs` or `get_init_inputs`.
    """
    return problem_of(problem_name(file), level_of(file.parent) or _NO_LEVEL, str(file), read_bytes(file, found_in))


def read_text(source: str, name: str) -> Problem:
    """Read a problem in KernelBench's form from its text. No file is read, for any name.

    Raises:
        ProblemError: the name is invalid, the text is too large or not Python, or the text lacks `Model`, `get_inputs`
            or `get_init_inputs`.
    """
    if not name.isprintable() or not name.strip() or len(name) > _LONGEST_NAME:
        hint = "use letters, digits, - and _: my_softmax"
        raise ProblemError(f"{name[:_LONGEST_NAME]!r} is not a valid problem name", hint=hint)
    data = source.encode("utf-8", "surrogatepass")
    if len(data) > MAX_FILE_BYTES:
        raise ProblemError(f"the text of {name} is larger than {MAX_FILE_BYTES >> 20} MiB, the limit for a problem")
    return problem_of(name, _NO_LEVEL, f"<problem {name}>", data)


def problem_of(name: str, level: int, path: str, data: bytes) -> Problem:
    """Return the problem in the bytes of a text, with the shipped small size of a known file. `path` is for messages.

    The constants in the text are the full size.
    """
    source = decode(data, path)
    reference = read_reference(source, path)
    sha256 = hashlib.sha256(data).hexdigest()
    stem = name.rpartition("/")[2]
    return Problem(
        name=name,
        title=" ".join(re.sub(r"^\d+_", "", stem).replace("_", " ").split()) or stem,
        level=level,
        description=" ".join(reference.docstring.partition("\n\n")[0].split()),
        origin=Origin.KERNELBENCH,
        path=path,
        source=source,
        sha256=sha256,
        cases=_cases(reference, shipped_small_sizes().get(sha256), path),
    )


def _cases(reference: ParsedReference, small: SmallSize | None, path: str) -> dict[str, Case]:
    full = {name: literal.value for name, literal in reference.constants.items()}
    if small is None:
        return cases_of({SizeName.FULL: full})
    unknown = [name for name in small.small if name not in full]
    if unknown:
        message = f"{path}: its small size in {_SIZES_FILE.name} sets {', '.join(unknown)}, which it does not define"
        raise ProblemError(message)
    return cases_of({SizeName.FULL: full, SizeName.SMALL: {**full, **small.small}})


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
