"""Listing of problems, and lookup by name or path."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from evaluator.catalog import kernelbench
from evaluator.catalog.folder import PROBLEM_FILE, REFERENCE_FILE, no_problem, problem_name, read_folder
from evaluator.catalog.kernelbench import Row, is_rows, read_rows
from evaluator.catalog.other_benchmarks import (
    DEFINITION_FILE,
    has_shapes,
    is_definition,
    read_definition_problem,
    read_shapes_problem,
)
from evaluator.catalog.text import Origin
from evaluator.errors import ProblemError, ProblemNotFound
from evaluator.paths import data_dir
from evaluator.records import Problem

WHAT_COUNTS = (
    f"a problem is a folder NAME/ with {PROBLEM_FILE} and {REFERENCE_FILE}, a file NAME.py with Model, get_inputs and "
    f"get_init_inputs, KernelBench's levelN/NUMBER_Name.py, or a folder NAME/ with {DEFINITION_FILE}, shapes.py, "
    "shapes.json or task.yml"
)
OWN_PROBLEMS = Path("problems")
"""Folder for problems of `warpgrade new problem`, below the current folder."""


class Listing(NamedTuple):
    """Content of a folder: problems sorted by level and name, and the errors of unreadable problems."""

    problems: list[Problem]
    broken: list[ProblemError]


class _Location(NamedTuple):
    """Location of a problem not yet read. `found_in` is passed to `read_bytes`. A `row` is in the file at `path`."""

    name: str
    path: Path
    origin: Origin
    found_in: Path | None
    row: Row | None = None

    def read(self) -> Problem:
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
    problems, broken = [], []
    for location in _locations(folder):
        try:
            problems.append(location.read())
        except ProblemError as error:
            broken.append(error)
    return Listing(sorted(problems, key=lambda problem: (problem.level, natural(problem.name))), broken)


def find_problem(name: str, folder: Path | None = None) -> Problem:
    """Read the problem with that name or path; no other problem is read.

    Args:
        name: a name in `folder`, or the path of a problem's folder or of a file in KernelBench's form. For a
            KernelBench file, an unambiguous short name suffices: `19_ReLU` or `level1/19`. Names take precedence over
            paths: `./relu` is always a path.
        folder: where names are looked up, or a file of KernelBench's rows; None for the shipped problems.

    Raises:
        ProblemNotFound: no problem matches; contains the nearest names, or a path in `OWN_PROBLEMS`.
        ProblemError: the problem exists and is broken, or the path is a folder without a problem.
    """
    locations = _locations(folder)
    if (listed := _listed(name, locations)) is not None:
        return listed.read()
    at_path = _location_at(Path(name))
    if at_path is not None:
        return at_path.read()
    if "/" in name and _is_folder(Path(name)):
        raise no_problem(Path(name), REFERENCE_FILE)
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
        ProblemNotFound: no problem matches; contains the nearest names.
        ProblemError: the problem exists and is broken.
    """
    locations = _locations(folder)
    if (listed := _listed(name, locations)) is None:
        raise ProblemNotFound(name, _nearest(name, locations))
    return listed.read()


def _listed(name: str, locations: list[_Location]) -> _Location | None:
    """Return the location with that name or short name, or None. Raises ProblemNotFound if several match."""
    exact = [location for location in locations if location.name == name]
    matches = exact or [location for location in locations if name.removesuffix(".py") in _other_names(location)]
    if len(matches) > 1:
        raise ProblemNotFound(name, [location.name for location in matches])
    return matches[0] if matches else None


def _locations(folder: Path | None) -> list[_Location]:
    """Return the locations of all problems in a folder, sorted by name."""
    top = data_dir("problems") if folder is None else folder
    origin = Origin.WARPGRADE if folder is None else Origin.FOLDER
    if is_rows(top):
        rows = sorted(read_rows(top).items(), key=lambda item: natural(item[0]))
        return [_Location(name, top, Origin.KERNELBENCH, None, row) for name, row in rows]
    try:
        children = list(top.iterdir())
    except OSError as error:
        raise ProblemError(
            f"{top}: cannot read: {error.strerror or error}", hint="name a folder of problems"
        ) from error
    # An installer may have linked the shipped problems.
    found_in = None if folder is None else top
    locations = [_Location(child.name, child, origin, found_in) for child in children if _is_problem_folder(child)]
    locations += [_Location(each.name, each, Origin.DEFINITION, found_in) for each in children if _is_definition(each)]
    files = kernelbench.problem_files(top)
    locations += [_Location(kernelbench.problem_name(file), file, Origin.KERNELBENCH, found_in) for file in files]
    return sorted(locations, key=lambda location: natural(location.name))


def _is_problem_folder(path: Path) -> bool:
    # A single file marks a problem; the absence of the other is reported later. The same holds for a file of another
    # kind, such as a dangling link.
    return _is_there(path / PROBLEM_FILE) or (_is_there(path / REFERENCE_FILE) and not _is_definition(path))


def _is_definition(path: Path) -> bool:
    try:
        return (is_definition(path) or has_shapes(path)) and not _is_there(path / PROBLEM_FILE)
    except (OSError, ValueError):
        return False


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except (OSError, ValueError):
        # The name is too long or contains a NUL, or the folder may not be entered.
        return False
    return True


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _location_at(path: Path) -> _Location | None:
    if path.suffix == ".py" and _is_file(path):
        return _Location(kernelbench.problem_name(path), path, Origin.KERNELBENCH, None)
    if _is_problem_folder(path):
        return _Location(problem_name(path), path, Origin.FOLDER, path)
    if _is_definition(path):
        return _Location(problem_name(path.with_suffix("")), path, Origin.DEFINITION, path if path.is_dir() else None)
    return None


def _other_names(location: _Location) -> tuple[str, ...]:
    """Return the short names of a location. A problem's folder has none: `relu.py` is a file."""
    return kernelbench.other_names(location.name) if location.origin is Origin.KERNELBENCH else ()


def names_of(problem: Problem) -> tuple[str, ...]:
    """Return all names of a problem: of a file in KernelBench's form also the short names."""
    return kernelbench.other_names(problem.name) if problem.origin == Origin.KERNELBENCH else (problem.name,)


def nearest_names(name: str, problems: Iterable[Problem]) -> list[str]:
    """Return the names of problems whose full or short name resembles `name`, ignoring case."""
    return _resembling(name, ((called, problem.name) for problem in problems for called in names_of(problem)))


def _nearest(name: str, locations: list[_Location]) -> list[str]:
    aliases = ((alias, location.name) for location in locations for alias in (location.name, *_other_names(location)))
    return _resembling(name, aliases)


def _resembling(name: str, names: Iterable[tuple[str, str]]) -> list[str]:
    """Return the full names whose name resembles `name`, from pairs of a name and its full name."""
    import difflib

    spelled = {called.lower(): full for called, full in names}
    close_names = difflib.get_close_matches(name.lower(), spelled, n=3)
    return list(dict.fromkeys(spelled[close_name] for close_name in close_names))


def natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Return a sort key that orders numbers in a name numerically: 2 before 19. Numbers may have any length."""
    parts = [part.lstrip("0") if part.isdecimal() else part for part in re.split(r"(\d+)", name.lower())]
    return [(1, 0, part) if number % 2 == 0 else (0, len(part), part) for number, part in enumerate(parts)], name
