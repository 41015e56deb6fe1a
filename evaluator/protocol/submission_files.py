"""Submissions of several files as one text: a first line, then each file after a line with its path.

One text keeps everything else simple: cards, replays, JSON lines and the library carry a submission of several files
like any other. Line numbers of findings are lines of the text; `place_of` gives the file and the line in the file. Time
is linear in the text. A manifest names the entry, the files, and an extension built before the import.
"""

import ast
import functools
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec

FIRST_LINE = "#@ warpgrade submission of several files"
_MARK = "#@ file "
FIRST_LINES_BEFORE = 2
"""Lines before the first file: the first line, and the line with the file's path."""
SINGLE_FILE = "submission.py"
"""Name of a submission of one file in a runner."""
MANIFEST = "submission.toml"
SOURCE_SUFFIXES = frozenset((".cu", ".cpp", ".cc", ".cxx"))
HEADER_SUFFIXES = frozenset((".cuh", ".h", ".hpp", ".hh", ".inl", ".inc"))
SUFFIXES = SOURCE_SUFFIXES | HEADER_SUFFIXES | {".py"}
MOST_FILES = 64
MOST_PARTS = 4
LONGEST_LABEL = 440
"""Limit on a place in words: the longest path, and a line."""
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}\Z")
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+-]{0,99}\Z")
"""Without a dot: the files of a build, beside the submission's files, have names with dots.

Compilers add up to a hundred bytes to a name, and a name has at most 255.
"""
_OF_NVCC = "cuda_runtime.h"
"""Header included by nvcc in every file, and searched first in the working folder."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
_LIKE_MARK = re.compile(r"^[^\S\n]*#@[^\S\n]", re.MULTILINE)


class SubmissionFile(NamedTuple):
    """A file of a submission. Line n of `text` is line n + `lines_before` of the submission's text."""

    path: str
    text: str
    lines_before: int


class SourceLocation(NamedTuple):
    """A line of a submission: the file's path, its text, and the line in the file. A single file has no path."""

    path: str | None
    text: str
    line: int

    @property
    def label(self) -> str:
        """The place in words."""
        return f"line {self.line}" if self.path is None else f"{self.path}, line {self.line}"


class BadFiles(ValueError):
    """The files of a submission are not allowed; the message names the file and the reason."""


def is_several(text: str) -> bool:
    """Return whether `text` is a submission of several files."""
    return text.startswith(f"{FIRST_LINE}\n")


def bad_path(path: str) -> str | None:
    """Return why `path` cannot be a file of a submission; None for a proper path.

    >>> bad_path("csrc/kernel.cu"), bad_path("../kernel.cu"), bad_path("csrc/")
    (None, "'..' is no folder name here", "'' is no file name here")
    """
    *folders, file = path.split("/")
    if len(folders) >= MOST_PARTS:
        return f"it lies more than {MOST_PARTS - 1} folders deep"
    wrong = next((folder for folder in folders if not _FOLDER.match(folder)), None)
    if wrong is not None:
        return f"{wrong[:60]!r} is no folder name here"
    if path == _OF_NVCC:
        return "nvcc would include this file instead of CUDA's own header"
    return None if _FILE.match(file) else f"{file[:60]!r} is no file name here"


def clashing_path(paths: Iterable[str]) -> str | None:
    """Return a path listed twice, or equal to a folder of another path; None for distinct paths.

    Case does not distinguish paths, as on macOS and Windows.

    >>> clashing_path(["a.cu", "a.cu/b.cu"]), clashing_path(["a.cu", "b/a.cu"]), clashing_path(["a.cu", "A.cu"])
    ('a.cu', None, 'A.cu')
    """
    listed = list(paths)
    folders = {str(folder).lower() for path in listed for folder in PurePosixPath(path).parents}
    earlier: set[str] = set()
    for path in listed:
        if path.lower() in earlier or path.lower() in folders:
            return path
        earlier.add(path.lower())
    return None


def bad_text(text: str) -> str | None:
    r"""Return why `text` cannot be the text of a submission's file; None for a proper text.

    A reader of the submission's text must see the same files as the parser. Screens and pages leave out control
    characters and invisible characters. Without them, a line may look like the line before a file.

    >>> bad_text("int f();"), bad_text("int f();\n\u200b#@ file b.cu")
    (None, 'line 2 begins like the line before a file: #@')
    """
    if (control := _CONTROL.search(text)) is not None:
        return f"line {_line_at(text, control)} has the control character {control[0]!r}"
    visible = text if text.isascii() else _visible(text)
    mark = _LIKE_MARK.search(visible)
    return None if mark is None else f"line {_line_at(visible, mark)} begins like the line before a file: #@"


