"""List problems, and find the one that a name or a path means."""

import difflib
import re
from pathlib import Path
from typing import NamedTuple

from evaluator.catalog import kernelbench
from evaluator.catalog.folder import PROBLEM_FILE, REFERENCE_FILE, problem_name, read_folder
from evaluator.catalog.origin import Origin
from evaluator.errors import ProblemError, ProblemNotFound
from evaluator.paths import data_dir
from evaluator.records import Problem

OWN_PROBLEMS = Path("problems")
"""Where `warpgrade new problem` puts a problem, below the current folder."""


class Listing(NamedTuple):
    """What a folder holds: the problems by level and name, and what is wrong with those that cannot be read."""

    problems: list[Problem]
    broken: list[ProblemError]


class _Place(NamedTuple):
    """A problem that was seen in a folder and not yet read."""

    name: str
    path: Path
    origin: Origin

    def read(self) -> Problem:
        if self.origin is Origin.KERNELBENCH:
            return kernelbench.read_file(self.path)
        return read_folder(self.path, self.origin)


def list_problems(folder: Path | None = None) -> Listing:
    """Read every problem in `folder`, or the shipped ones. A broken one does not hide the others.

    Raises:
        ProblemError: there is no such folder.
    """
    problems, broken = [], []
    for place in _places(folder):
        try:
            problems.append(place.read())
        except ProblemError as error:
            broken.append(error)
    return Listing(sorted(problems, key=lambda each: (each.level, _natural(each.name))), broken)


def find_problem(name: str, folder: Path | None = None) -> Problem:
    """Read the one problem that `name` means; its neighbours are not read.

    Args:
        name: a name in `folder` (for a KernelBench file also `19_ReLU` or `level1/19`, where only one is meant), or
            the path of a problem's folder or of a file in KernelBench's form. Names go before paths: `./relu` is
            always a path.
        folder: where names are looked up; the shipped problems where None.

    Raises:
        ProblemNotFound: nothing has that name; carries the nearest ones, or the path of one in `OWN_PROBLEMS`.
        ProblemError: it is there and broken.
    """
    places = _places(folder)
    exact = [place for place in places if place.name == name]
    meant = exact or [place for place in places if name.removesuffix(".py") in _other_names(place)]
    if len(meant) == 1:
        return meant[0].read()
    if meant:
        raise ProblemNotFound(name, [place.name for place in meant])
    at_path = _place_at(Path(name))
    if at_path is not None:
        return at_path.read()
    own = OWN_PROBLEMS / name
    nearest = [str(own)] if name.isidentifier() and _place_at(own) is not None else _nearest(name, places)
    raise ProblemNotFound(name, nearest)


def _places(folder: Path | None) -> list[_Place]:
    """See which problems a folder holds, in the order of their names."""
    top = data_dir("problems") if folder is None else folder
    own = Origin.WARPGRADE if folder is None else Origin.FOLDER
    try:
        children = list(top.iterdir())
    except OSError as error:
        raise ProblemError(
            f"{top}: cannot be read: {error.strerror or error}", hint="name a folder of problems"
        ) from error
    places = [_Place(child.name, child, own) for child in children if _is_problem_folder(child)]
    files = kernelbench.problem_files(top)
    places += [_Place(kernelbench.problem_name(file), file, Origin.KERNELBENCH) for file in files]
    return sorted(places, key=lambda place: _natural(place.name))


def _is_problem_folder(path: Path) -> bool:
    # Either file is enough to be meant as a problem: the lack of the other is then reported, not passed over.
    return _is_file(path / PROBLEM_FILE) or _is_file(path / REFERENCE_FILE)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # A name that is too long, or a folder that may not be entered.
        return False


def _place_at(path: Path) -> _Place | None:
    if path.suffix == ".py" and _is_file(path):
        return _Place(kernelbench.problem_name(path), path, Origin.KERNELBENCH)
    if _is_problem_folder(path):
        return _Place(problem_name(path), path, Origin.FOLDER)
    return None


def _other_names(place: _Place) -> tuple[str, ...]:
    """Give what a place may be called besides its name. A problem's folder has no other: `relu.py` is a file."""
    return kernelbench.other_names(place.name) if place.origin is Origin.KERNELBENCH else ()


def _nearest(name: str, places: list[_Place]) -> list[str]:
    """Name the places that are spelled like `name`, in full or in short, whatever the case."""
    spelled = {called.lower(): place.name for place in places for called in (place.name, *_other_names(place))}
    near = difflib.get_close_matches(name.lower(), spelled, n=3)
    return list(dict.fromkeys(spelled[each] for each in near))


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Order numbers in a name as numbers: 2 before 19."""
    parts = re.split(r"(\d+)", name.lower())
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part]
