"""Detection of truncated Python text from the message of a syntax error."""

import re

from evaluator.protocol.submission_files import is_several

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
