"""Files below a folder that may be submissions, and the names of problem and submission in their paths."""

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from evaluator.errors import UsageError
from evaluator.submission.folder import is_submission_folder

ANSWER_SUFFIXES = frozenset({".py", ".txt", ".md", ".markdown"})
_KERNELBENCH_FILE = re.compile(r"level_(?P<level>\d+)_problem_(?P<number>\d+)_sample_(?P<sample>\d+)(?:_kernel)?")
_BESIDE_KERNELS = re.compile(
    r"(?:level_\d+_problem_\d+_sample_\d+_prompt|(?:prompt|eval_result)_level_\d+_problem_\d+)\.txt"
)
"""Prompts and evaluations that KernelBench writes beside a kernel."""


class Names(NamedTuple):
    """Names of problem and submission in a path. The problem `.` is none: no folder names a problem."""

    problem: str
    name: str


def spelled(path: Path | str) -> str:
    """Return a path as text; bytes that are no UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def names_in(path: Path, folder: Path) -> Names:
    """Return the names of problem and submission in a path below `folder`."""
    if match := _KERNELBENCH_FILE.fullmatch(path.stem):
        return Names(f"level{int(match['level'])}/{int(match['number'])}", f"sample_{int(match['sample'])}")
    name = path.stem if path.suffix.lower() == ".py" and path.is_file() else path.name
    return Names(spelled(path.relative_to(folder).parent.as_posix()), spelled(name))


def runs_of_kernelbench(paths: Iterable[str]) -> list[Path]:
    """Return the folders of two runs of KernelBench with a submission of the same name; empty without such folders."""
    first: dict[str, Path] = {}
    for path in map(Path, paths):
        if _KERNELBENCH_FILE.fullmatch(path.stem):
            before = first.setdefault(path.stem, path.parent)
            if before != path.parent:
                return [before, path.parent]
    return []


def submission_files(folder: Path) -> list[tuple[str, int]]:
    """List the paths below `folder` that may be submissions, grouped by problem, with their file modes.

    Links to folders are included, because a link may stand for a folder of submissions.

    Raises:
        UsageError: the folder does not exist or cannot be listed.
    """
    # Strings instead of Paths: 100 000 Paths take seconds.
    paths: list[tuple[str, int]] = []
    pending = [str(folder)]
    while pending:
        top = pending.pop()
        try:
            with os.scandir(top) as listed:
                entries = [entry for entry in listed if not entry.name.startswith(".")]
            entries.sort(key=lambda entry: entry.name)
            folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
            files = [(entry, _mode(entry)) for entry in entries if not entry.is_dir(follow_symlinks=False)]
        except OSError as error:
            hint = "name a folder of submissions"
            raise UsageError(f"cannot list {error.filename or top}: {error.strerror}", hint=hint) from error
        several = [entry for entry in folders if is_submission_folder(entry.path)]
        paths += [(f"{top}/{entry.name}", stat.S_IFDIR) for entry in several]
        paths += [(f"{top}/{entry.name}", mode) for entry, mode in files if _may_be_meant(entry, mode)]
        inner = [entry for entry in folders if entry not in several and not entry.name.startswith("__pycache__")]
        pending += [f"{top}/{entry.name}" for entry in reversed(inner)]
    return paths


def _mode(entry: os.DirEntry[str]) -> int:
    """Return the file mode, without a `stat` call if the directory entry names the type."""
    return stat.S_IFREG if entry.is_file(follow_symlinks=False) else entry.stat(follow_symlinks=False).st_mode


def _may_be_meant(entry: os.DirEntry[str], mode: int) -> bool:
    if _BESIDE_KERNELS.fullmatch(entry.name):
        return False
    has_suffix = entry.name[entry.name.rfind(".") :].lower() in ANSWER_SUFFIXES
    return has_suffix or (stat.S_ISLNK(mode) and entry.is_dir())
