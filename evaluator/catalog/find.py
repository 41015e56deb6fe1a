"""Listing of problems, and lookup by name or path."""

import itertools
import os
import re
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.catalog import kernelbench
from evaluator.catalog.folder import PROBLEM_FILE, REFERENCE_FILE, no_problem, problem_name, read_folder
from evaluator.catalog.kernelbench import Row, is_numbered, is_rows, level_of, read_rows
from evaluator.catalog.other_benchmarks import (
    DEFINITION_FILE,
    SHAPES_FILES,
    has_shapes,
    is_definition,
    read_definition_problem,
    read_shapes_problem,
)
from evaluator.catalog.text import Origin
from evaluator.errors import ProblemError, ProblemNotFound
from evaluator.paths import data_dir
from evaluator.records import Problem

_DEEPEST = 4
"""Limit of the parts of a problem's path below the folder: the path is the problem's name, and a card's folder."""
_MOST_ENTRIES = 100_000
"""Limit of files and folders seen in a search."""
WHAT_COUNTS = (
    f"a problem is a folder NAME/ with {PROBLEM_FILE} and {REFERENCE_FILE}, a file NAME.py with Model, get_inputs and "
    f"get_init_inputs, KernelBench's levelN/NUMBER_Name.py, or a folder NAME/ with {DEFINITION_FILE}, shapes.py, "
    f"shapes.json or task.yml, at most {_DEEPEST} folders deep"
)
OWN_PROBLEMS = Path("problems")
"""Folder for problems of `warpgrade new problem`, below the current folder."""


class Listing(NamedTuple):
    """Content of a folder: problems sorted by level and name, and the errors of unreadable problems."""

    problems: list[Problem]
    broken: list[ProblemError]


class _Location(NamedTuple):
    """Location of a problem not yet read. `found_in` is passed to `read_bytes`. A `row` is in the file at `path`.

    `name` is that of the problem, also where a path to it would give another one.
    """

    name: str
    path: Path
    origin: Origin
    found_in: Path | None
    row: Row | None = None

    def is_called(self, name: str) -> bool:
        """Return whether `name` is a name of the problem. A folder has no name with the ending of a file."""
        called = name.removesuffix(".py") if self.origin is Origin.KERNELBENCH else name
        return called in _names(self.name, self.origin)

    def read(self) -> Problem:
        problem = self._problem()
        return problem if problem.name == self.name else replace(problem, name=self.name)

    def _problem(self) -> Problem:
        if self.row is not None:
            return kernelbench.problem_of(self.name, self.row.level, str(self.path), self.row.code)
        if self.origin is Origin.KERNELBENCH:
            return kernelbench.read_file(self.path, found_in=self.found_in)
        if self.origin is Origin.DEFINITION:
            return (read_shapes_problem if has_shapes(self.path) else read_definition_problem)(self.path, self.found_in)
        return read_folder(self.path, self.origin, self.found_in)


def list_problems(folder: Path | None = None) -> Listing:
    """Read every problem in `folder`, or every shipped problem. A broken problem does not hide the others.

    Raises:
        ProblemError: the folder does not exist.
    """
    problems = []
    locations, broken = _locations(folder)
    for location in locations:
        try:
            problems.append(location.read())
        except ProblemError as error:
            broken.append(error)
    return Listing(sorted(problems, key=lambda problem: (problem.level, natural(problem.name))), broken)


def find_problem(name: str, folder: Path | None = None) -> Problem:
    """Read the problem with that name or path; no other problem is read.

    Args:
        name: a name in `folder`, or the path of a problem's folder or of a file in KernelBench's form. An unambiguous
            short name suffices: the last parts of a name, of a KernelBench file also `level1/19`. Names take
            precedence over paths: `./relu` is always a path.
        folder: where names are looked up, or a file of KernelBench's rows; None for the shipped problems.

    Raises:
        ProblemNotFound: no problem matches, or several do; contains the nearest names, or a path in `OWN_PROBLEMS`.
        ProblemError: the problem exists and is broken, the path is a folder without a problem, or the search for the
            name ended at its limit.
    """
    locations, broken = _locations(folder)
    if (listed := _listed(name, locations)) is not None:
        return listed.read()
    at_path = _location_at(Path(name))
    if at_path is not None:
        return at_path.read()
    if "/" in name and os.path.isdir(name):  # noqa: PTH112 - of any text
        raise no_problem(Path(name), REFERENCE_FILE)
    if broken:
        raise broken[0]
    path = OWN_PROBLEMS / name
    nearest = [str(path)] if name.isidentifier() and _location_at(path) is not None else _nearest(name, locations)
    raise not_found(name, nearest, shipped=folder is None)


