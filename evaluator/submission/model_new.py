"""The entry class of a submission: its names, and text checks of whether a text can define the class.

Text matching in linear time: nothing is parsed or run. A text able to create a name at run time (exec, `import *`, a
module's `__getattr__`) counts as able to define every class.
"""

import keyword
import re
import unicodedata
from collections.abc import Sequence

NAME = "ModelNew"
OTHER_NAME = "Model"
"""Name of the class in benchmarks that replace the reference's file; graded where no ModelNew is defined."""
MOST_CHARACTERS = 100
_MADE_BY_RUNNING = re.compile(
    r"\b(?:exec|eval|compile|locals|vars|setattr|modules|importlib|import_module|runpy|ctypes|pickle|marshal|codecs|gc)\b"
    r"|globals|__getattr__|__import__|__dict__|__builtins__|\bimport\b[\s\\(]*+\*"
)
_PYTHON_LINE = re.compile(
    r"^(?:import[ \t]++[\w.]++(?:[ \t]++as[ \t]++\w++)?[ \t]*+(?:$|[,;#\r])|from[ \t]++[\w.]++[ \t]++import\b"
    r"|(?:async[ \t]++)?def[ \t]++\w++[ \t]*+\(|class[ \t]++\w++[ \t]*+[(:]|@\w|exec[ \t]*+\("
    r"|[A-Za-z_]\w*+[ \t]*+=(?!=))",
    re.MULTILINE,
)
_BEFORE_PYTHON = re.compile(r"(?:[ \t\r]*+(?:#[^\n]*+)?\n)*+")
_DOCSTRING = re.compile(r"""[rR]?(?:"{3}|'{3})""")
_ASCII = 127


def entries_of(entry: str | None) -> tuple[str, ...]:
    """Return the names of the entry class, the preferred name first: `entry`, or by default ModelNew, else Model."""
    return (NAME, OTHER_NAME) if entry is None else (entry,)


def entry_name(value: str) -> None:
    """Raise ValueError unless `value` can name an entry class: an ASCII identifier of at most 100 characters."""
    if not (
        value.isascii() and value.isidentifier() and not keyword.iskeyword(value) and len(value) <= MOST_CHARACTERS
    ):
        raise ValueError(f"{value[:MOST_CHARACTERS]!r} is not the name of a Python class")


def can_define(text: str, entries: Sequence[str]) -> bool:
    """Return whether running `text` could define one of the names `entries`.

    >>> can_define("class Net: pass", ["ModelNew"]), can_define("exec(code)", ["ModelNew"]), can_define("", ["Model"])
    (False, True, False)
    """
    match = re.search(rf"\b(?:{'|'.join(entries)})\b", text)
    return match is not None or _MADE_BY_RUNNING.search(text) is not None or _has_other_spellings(text)


def looks_like_python(text: str) -> bool:
    """Return whether a line at the margin is Python rather than prose, or all lines are comments.

    >>> looks_like_python("import torch"), looks_like_python("I import a kernel from the past.")
    (True, False)
    """
    return _PYTHON_LINE.search(text) is not None or _is_comments_alone(text)


def starts_like_python(text: str) -> bool:
    r"""Return whether the first line, apart from comments and blank lines, is Python or opens a docstring.

    >>> starts_like_python("# ReLU\nimport torch"), starts_like_python("So:\nimport torch")
    (True, False)
    """
    before = _BEFORE_PYTHON.match(text)
    start = 0 if before is None else before.end()
    return _PYTHON_LINE.match(text, start) is not None or _DOCSTRING.match(text, start) is not None


def _is_comments_alone(text: str) -> bool:
    """Return whether all lines are comments: a title in prose may begin with `#` too."""
    return text.startswith("#") and all(line.startswith("#") for line in text.split("\n") if line.strip())


def _has_other_spellings(text: str) -> bool:
    """Return whether `text` contains letters that Python normalizes to ASCII in names (full-width, bold and others)."""
    if text.isascii():
        return False
    return any(unicodedata.normalize("NFKC", character).isascii() for character in set(text) if ord(character) > _ASCII)
