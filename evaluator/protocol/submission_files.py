"""Submissions of several files as one text: a first line, then each file after a line with its path.

One text keeps everything else simple: cards, replays, JSON lines and the library carry a submission of several files
like any other. Line numbers of findings are lines of the text; `place_of` gives the file and the line in the file. Time
is linear in the text.
"""

import functools
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import NamedTuple

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
