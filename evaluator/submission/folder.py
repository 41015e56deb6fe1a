"""Reading of a submission's folder into one text: the manifest, then the files. Nothing is run.

The folder is hostile: only regular files are read, no part of a path may be a link, and numbers and sizes have
limits.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from evaluator.files.safe_open import NotRegular, read_found
from evaluator.findings import Code, finding
from evaluator.protocol.submission_files import (
    MANIFEST,
    MOST_FILES,
    SUFFIXES,
    BadFiles,
    bad_path,
    joined,
    parts,
)
from evaluator.protocol.submission_manifest import MOST_MANIFEST_BYTES, checked, read_manifest
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