def not_found(name: str, nearest: list[str], *, shipped: bool) -> ProblemNotFound:
    """Return the error of an unknown name, with the `nearest` names.

    Among the `shipped` problems, a name of KernelBench has a hint about KernelBench's files instead.
    """
    elsewhere = kernelbench.WHERE if shipped and kernelbench.looks_like_one(name) else None
    return ProblemNotFound(name, nearest if elsewhere is None else [], elsewhere)


def find_listed(name: str, folder: Path | None = None) -> Problem:
    """Read the problem with that name in `folder`, or among the shipped problems. Paths are not accepted.

    Raises:
        ProblemNotFound: no problem matches, or several do; contains the nearest names.
        ProblemError: the problem exists and is broken, or the search for the name ended at its limit.
    """
    locations, broken = _locations(folder)
    if (listed := _listed(name, locations)) is None:
        if broken:
            raise broken[0]
        raise ProblemNotFound(name, _nearest(name, locations))
    return listed.read()


def _listed(name: str, locations: list[_Location]) -> _Location | None:
    """Return the location with that name or short name, or None. Raises ProblemNotFound if several match."""
    exact = [location for location in locations if location.name == name]
    matches = exact or [location for location in locations if location.is_called(name)]
    if len(matches) > 1:
        raise ProblemNotFound(name, [location.name for location in matches], is_ambiguous=True)
    return matches[0] if matches else None


class _Found(NamedTuple):
    """The locations of all problems in a folder, sorted by name, and the error of a search that ended at its limit."""

    locations: list[_Location]
    broken: list[ProblemError]


def _locations(folder: Path | None) -> _Found:
    top = data_dir("problems") if folder is None else folder
    origin = Origin.WARPGRADE if folder is None else Origin.FOLDER
    if is_rows(top):
        rows = sorted(read_rows(top).items(), key=lambda item: natural(item[0]))
        return _Found([_Location(name, top, Origin.KERNELBENCH, None, row) for name, row in rows], [])
    try:
        children = list(top.iterdir())
    except OSError as error:
        raise ProblemError(
            f"{top}: cannot read: {error.strerror or error}", hint="name a folder of problems"
        ) from error
    # An installer may have linked the shipped problems.
    found_in = None if folder is None else top
    files = kernelbench.problem_files(top)
    nested = _Nested([], [], is_cut=False) if folder is None else _nested_problems(folder)
    locations = [
        _Location(_stem(path, top), path, kind, found_in)
        for path in (*children, *nested.paths)
        if (kind := _kind(path, origin)) is not None
    ]
    known = set(files)
    numbered = [path for path in nested.numbered if path not in known]
    counts = Counter(kernelbench.problem_name(file) for file in (*files, *numbered))
    for file in (*files, *numbered):
        name = kernelbench.problem_name(file)
        name = name if counts[name] == 1 or file in known else _stem(file, top)
        locations.append(_Location(name, file, Origin.KERNELBENCH, found_in))
    broken = []
    if nested.is_cut:
        message = f"{top}: only its first {_MOST_ENTRIES} files and folders were searched for problems"
        broken.append(ProblemError(message, hint="name a folder nearer to the problems"))
    return _Found(sorted(locations, key=lambda location: natural(location.name)), broken)


class _Nested(NamedTuple):
    """Problems below a folder: `paths` of folders and of FlashInfer-Trace's definitions, numbered files of KernelBench.

    `is_cut`: the search ended at its limit, and problems may be missing.
    """

    paths: list[Path]
    numbered: list[Path]
    is_cut: bool


