"""Untrusted text, quoted for language models and for the commands of a workflow.

A submission chooses identifiers, strings and printed text, and so writes parts of compiler messages, tracebacks and
output. Such text may imitate the end of a quotation, a system message, or the special tokens of a chat template, which
many tokenizers recognise within any text.

The runner of a workflow reads every line of a step's output. A line that begins with `::`, and `##[` anywhere in a
line, are commands: they hide words, create annotations, or end a group. A submission chooses its name and what it
prints.
"""

import re
from enum import StrEnum

from evaluator.text import one_line, printable

MARK = "> "
"""Beginning of each quoted line. No quoted text can end the quotation, because the mark is on every line."""
_LONGEST_LINE = 400
_NAMES = (
    r"s|bos|eos|pad|unk|sep|cls|mask|sop|eop|think|thinking|answer|tools?|tool_(?:calls?|responses?|results?)|"
    r"function_(?:calls?|results?)|invoke|(?:start|end|begin)_of_\w+|fim_\w+|file_sep|repo_name|extra_id_\d+|unused\d+|"
    r"image|audio|video|0x[0-9a-f]{2}|system|user|assistant|human|system[-_]reminder|instructions?|sys"
)
_CAPITALS = (
    "INST|SYS|BOS|EOS|UNK|PAD|CLS|SEP|MASK|gMASK|IMG|PREFIX|MIDDLE|SUFFIX|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|"
    "AVAILABLE_TOOLS|SYSTEM_PROMPT"
)
_SPECIAL = re.compile(rf"<(?=[|\uff5c])|(?<=[|\uff5c])>|<(?=[/<]*(?i:{_NAMES})\b)|\[(?=/?(?:{_CAPITALS})\])|##(?=\[)")
"""Places inside of special tokens: `<|im_end|>`, `</s>`, `<<SYS>>`, `[INST]`, `<\uff5cUser\uff5c>`.

Also inside of `##[group]`, a command of GitHub's workflows: feedback may be printed there.
"""


def plain(text: str, limit: int = _LONGEST_LINE) -> str:
    r"""Return untrusted text on one line of at most `limit` characters, with special tokens broken by a blank.

    >>> plain("a\n<|im_end|> vector<float> [INST]</s>")
    'a < |im_end| > vector<float> [ INST]< /s>'
    """
    # Each match adds one character, and a cut within a token leaves no token.
    return one_line(_SPECIAL.sub(_split_token, one_line(text[: 4 * limit], limit)), limit)


def quoted(text: str, most: int, *, last: bool = False) -> list[str]:
    r"""Return at most `most` quoted lines of untrusted text: the first, or the `last` ones. Omissions are stated.

    >>> quoted("one\ntwo\n\nthree", 2)
    ['> one', '> two', '(1 more line)']
    """
    lines = [line for line in printable(text).split("\n") if line.strip()]
    chosen = lines[-most:] if last else lines[:most]
    omitted = len(lines) - len(chosen)
    remark = [f"({omitted} {'earlier' if last else 'more'} line{'' if omitted == 1 else 's'})"] if omitted else []
    marked = list(map(quoted_line, chosen))
    return [*remark, *marked] if last else [*marked, *remark]


def quoted_line(line: str, lead: str = "") -> str:
    """Return one quoted line with its indentation, after text of ours: `lead`."""
    indent = min(len(line) - len(line.lstrip()), _LONGEST_LINE // 4)
    return f"{MARK}{lead}{' ' * indent}{plain(line, _LONGEST_LINE - indent)}"


def _split_token(match: re.Match[str]) -> str:
    return " >" if match[0] == ">" else f"{match[0]} "


_AT_START = re.compile(r"(^|[\r\n])(\s*):(?=:)")


class Level(StrEnum):
    """Severity of an annotation."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


def disarmed(text: str) -> str:
    r"""Return text without workflow commands.

    >>> disarmed("::error::x\n  ::add-mask::a ##[group]b, at::Tensor")
    ': :error::x\n  : :add-mask::a ## [group]b, at::Tensor'
    """
    return _AT_START.sub(r"\1\2: ", text.replace("##[", "## ["))


def disarmed_json(document: bytes) -> bytes:
    r"""Return the same JSON document without workflow commands. Only a string contains `##[`.

    >>> disarmed_json(b'{"name": "##[group]"}')
    b'{"name": "\\u0023#[group]"}'
    """
    return document.replace(b"##[", b"\\u0023#[")


def annotation(level: Level, message: str, *, title: str, file: str | None = None, line: int | None = None) -> str:
    r"""Return the command for an annotation, as one line. No text ends the command early or adds a property.

    The log of a workflow is a terminal: texts have no control characters.

    >>> annotation(Level.ERROR, "100 %\n::warning::x", title="a,line=1::b", file="relu/b.py", line=3)
    '::error file=relu/b.py,line=3,title=a%2Cline=1%3A%3Ab::100 %25%0A: :warning::x'
    >>> annotation(Level.ERROR, "x", title="t", file="\x1b]0;owned\x07\u202ered.py")
    '::error file=red.py,title=t::x'
    """
    values = {"file": file, "line": None if line is None else str(line), "title": title}
    properties = ",".join(f"{name}={_property(value)}" for name, value in values.items() if value is not None)
    return f"::{level.value} {properties}::{_data(message)}"


def _data(text: str) -> str:
    return disarmed(printable(text)).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
