"""Use a file of KernelBench in place: `level1/19_ReLU.py` is a problem without any file of ours beside it."""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from evaluator.catalog.origin import Origin
from evaluator.catalog.reference import Reference, read_reference
from evaluator.catalog.text import decode, read_bytes
from evaluator.errors import ProblemError
from evaluator.records import Constant, Mode, Precision, Problem, Sha256, SizeName, ToleranceOverride

_SIZES_FILE = Path(__file__).resolve().parent.parent / "kernelbench_sizes.json"
_LEVEL_FOLDER = re.compile(r"level([0-9]+)")
_NUMBERED_FILE = re.compile(r"[0-9]+_.*\.py")
_NUMBERED_NAME = re.compile(r"(?:level[0-9]+/)[0-9]+\w*|[0-9]+_\w+")
_NO_LEVEL = 0
WHERE = "problems of KernelBench are not shipped: add --problems DIR, the folder of a checkout of KernelBench"


class SmallSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The constants that make a known file small enough for a laptop; the others stay as they are written."""

    name: str
    small: dict[str, Constant]


SmallSizes = Mapping[Sha256, SmallSize]


@cache
def shipped_small_sizes() -> SmallSizes:
    """Read the shipped table: the small sizes, by the sha256 of the file that they belong to."""
    return msgspec.json.decode(_SIZES_FILE.read_bytes(), type=dict[Sha256, SmallSize])


def level_of(folder: Path) -> int | None:
    """Give the level that a folder's name says (`level2`), if it does."""
    found = _LEVEL_FOLDER.fullmatch(folder.resolve().name)
    return int(found[1]) if found else None


def problem_files(tree: Path) -> list[Path]:
    """Find the numbered files of a tree: a level's folder itself, or one that holds levels, or a checkout of theirs."""
    if level_of(tree) is not None:
        folders = [tree]
    else:
        folders = [each for top in (tree, tree / "KernelBench") for each in top.glob("level*")]
        folders = [each for each in folders if level_of(each) is not None]
    return [file for folder in folders for file in folder.glob("*.py") if _NUMBERED_FILE.fullmatch(file.name)]


def problem_name(file: Path) -> str:
    """Name a file by its level and stem: `level1/19_ReLU`. A file outside of a level's folder has its stem alone."""
    folder = file.parent.resolve()
    return file.stem if level_of(folder) is None else f"{folder.name}/{file.stem}"


def other_names(name: str) -> tuple[str, ...]:
    """Give the other ways to say a file's name; the short ones may stand for several files.

    >>> other_names("level1/19_ReLU")
    ('level1/19_ReLU', '19_ReLU', 'level1/19')
    """
    level, _, stem = name.rpartition("/")
    return name, stem, f"{level}/{stem.partition('_')[0]}"


def looks_like_one(name: str) -> bool:
    """Say whether a name is spelled as KernelBench's are, in full or in short.

    >>> [looks_like_one(name) for name in ("level1/19_ReLU", "level1/19", "19_ReLU.py", "relu")]
    [True, True, True, False]
    """
    return _NUMBERED_NAME.fullmatch(name.removesuffix(".py")) is not None


def read_file(file: Path, small_sizes: SmallSizes | None = None, found_in: Path | None = None) -> Problem:
    """Read a problem in KernelBench's form. The constants written in the file are its full size.

    Args:
        file: the file; a level of 0 says that its folder names none.
        small_sizes: what stands in for the shipped table.
        found_in: as `read_bytes` has it.

    Raises:
        ProblemError: it cannot be read, or lacks `Model`, `get_inputs` or `get_init_inputs`.
    """
    data = read_bytes(file, found_in)
    source = decode(data, file)
    reference = read_reference(source, str(file))
    sha256 = hashlib.sha256(data).hexdigest()
    table = shipped_small_sizes() if small_sizes is None else small_sizes
    return Problem(
        name=problem_name(file),
        title=_title(file),
        level=level_of(file.parent) or _NO_LEVEL,
        description=" ".join(reference.docstring.partition("\n\n")[0].split()),
        origin=Origin.KERNELBENCH,
        path=str(file),
        source=source,
        sha256=sha256,
        sizes=_sizes(reference, table.get(sha256), file),
        precision=Precision.FP32,
        mode=Mode.TRAIN,
        backward=False,
        tolerance=ToleranceOverride(),
        split={},
    )


def _title(file: Path) -> str:
    return " ".join(re.sub(r"^\d+_", "", file.stem).replace("_", " ").split()) or file.stem


def _sizes(reference: Reference, small: SmallSize | None, file: Path) -> dict[SizeName, dict[str, Constant]]:
    full = {name: literal.value for name, literal in reference.constants.items()}
    if small is None:
        return {SizeName.FULL: full}
    unknown = [name for name in small.small if name not in full]
    if unknown:
        message = f"{file}: its small size in {_SIZES_FILE.name} sets {', '.join(unknown)}, which it does not define"
        raise ProblemError(message)
    return {SizeName.FULL: full, SizeName.SMALL: {**full, **small.small}}
