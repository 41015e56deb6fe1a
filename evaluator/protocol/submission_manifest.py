"""The manifest of a submission of several files: its entry, its files, and an extension built before the import."""

import re
from collections.abc import Sequence

import msgspec

from evaluator.protocol.submission_files import (
    FIRST_LINES_BEFORE,
    MANIFEST,
    MOST_FILES,
    SOURCE_SUFFIXES,
    SUFFIXES,
    BadFiles,
    SubmissionFile,
    bad_path,
    bad_text,
    clashing_path,
)

MOST_MANIFEST_BYTES = 8 << 10
"""Time of the TOML parser is quadratic in the length of a dotted key."""


_LONGEST_KEY = 100
_FIELD = re.compile(r"(?P<kind>unknown|missing required) field `(?P<name>.*)`", re.DOTALL)
_TYPES = re.compile(r"got `(?P<got>\w+)`")
_TOML_TYPES = {
    "str": "a text",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "datetime": "a time",
    "date": "a date",
    "time": "a time",
}
_FLAGS = 'a list of texts, such as ["-O3"]'
_MEANINGS = {
    "entry": "the path of the Python file that defines ModelNew",
    "sources": 'a list of paths, such as ["kernel.cu"]',
    "extension": "a table [extension]",
    "name": "the name by which the entry imports the extension",
    "extra_cflags": _FLAGS,
    "extra_cuda_cflags": _FLAGS,
    "extra_ldflags": _FLAGS,
}
"""Meaning of each key."""


class Extension(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[extension]`: the arguments of PyTorch's `load`. Without `sources`, all C++ and CUDA sources."""

    name: str
    sources: list[str] = []
    extra_cflags: list[str] = []
    extra_cuda_cflags: list[str] = []
    extra_ldflags: list[str] = []


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A submission.toml. `entry` defines ModelNew; without `sources`, all files of the folder belong to it."""

    entry: str
    sources: list[str] = []
    extension: Extension | None = None


def read_manifest(text: str) -> Manifest:
    """Parse a manifest.

    Raises:
        BadFiles: the text is no manifest.
    """
    if len(text) > MOST_MANIFEST_BYTES:
        raise BadFiles(f"{MANIFEST} is larger than {MOST_MANIFEST_BYTES >> 10} KiB")
    try:
        return msgspec.toml.decode(text, type=Manifest)
    except RecursionError as error:
        raise BadFiles(f"{MANIFEST}: nested too deeply") from error
    except msgspec.ValidationError as error:
        raise BadFiles(f"{MANIFEST}: {_explained(str(error))}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise BadFiles(f"{MANIFEST} is not TOML: {error}") from error


def _explained(complaint: str) -> str:
    """Convert msgspec's `what - at `$.where`` into a sentence with the key and the allowed values."""
    reason, _, location = complaint.partition(" - at ")
    key = location.strip("`").removeprefix("$").removeprefix(".")
    if (match := _FIELD.search(reason)) is not None:
        name = match["name"][:_LONGEST_KEY]
        if match["kind"] == "unknown":
            allowed = Extension if key == "extension" else Manifest
            table = f" in [{key}]" if key else " at the top"
            return f"unknown key {name!r}{table}; allowed: {', '.join(allowed.__struct_fields__)}"
        return f"the key {name} is required{f' in [{key}]' if key else ''}: {_MEANINGS[name]}"
    match = _TYPES.search(reason)
    got = _TOML_TYPES.get(match["got"], match["got"]) if match is not None else "another value"
    expected = "a text" if key.endswith("]") else _MEANINGS[key.rpartition(".")[2]]
    return f"{key} is {got}, not {expected}"


def checked(files: Sequence[SubmissionFile]) -> Manifest:
    """Return the manifest of the files of a submission, checked against the files.

    Raises:
        BadFiles: a file is not allowed, or the manifest names a missing file.
    """
    _check_files(files)
    texts = {file.path: file.text for file in files}
    if MANIFEST not in texts:
        raise BadFiles(f"no file is named {MANIFEST}")
    manifest = read_manifest(texts[MANIFEST])
    extension = manifest.extension
    for path in [manifest.entry, *manifest.sources, *(extension.sources if extension else [])]:
        if path not in texts:
            raise BadFiles(f"{MANIFEST} names {path[:100]!r}, which is not among the files")
    if not manifest.entry.endswith(".py"):
        raise BadFiles(f"{MANIFEST}: entry is the Python file that defines ModelNew, not {manifest.entry}")
    if extension is not None and not extension_sources(manifest, files):
        raise BadFiles(f"{MANIFEST}: the extension has no C++ or CUDA source")
    return manifest


def _check_files(files: Sequence[SubmissionFile]) -> None:
    """Raise BadFiles for too many files, and for a path or a text that is not allowed."""
    if files and files[0].lines_before != FIRST_LINES_BEFORE:
        raise BadFiles("there is text before the first file")
    if len(files) > MOST_FILES:
        raise BadFiles(f"{len(files)} files; a submission has at most {MOST_FILES}")
    for path, text, _ in files:
        if (reason := bad_path(path) or _bad_suffix(path) or bad_text(text)) is not None:
            raise BadFiles(f"{path[:100]!r}: {reason}")
    if (twice := clashing_path(file.path for file in files)) is not None:
        raise BadFiles(f"{twice} occurs twice, differs from another path only in case, or is also a folder's name")


def extension_sources(manifest: Manifest, files: Sequence[SubmissionFile]) -> list[str]:
    """Return the paths of the sources of the manifest's extension."""
    listed = manifest.extension.sources if manifest.extension is not None else []
    return listed or [file.path for file in files if _suffix(file.path) in SOURCE_SUFFIXES]


def _bad_suffix(path: str) -> str | None:
    if path == MANIFEST or _suffix(path) in SUFFIXES:
        return None
    return f"a submission's files end in {', '.join(sorted(SUFFIXES))}"


def _suffix(path: str) -> str:
    return path[path.rfind(".") :] if "." in path else ""
