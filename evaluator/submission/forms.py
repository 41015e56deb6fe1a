"""Answers in a wrong form, and texts with an early end."""

import itertools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from evaluator.findings import Code, finding
from evaluator.findings.submission import ADD_CLASS, COMPLETE_FILE, NO_JSON, ONE_BLOCK, RENAME, WITH_PYTHON
from evaluator.protocol.submission_files import is_several
from evaluator.records import Finding
from evaluator.submission.model_new import looks_like_python

_WORD = r"[A-Za-z`][\w'\u2019`-]{0,30}[,.!:]?"
_CODE_WORDS = (
    "import|from|class|def|if|elif|else|for|while|with|try|except|finally|assert|return|del|raise|async|await|lambda|not|"
    "global|nonlocal|yield|pass|static|inline|const|constexpr|template|typename|unsigned|signed|extern|struct|enum|"
    "union|using|namespace|typedef|void|int|long|short|float|double|char|bool|auto"
)
_PROSE = re.compile(rf"[\s>*#\d.-]{{0,12}}+(?!(?:{_CODE_WORDS})\b){_WORD}(?: +{_WORD}){{2}}")
_CODE_SIGNS = re.compile(r"[;={}\\]|\w\(|\)\s*:?\s*$")
_DIFF = re.compile(r"^(?:diff --git |--- \S|\*\*\* Begin Patch|@@ -\d|<{5,7} ?(?:SEARCH|ORIGINAL|HEAD))", re.MULTILINE)
_JSON = re.compile(r"""\s*+[\[{]\s*+["'{\[]""")
_CPP = re.compile(r"__global__\b|^[ \t]*+#[ \t]*+include\b|\bPYBIND11_MODULE\b|\btorch::Tensor\b", re.MULTILINE)
_CLASS = re.compile(r"^class[ \t]+(?P<name>[A-Za-z_]\w{0,80})[ \t]*(?:\([^\n)]*\)[ \t]*)?:[ \t\r]*$", re.MULTILINE)
_MOST_NAMES = 3
_OTHER_TEXT = (
    "the class is not in plain Python: the text is in another format, or has line numbers, prompts, escaped line ends"
)
_READ = 400
"""Characters of a line that decide whether the line is prose."""


class TextBlock(NamedTuple):
    """A block of the answer, or the whole answer. `line` is the first line of `text` in the submission, from 1."""

    text: str
    line: int


def is_prose(line: str) -> bool:
    """Return whether a line is a sentence, or a part of one, rather than code.

    >>> is_prose("Here is the kernel:"), is_prose("import torch"), is_prose("static inline float f(")
    (True, False, False)
    """
    line = line[:_READ]
    return _PROSE.match(line) is not None and _CODE_SIGNS.search(line) is None


def about_syntax(line: str) -> str | None:
    """Return why `line`, at which Python's parser failed, is no code (fence, tag, prose); None for code."""
    stripped = line.strip()[:_READ]
    if stripped.startswith(("```", "~~~")):
        return "is the fence of a block"
    if stripped.startswith("<") and stripped.endswith(">"):
        return "is a tag"
    return "is prose" if is_prose(line) else None


def is_diff(text: str) -> bool:
    """Return whether a text begins like a diff or patch."""
    return _DIFF.match(text.lstrip()) is not None


def is_json(text: str) -> bool:
    """Return whether a text begins like JSON, or like a dict or list of Python with strings."""
    return _JSON.match(text) is not None


def prose_before_code(answer: TextBlock) -> Finding | None:
    """Return the finding for an answer without blocks that begins with prose; None for any other answer."""
    for number, line in enumerate(answer.text.split("\n"), start=answer.line):
        if line.strip():
            return not_python(number, "is prose") if is_prose(line) else None
    return None


def not_python(line: int, description: str, detail: str = "") -> Finding:
    """Return the finding for a line that is no Python."""
    message = f"line {line} {description}, not Python{f': {detail}' if detail else ''}"
    return finding(Code.WRONG_FORM, message, line=line, next_step=ONE_BLOCK)