def _visible(text: str) -> str:
    """Return a text without invisible characters, and with plain forms of wide characters and rare spaces."""
    rare = [char for char in set(text) if not char.isascii()]
    plain = {ord(char): unicodedata.normalize("NFKC", char)[:1] for char in rare}
    return text.translate(plain | {ord(char): "" for char in rare if unicodedata.category(char).startswith("C")})


def _line_at(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start()) + 1


def joined(files: Iterable[tuple[str, str]]) -> str:
    """Return files, as paths and texts, as one text. Every file ends with a newline.

    Raises:
        BadFiles: a path is not allowed, or a line of a file would begin another file.
    """
    lines = [FIRST_LINE, "\n"]
    for path, text in files:
        if (reason := bad_path(path)) is not None:
            raise BadFiles(f"{path[:100]!r}: {reason}")
        if (reason := bad_text(text)) is not None:
            raise BadFiles(f"{path}: {reason}")
        lines += [_MARK, path, "\n", text, "" if not text or text.endswith("\n") else "\n"]
    return "".join(lines)


def parts(text: str) -> list[SubmissionFile]:
    r"""Return the files of a submission of several files; empty for any other text.

    >>> parts(joined([("a.py", "x"), ("b.cu", "y\nz")]))[1:]
    [SubmissionFile(path='b.cu', text='y\nz\n', lines_before=4)]
    """
    return list(_parts(text)) if is_several(text) else []


@functools.lru_cache(maxsize=1)
def _parts(text: str) -> tuple[SubmissionFile, ...]:
    """Split a text of several files. Cached: a card has up to hundreds of lines to place."""
    marks = [number for number, line in enumerate(text.split("\n"), 1) if line.startswith(_MARK)]
    pieces = re.split(rf"^{_MARK}([^\n]*)(?:\n|\Z)", text, flags=re.MULTILINE)[1:]
    return tuple(map(SubmissionFile, pieces[::2], pieces[1::2], marks))


def python_files(text: str) -> list[SubmissionFile]:
    """Return the Python files of a submission; a single file has no path."""
    if not is_several(text):
        return [SubmissionFile("", text, 0)]
    return [file for file in parts(text) if file.path.endswith(".py")]


def cpp_files(text: str) -> list[SubmissionFile]:
    """Return the C++ and CUDA files of a submission of several files, headers included."""
    return [file for file in parts(text) if PurePosixPath(file.path).suffix in SOURCE_SUFFIXES | HEADER_SUFFIXES]


def line_of(text: str, file: str, line: int) -> int | None:
    r"""Return the line of a submission's text for `line` of a `file`; None without the file or the line.

    >>> text = joined([("a.py", "x"), ("b.cu", "y\nz")])
    >>> line_of(text, "b.cu", 2), line_of(text, "b.cu", 3), line_of("x", SINGLE_FILE, 1)
    (6, None, 1)
    """
    files = _parts(text) if is_several(text) else (SubmissionFile(SINGLE_FILE, text, 0),)
    source_file = next((source_file for source_file in files if source_file.path == file), None)
    if source_file is None or not 1 <= line <= len(source_file.text.splitlines()):
        return None
    return line + source_file.lines_before


def place_of(text: str, line: int) -> SourceLocation:
    """Return the place of a line of a submission's text."""
    files = _parts(text) if is_several(text) else ()
    inside = bisect_left(files, line, key=lambda file: file.lines_before)
    if not inside:
        return SourceLocation(None, text, line)
    file = files[inside - 1]
    return SourceLocation(file.path, file.text, line - file.lines_before)


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


class ParsedPython(NamedTuple):
    """The parsed Python files, and all statements as a module with lines of the submission's text.

    `invalid` are files that are not Python.
    """

    files: list[SubmissionFile]
    tree: ast.Module
    invalid: list[SubmissionFile] = []


def parsed_python(submission: str) -> ParsedPython:
    """Parse the Python files of a submission.

    Of several files, one may be invalid: perhaps no file imports it.

    Raises:
        SyntaxError, ValueError: the only file is not valid Python.
        RecursionError, MemoryError: a file nests too deeply.
    """
    if not is_several(submission):
        return ParsedPython(python_files(submission), ast.parse(submission))
    files: list[SubmissionFile] = []
    body: list[ast.stmt] = []
    invalid: list[SubmissionFile] = []
    for file in python_files(submission):
        try:
            tree = ast.parse(file.text)
        except (SyntaxError, ValueError):
            invalid.append(file)
            continue
        ast.increment_lineno(tree, file.lines_before)
        files.append(file)
        body += tree.body
    return ParsedPython(files, ast.Module(body, []), invalid)


def names_variables(source: str) -> bool:
    """Return whether a submission's text may set a variable that Triton reads at import.

    >>> names_variables("os.environ['TRITON_INTERPRET'] = '1'")
    True
    """
    return "TRITON_" in source