def _nested_problems(top: Path) -> _Nested:
    """Return the problems at least two levels below `top`; the others are the caller's.

    A folder of a problem is not searched, nor is a link or a hidden folder. A `reference.py` alone marks no problem:
    any tree may have one.
    """
    found = _Nested([], [], is_cut=False)
    seen = 0
    pending = deque([(top, 0)])
    while pending:
        folder, depth = pending.popleft()
        entries = _entries(folder, _MOST_ENTRIES - seen + 1)
        seen += len(entries)
        if seen > _MOST_ENTRIES:
            return found._replace(is_cut=True)
        if depth and _has_problem({entry.name for entry in entries}):
            if depth > 1:
                found.paths.append(folder)
            continue
        if depth and depth < _DEEPEST:
            files = [folder / entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
            if "definitions" in (top.name, *folder.relative_to(top).parts):
                found.paths.extend(file for file in files if file.suffix == ".json")
            if level_of(folder) is not None:
                found.numbered.extend(file for file in files if is_numbered(file))
        if depth < _DEEPEST:
            inner = (each for each in entries if not each.name.startswith(".") and each.is_dir(follow_symlinks=False))
            pending.extend((folder / entry.name, depth + 1) for entry in inner)
    return found


def _entries(folder: Path, most: int) -> list["os.DirEntry[str]"]:
    """Return at most so many entries of a folder, by name, those with control characters or no UTF-8 left out.

    A folder that may not be read and searched is empty.
    """
    if not os.access(folder, os.R_OK | os.X_OK):
        return []
    try:
        with os.scandir(folder) as entries:
            printable = (entry for entry in entries if entry.name.isprintable())
            return sorted(itertools.islice(printable, most), key=lambda entry: entry.name)
    except OSError:
        return []


def _has_problem(names: set[str]) -> bool:
    with_reference = REFERENCE_FILE in names and not names.isdisjoint(SHAPES_FILES)
    return PROBLEM_FILE in names or DEFINITION_FILE in names or with_reference


def _stem(path: Path, top: Path) -> str:
    """Return the path below `top` as a name, of a file without the ending."""
    return (path.relative_to(top) if path.is_dir() else path.relative_to(top).with_suffix("")).as_posix()


def _kind(path: Path, of_folders: Origin) -> Origin | None:
    """Return the kind of the problem at a path that is no file of KernelBench; None without a problem.

    A single file marks a problem; the absence of the other is reported later. The same holds for a file of another
    kind, such as a dangling link.
    """
    if os.path.lexists(path / PROBLEM_FILE):
        return of_folders
    if is_definition(path) or has_shapes(path):
        return Origin.DEFINITION
    return of_folders if os.path.lexists(path / REFERENCE_FILE) else None


def _location_at(path: Path) -> _Location | None:
    # Functions of os.path: a name may be too long or contain a NUL, and a folder may be closed.
    if path.suffix == ".py" and os.path.isfile(path):  # noqa: PTH113
        return _Location(kernelbench.problem_name(path), path, Origin.KERNELBENCH, None)
    if (kind := _kind(path, Origin.FOLDER)) is None:
        return None
    is_folder = path.is_dir()
    return _Location(problem_name(path if is_folder else path.with_suffix("")), path, kind, path if is_folder else None)


def names_of(problem: Problem) -> tuple[str, ...]:
    """Return all names of a problem: its own, and the short names."""
    return _names(problem.name, problem.origin)


def _names(name: str, origin: str) -> tuple[str, ...]:
    """Return a name, its last parts, and of a file in KernelBench's form the names with its number.

    >>> _names("pmpp_v2/sort_py", Origin.DEFINITION), _names("level1/19_ReLU", Origin.KERNELBENCH)
    (('pmpp_v2/sort_py', 'sort_py'), ('level1/19_ReLU', '19_ReLU', 'level1/19'))
    """
    parts = name.split("/")
    names = ["/".join(parts[first:]) for first in range(len(parts))]
    if origin == Origin.KERNELBENCH:
        names = [called for each in names[: max(1, len(names) - 1)] for called in kernelbench.other_names(each)]
    return tuple(dict.fromkeys(names))


def nearest_names(name: str, problems: Iterable[Problem]) -> list[str]:
    """Return the names of problems whose full or short name resembles `name`, ignoring case."""
    return _resembling(name, ((called, problem.name) for problem in problems for called in names_of(problem)))


def _nearest(name: str, locations: list[_Location]) -> list[str]:
    aliases = ((alias, each.name) for each in locations for alias in _names(each.name, each.origin))
    return _resembling(name, aliases)


def _resembling(name: str, names: Iterable[tuple[str, str]]) -> list[str]:
    """Return the full names whose name resembles `name`, ignoring case, from pairs of a name and its full name."""
    import difflib

    spelled = {called.lower(): full for called, full in names}
    close_names = difflib.get_close_matches(name.lower(), spelled, n=3)
    return list(dict.fromkeys(spelled[close_name] for close_name in close_names))


def natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Return a sort key that orders numbers in a name numerically: 2 before 19. Numbers may have any length."""
    parts = [part.lstrip("0") if part.isdecimal() else part for part in re.split(r"(\d+)", name.lower())]
    return [(1, 0, part) if number % 2 == 0 else (0, len(part), part) for number, part in enumerate(parts)], name
