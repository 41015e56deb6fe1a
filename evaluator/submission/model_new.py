"""Text checks of a submission: whether it can define ModelNew, and whether it looks like Python.

Text matching in linear time: nothing is parsed or run. A text able to create the name at run time (exec, `import *`, a
module's `__getattr__`) counts as able to define ModelNew.
"""

import re
import unicodedata

NAME = "ModelNew"
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
_ASCII = 127


def can_define_model_new(text: str) -> bool:
    """Return whether running `text` could define ModelNew.

    >>> can_define_model_new("class Model: pass"), can_define_model_new("exec(code)"), can_define_model_new("")
    (False, True, False)
    """
    return NAME in text or _MADE_BY_RUNNING.search(text) is not None or _has_other_spellings(text)


def looks_like_python(text: str) -> bool:
    """Return whether a line at the margin is Python rather than prose, or all lines are comments.

    >>> looks_like_python("import torch"), looks_like_python("I import a kernel from the past.")
    (True, False)
    """
    return _PYTHON_LINE.search(text) is not None or _is_comments_alone(text)


def _is_comments_alone(text: str) -> bool:
    """Return whether all lines are comments: a title in prose may begin with `#` too."""
    return text.startswith("#") and all(line.startswith("#") for line in text.split("\n") if line.strip())


def _has_other_spellings(text: str) -> bool:
    """Return whether `text` contains letters that Python normalizes to ASCII in names (full-width, bold and others)."""
    if text.isascii():
        return False
    return any(unicodedata.normalize("NFKC", each).isascii() for each in set(text) if ord(each) > _ASCII)
