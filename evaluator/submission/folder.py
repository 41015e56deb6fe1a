"""Submissions in folders: a submission of several files, and a folder of many submissions.

The folder is hostile: only regular files are read, no part of a path may be a link, and numbers and sizes have
limits.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from evaluator.errors import UsageError
from evaluator.files.safe_open import NotRegular, read_found
from evaluator.findings import Code, finding
from evaluator.protocol.submission_files import (
    MANIFEST,
    MOST_FILES,
    MOST_MANIFEST_BYTES,
    SUFFIXES,
    BadFiles,
    bad_path,
    checked,
    joined,
    parts,
    read_manifest,
)
from evaluator.records import Finding

_MOST_ENTRIES = 1024
"""Limit on the listed names of a folder, files of other kinds included."""


def is_submission_folder(folder: Path | str) -> bool:
    """Return whether `folder` has a manifest, and is therefore a submission."""
    return os.path.lexists(os.path.join(folder, MANIFEST))  # noqa: PTH118 - a batch asks this of each folder


def possible_files(folder: Path) -> list[Path]:
    """Return the manifest of a submission's folder, and all files that the submission may have.

    Of a folder with too many files, only the manifest.
    """
    try:
        paths = _listed(folder)
    except (BadFiles, OSError):
        paths = []
    return [folder / MANIFEST, *(folder / path for path in paths)]


def read_folder_text(folder: Path, most_bytes: int, found_in: Path | None = None) -> str | Finding:
    """Return the files of a submission's folder as one text, or a finding with the reason why not.

    `found_in` is the folder with `folder` in the listing; no part of the path below may be a link.

    Raises:
        OSError: the folder cannot be listed, or a file cannot be read.
    """
    top = folder if found_in is None else found_in
    try:
        text = _read(folder, most_bytes, top)
        # An editor or a download replaces file after file: no mixture of two states is graded.
        is_same = _read(folder, most_bytes, top) == text
    except BadFiles as error:
        return finding(Code.BAD_FILES, str(error))
    return text if is_same else finding(Code.BAD_FILES, "the folder changed while its files were read")


def _read(folder: Path, most_bytes: int, top: Path) -> str:
    text = _text(folder, MANIFEST, MOST_MANIFEST_BYTES, top)
    manifest = read_manifest(text)
    extension = manifest.extension.sources if manifest.extension is not None else []
    paths = dict.fromkeys([manifest.entry, *(manifest.sources or _listed(folder)), *extension])
    if len(paths) >= MOST_FILES:
        raise BadFiles(f"more than {MOST_FILES} files; list `sources` in {MANIFEST}")
    files, bytes_left = [(MANIFEST, text)], most_bytes
    for path in paths:
        if (reason := bad_path(path)) is not None:
            raise BadFiles(f"{path[:100]!r}: {reason}")
        files.append((path, _text(folder, path, bytes_left, top)))
        bytes_left -= len(files[-1][1].encode())
    submission_text = joined(files)
    checked(parts(submission_text))
    return submission_text


def _text(folder: Path, path: str, most_bytes: int, top: Path) -> str:
    try:
        data = read_found(top, (folder / path).relative_to(top).as_posix(), max(most_bytes, 0))
    except NotRegular as error:
        raise BadFiles(f"{path[:100]!r} is refused: {error.strerror}") from error
    except FileNotFoundError as error:
        raise BadFiles(f"{path[:100]!r} does not exist") from error
    if len(data) > most_bytes:
        raise BadFiles(f"{path}: the files of a submission are larger than allowed together")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFiles(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error


def _listed(folder: Path) -> list[str]:
    """List the files of a folder with the suffixes of a submission, links included: reading refuses links."""
    paths: list[str] = []
    pending = [""]
    entries = 0
    while pending:
        top = pending.pop()
        for entry in _entries(folder / top):
            entries += 1
            if entries > _MOST_ENTRIES:
                raise BadFiles(f"the folder lists more than {_MOST_ENTRIES} names; list `sources` in {MANIFEST}")
            if entry.name.startswith((".", "__pycache__")):
                continue
            path = f"{top}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                pending.append(f"{path}/")
            elif os.path.splitext(entry.name)[1] in SUFFIXES:  # noqa: PTH122 - a plain name
                paths.append(path)
    return sorted(paths)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as listed:
        yield from listed


ANSWER_SUFFIXES = frozenset({".py", ".txt", ".md", ".markdown"})
_KERNELBENCH_FILE = re.compile(r"level_(?P<level>\d+)_problem_(?P<number>\d+)_sample_(?P<sample>\d+)(?:_kernel)?")
_BESIDE_KERNELS = re.compile(
    r"(?:level_\d+_problem_\d+_sample_\d+_prompt|(?:prompt|eval_result)_level_\d+_problem_\d+)\.txt"
)
"""Prompts and evaluations that KernelBench writes beside a kernel."""


class SubmissionNames(NamedTuple):
    """Names of problem and submission in a path. The problem `.` is none: no folder names a problem."""

    problem: str
    name: str


def spelled(path: Path | str) -> str:
    """Return a path as text; bytes that are no UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def names_in(path: Path, folder: Path) -> SubmissionNames:
    """Return the names of problem and submission in a path below `folder`."""
    if match := _KERNELBENCH_FILE.fullmatch(path.stem):
        return SubmissionNames(f"level{int(match['level'])}/{int(match['number'])}", f"sample_{int(match['sample'])}")
    name = path.stem if path.suffix.lower() == ".py" and path.is_file() else path.name
    return SubmissionNames(spelled(path.relative_to(folder).parent.as_posix()), spelled(name))


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