def without_code(answer: TextBlock, blocks: list[TextBlock], entries: Sequence[str], left_out: str) -> Finding:
    """Return the finding for an answer that defines none of the classes `entries`.

    `blocks` are the fenced blocks. `left_out` says what does not count, or is empty.
    """
    pieces, names = blocks or [answer], " or ".join(entries)
    entry = re.compile(rf"(?:\b|\\n)class[ \t]+(?:{'|'.join(map(re.escape, entries))})\b")
    form = (
        _other_classes(blocks)
        or _first(pieces, is_diff, "the answer is a diff", COMPLETE_FILE)
        or _first(pieces, is_json, "the answer is JSON", NO_JSON)
        or _first(pieces, entry.search, _OTHER_TEXT, ONE_BLOCK)
        or _first(pieces, _is_python_with_cpp, "the answer has Python with C++ or CUDA", ADD_CLASS)
        or _first(pieces, _CPP.search, "the answer has C++ or CUDA without Python", WITH_PYTHON)
    )
    if form is None:
        return finding(Code.NO_CODE, f"no fenced block of the answer defines {names}{left_out}")
    piece, description, step = form
    has_entry = description == _OTHER_TEXT
    message = f"{description}{'' if has_entry else f', and no class {names}'}{left_out}"
    return finding(Code.WRONG_FORM, message, line=piece.line, next_step=step)


def _is_python_with_cpp(text: str) -> bool:
    return _CPP.search(text) is not None and looks_like_python(text)


def _first(
    pieces: list[TextBlock], is_of_form: Callable[[str], object], description: str, step: str
) -> tuple[TextBlock, str, str] | None:
    return next(((piece, description, step) for piece in pieces if is_of_form(piece.text)), None)


def defined_classes(text: str) -> list[str]:
    """Return the names of the first few classes at the top level of a Python text."""
    return [match["name"] for match in itertools.islice(_CLASS.finditer(text), _MOST_NAMES)]


def _other_classes(blocks: list[TextBlock]) -> tuple[TextBlock, str, str] | None:
    """Return the last block that defines classes of Python, with the classes."""
    for block in reversed(blocks):
        names = defined_classes(block.text)
        if names:
            return block, f"the answer defines {', '.join(names)}", RENAME
    return None


_INCOMPLETE = re.compile(
    r"[-+*/%@=,(\[{:&|<>\\]\Z|\bfrom [\w.]{1,100}\Z|\b(?:import|from|class|def|return|as|in|and|or|not|if|else)\Z"
)
_MARGIN = r"^(?:class[ \t]++\w++[(:]|def[ \t]|import[ \t]|from[ \t]|@|[A-Za-z_]\w*+[ \t]*+=(?!=))"
_AFTER_A_STRING = re.compile(rf"{_MARGIN}|^[ \t]++def[ \t]++forward\b", re.MULTILINE)
_AFTER_A_BRACKET = re.compile(rf"{_AFTER_A_STRING.pattern}|^[ \t]++return\b[^;\n]*+$", re.MULTILINE)
"""A `return` with a semicolon is C++."""


def is_cut_off(source: str, error: str, line: int | None) -> bool:
    r"""Return whether `error`, a syntax error at `line` of `source`, is due to truncated text.

    A bracket or string still open at the end of the text was opened at `line`. If Python code follows, at the margin or
    with a forward, the closing delimiter was forgotten and the text is complete. A folder of files is never cut off.

    >>> is_cut_off("x = 1\nS = '''\nint f", "unterminated triple-quoted string literal (detected at line 3)", 2)
    True
    >>> is_cut_off("f(1\nclass A: pass", "'(' was never closed", 1)
    False
    """
    if line is None or is_several(source):
        return False
    text = source.rstrip()
    lines = text.split("\n")
    behind, at_the_end = "\n".join(lines[line:]), line >= len(lines)
    if "unterminated triple-quoted" in error:
        return _AFTER_A_STRING.search(behind) is None
    if "was never closed" in error:
        return _AFTER_A_BRACKET.search(behind) is None
    if "expected an indented block" in error:
        return text.endswith(":")
    if "expected 'except'" in error:
        return at_the_end and lines[-1].startswith((" ", "\t"))
    return at_the_end and ("string literal" in error or (error == "invalid syntax" and bool(_INCOMPLETE.search(text))))
