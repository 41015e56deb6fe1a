"""Submissions of several files as one text: a first line, then each file after a line with its path.

One text keeps everything else simple: cards, replays, JSON lines and the library carry a submission of several files
like any other. Line numbers of findings are lines of the text; `place_of` gives the file and the line in the file. Time
is linear in the text.
"""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import NamedTuple

FIRST_LINE = "#@ warpgrade submission of several files"
_MARK = "#@ file "
MANIFEST = "submission.toml"
SOURCE_SUFFIXES = frozenset((".cu", ".cpp", ".cc", ".cxx"))
HEADER_SUFFIXES = frozenset((".cuh", ".h", ".hpp", ".hh", ".inl", ".inc"))
SUFFIXES = SOURCE_SUFFIXES | HEADER_SUFFIXES | {".py"}
MOST_FILES = 64
MOST_PARTS = 4
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}\Z")
_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+-]{0,199}\Z")
"""Without a dot: every file that a build writes beside the submission's files has one, so no folder takes its place."""


class Part(NamedTuple):
    """A file of a submission. Line n of `text` is line n + `lines_before` of the submission's text."""

    path: str
    text: str
    lines_before: int


class Place(NamedTuple):
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
    return None if _FILE.match(file) else f"{file[:60]!r} is no file name here"


def clashing_path(paths: Iterable[str]) -> str | None:
    """Return a path that occurs twice or is also a folder of another path; None without such a path.

    >>> clashing_path(["a.cu", "a.cu/b.cu"]), clashing_path(["a.cu", "b/a.cu"])
    ('a.cu', None)
    """
    listed = list(paths)
    folders = {str(folder) for path in listed for folder in PurePosixPath(path).parents}
    seen: set[str] = set()
    for path in listed:
        if path in seen or path in folders:
            return path
        seen.add(path)
    return None


def joined(files: Iterable[tuple[str, str]]) -> str:
    """Return files, as paths and texts, as one text. Every file ends with a newline.

    Raises:
        BadFiles: a path is not allowed, or a line of a file would begin another file.
    """
    lines = [FIRST_LINE, "\n"]
    for path, text in files:
        if (why := bad_path(path)) is not None:
            raise BadFiles(f"{path[:100]!r}: {why}")
        if text.startswith(_MARK) or f"\n{_MARK}" in text:
            raise BadFiles(f"{path}: no line of a file may begin with {_MARK!r}")
        lines += [_MARK, path, "\n", text, "" if not text or text.endswith("\n") else "\n"]
    return "".join(lines)


def parts(text: str) -> list[Part]:
    r"""Return the files of a submission of several files; empty for any other text.

    >>> parts(joined([("a.py", "x"), ("b.cu", "y\nz")]))
    [Part(path='a.py', text='x\n', lines_before=2), Part(path='b.cu', text='y\nz\n', lines_before=4)]
    """
    if not is_several(text):
        return []
    found: list[Part] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith(_MARK):
            found.append(Part(line.removeprefix(_MARK), "", number))
    bodies = re.split(rf"^{_MARK}[^\n]*(?:\n|\Z)", text, flags=re.MULTILINE)[1:]
    return [part._replace(text=body) for part, body in zip(found, bodies, strict=True)]


def python_files(text: str) -> list[Part]:
    """Return the Python files of a submission; a single file has no path."""
    if not is_several(text):
        return [Part("", text, 0)]
    return [part for part in parts(text) if part.path.endswith(".py")]


def cpp_files(text: str) -> list[Part]:
    """Return the C++ and CUDA files of a submission of several files, headers included."""
    return [part for part in parts(text) if PurePosixPath(part.path).suffix in SOURCE_SUFFIXES | HEADER_SUFFIXES]


def place_of(text: str, line: int) -> Place:
    """Return the place of a line of a submission's text."""
    inside = [part for part in parts(text) if part.lines_before < line]
    if not inside:
        return Place(None, text, line)
    return Place(inside[-1].path, inside[-1].text, line - inside[-1].lines_before)
