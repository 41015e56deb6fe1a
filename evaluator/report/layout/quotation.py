"""Quotation of untrusted text for a language model: every line marked as data, without control or special tokens. Pure.

A submission chooses identifiers, strings and printed text, and so writes parts of compiler messages, tracebacks and
output. Such text may imitate the end of a quotation, a system message, or the special tokens of a chat template, which
many tokenizers recognise within any text.
"""

import re

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
