"""Stored decisions about a problem: input distributions, and independent rows of inputs.

A lock applies to a single text of the problem and a single version of the rules. A problem's folder has the lock in
`profiles.lock.toml`; `stored_locks.py` finds the lock of a bare file.
"""

import json
import tomllib
from pathlib import Path

import msgspec

from evaluator.catalog.text import read_bytes
from evaluator.errors import ProblemError
from evaluator.records import Problem, Profile, Record, RowSite, Sha256, SizeName

LOCK_FILE = "profiles.lock.toml"

_HEADER = """\
# Written by `warpgrade problems validate --write`: which value profiles are used at each size, and why others are not.
"""


class SizeLock(Record, frozen=True, omit_defaults=True, forbid_unknown_fields=False):
    """Decisions for one size.

    `distances` are the distances of wrong answers by distribution and output (`judge/setup/wrong_answers.py`). With the
    distributions in `evidence`, wrong answers are far beyond the tolerance.
    """

    use: list[Profile]
    left_out: dict[Profile, str] = {}
    distances: dict[Profile, dict[str, float]] = {}
    evidence: list[Profile] = []


class RowSitesLock(Record, frozen=True, omit_defaults=True):
    """Row sites found by trial at the small size. `rules` is the version of the trial.

    `elementwise` has the paths of outputs without sums; None in the lock of an earlier version without the trial.
    """

    rules: int
    sites: list[RowSite] = []
    elementwise: list[str] | None = None


class Lock(Record, frozen=True):
    """A lock file. `problem` is the sha256 of the problem, `rules` the version of the input distributions."""

    problem: Sha256
    rules: int
    sizes: dict[SizeName, SizeLock] = {}
    row_sites: RowSitesLock | None = None


def read_lock(path: Path, *, shipped: bool = False) -> Lock | None:
    """Read a lock; None without a file. The lock of a `shipped` problem may be a link, created by an installer.

    Raises:
        ProblemError: the file exists, but is broken or not a regular file.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ProblemError(f"{path}: {error.strerror or error}") from error
    data = read_bytes(path, None if shipped else path.parent)
    try:
        return msgspec.convert(tomllib.loads(data.decode("utf-8")), Lock)
    except (ValueError, RecursionError) as error:  # tomllib's, msgspec's and the decoder's errors are ValueErrors
        raise ProblemError(f"{path}: {error}", hint="write a new lock: warpgrade problems validate --write") from error


def fits(lock: Lock | None, problem: Problem, rules: int) -> bool:
    """Return whether a lock applies to the text of `problem` and to the input distributions of `rules`."""
    return lock is not None and lock.problem == problem.sha256 and lock.rules == rules


def lock_text(lock: Lock) -> str:
    """Return a lock as TOML, with the same text every time."""
    lines = [_HEADER.rstrip("\n"), f"problem = {_text(lock.problem)}", f"rules = {lock.rules}"]
    for name in SizeName:
        if (size := lock.sizes.get(name)) is None:
            continue
        lines += ["", f"[sizes.{name.value}]", _names("use", size.use), _names("evidence", size.evidence)]
        if size.left_out:
            lines += [f"[sizes.{name.value}.left_out]"]
            lines += [f"{profile.value} = {_text(reason)}" for profile, reason in size.left_out.items()]
        for profile, distances in size.distances.items():
            lines += [f"[sizes.{name.value}.distances.{profile.value}]"]
            lines += [f"{_text(path)} = {distance:.2e}" for path, distance in distances.items()]
    if lock.row_sites is not None:
        lines += ["", "[row_sites]", f"rules = {lock.row_sites.rules}", *_site_lines(lock.row_sites.sites)]
        if (paths := lock.row_sites.elementwise) is not None:
            lines += [f"elementwise = [{', '.join(map(_text, paths))}]"]
    return "\n".join(lines) + "\n"


def _names(key: str, profiles: list[Profile]) -> str:
    return f"{key} = [{', '.join(_text(profile.value) for profile in profiles)}]"


def _site_lines(sites: list[RowSite]) -> list[str]:
    """Return the lines of an array of sites, a line for each site."""
    if not sites:
        return []
    outputs = [", ".join(f"{_text(path)} = {dim}" for path, dim in site.outputs.items()) for site in sites]
    tables = [
        f"    {{ tensor = {site.tensor}, dim = {site.dim}, outputs = {{ {paths} }}{_kinds(site)} }},"
        for site, paths in zip(sites, outputs, strict=True)
    ]
    return ["sites = [", *tables, "]"]


def _kinds(site: RowSite) -> str:
    """Return the kinds of rows that the reference does not take."""
    kinds = (("signs", site.signs), ("concentrated", site.concentrated))
    return "".join(f", {kind} = false" for kind, is_taken in kinds if not is_taken)


def _text(value: str) -> str:
    """Quote a string. TOML's basic strings allow the same characters as JSON's, except DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
