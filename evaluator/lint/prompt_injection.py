"""Detection of text addressed to a reader: a reviewer, a grader, a language model acting as judge.

The verdict is mechanical and depends on no reader. A later reader of the submission should know about such text.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Sequence

from evaluator.cuda_source.lexer import Kind
from evaluator.findings import Code
from evaluator.lint.embedded import Piece, docstrings, texts
from evaluator.lint.messages import Remark, shown
from evaluator.protocol.submission_files import MANIFEST, SubmissionFile, parts, python_files

_READER = (
    r"(?:judge|grader|reviewer|evaluator|auditor|verifier|examiner|scorer|checker|llm|language model|"
    r"ai (?:assistant|agent|model)|assistant|chatgpt|claude|gpt)s?"
)
_PATTERNS = {
    "addresses a reader": (
        r"\b(?:to|dear|attention|hey|hello|note (?:to|for)|notice to|instructions? (?:to|for)|message (?:to|for)) "
        rf"(?:the |any |all |our )?{_READER}\b"
    ),
    "tells a reader what to ignore": (
        r"\b(?:ignore|disregard|forget|override)\W+(?:\w+\W+){0,3}"
        r"(?:instructions?|prompts?|rules|guidelines|criteria|findings)\b"
    ),
    "tells a reader who it is": rf"\byou are (?:now )?(?:an? |the )?(?:\w+ ){{0,2}}{_READER}\b",
    "asks for a verdict": (
        r"\b(?:mark|rate|score|grade|classify|label|approve|accept) "
        r"(?:this|it|the (?:submission|solution|code|kernel|answer|entry)) (?:as|with|at|to be|please|now)\b"
    ),
    "claims a verdict": (
        r"\b(?:this|the) (?:kernel|code|submission|solution|implementation|file|answer) (?:is|was|has been) "
        r"(?:already |fully |formally )*(?:verified|approved|reviewed|audited|certified|accepted)\b"
    ),
    "imitates a conversation with a model": (
        r"<\|?(?:im_start|im_end|system|endoftext|assistant|user)\|?>|\[/?inst\]"
        r"|^\W*(?:system|assistant|human|user) ?(?:prompt|message)? ?:"
    ),
}
_COMPILED = {kind: re.compile(pattern, re.MULTILINE) for kind, pattern in _PATTERNS.items()}
_STATUS_WORD = re.compile(
    r"(?i:\b(?:output|return|respond|reply|answer|say|print|report|verdict|status|result)\b\W{1,4}"
    r"(?:with |is |as |be )?)[\"'`]{0,3}(?:PASS(?:ED)?|CORRECT|APPROVED|ACCEPT(?:ED)?|VALID)\b"
)
_NAME_READER = re.compile(r"(?:^|_)(?:judge|grader|reviewer|llm|evaluator)(?:_|$)")
_NAME_VERDICT = re.compile(r"(?:^|_)(?:pass|passes|approve|approved|ignore|accept|verified|correct)(?:_|$)")
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
_MAX_PROSE = 1 << 16
_LEAST_PROSE = 8


def prompt_injection(
    source: str, nodes: Sequence[ast.AST], pieces: list[Piece], invalid: Sequence[SubmissionFile]
) -> Iterator[Remark]:
    """Find addressed text in comments, strings, docstrings and names, in Python and embedded C++.

    `invalid` are Python files that do not parse: their whole text is prose.
    """
    prose = [*_comments(source), *_cpp_comments(pieces), *_whole(invalid)]
    prose += _whole(file for file in parts(source) if file.path == MANIFEST)
    code = {piece.first_line for piece in pieces}
    aside = docstrings(nodes)
    prose += [(node.lineno, text) for node, text in texts(nodes) if id(node) in aside or node.lineno not in code]
    yield from _names(nodes)
    for line, text in prose:
        if len(text) >= _LEAST_PROSE and (addressed := _addressed_text(text[:_MAX_PROSE])) is not None:
            yield Remark(Code.ADDRESSED_TEXT, line + addressed[1], addressed[0])
    for number, content in enumerate(source.split("\n"), 1):
        if (hidden := _INVISIBLE.search(content)) is not None:
            yield Remark(Code.ADDRESSED_TEXT, number, f"contains an invisible character (U+{ord(hidden[0]):04X})")


def _whole(files: Iterable[SubmissionFile]) -> Iterator[tuple[int, str]]:
    """Yield the text of files in pieces, with their first lines."""
    for file in files:
        line = file.lines_before + 1
        for start in range(0, len(file.text), _MAX_PROSE):
            piece = file.text[start : start + _MAX_PROSE]
            yield line, piece
            line += piece.count("\n")


def _addressed_text(text: str) -> tuple[str, int] | None:
    """Return the kind and line offset of addressed text; None for ordinary text."""
    plain = re.sub(r"[ \t#*/]+", " ", text)
    lowered = plain.lower()
    flat = lowered.replace("\n", " ")  # Sentences span lines.
    for kind, pattern in _COMPILED.items():
        if (match := pattern.search(flat) or pattern.search(lowered)) is not None:
            return f"{kind}: “{shown(match[0].strip())}”", lowered.count("\n", 0, match.start())
    if (match := _STATUS_WORD.search(plain)) is not None:
        return f"asks for a verdict: “{shown(match[0].strip())}”", plain.count("\n", 0, match.start())
    return None


def _names(nodes: Sequence[ast.AST]) -> Iterator[Remark]:
    """Find names with a message, such as `judge_please_approve`."""
    for node in nodes:
        match node:
            case ast.Name(id=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:_MAX_PROSE]).lower()
                if _NAME_READER.search(snake) and _NAME_VERDICT.search(snake):
                    yield Remark(Code.ADDRESSED_TEXT, node.lineno, f"the name {shown(name)} addresses a reader")
            case _:
                continue


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield Python comments with their first lines. Comments on consecutive lines form one text."""
    run: list[str] = []
    first = last = 0
    for line, text in _comment_lines(source):
        if run and line != last + 1:
            yield first, "\n".join(run)
            run = []
        first = line if not run else first
        last = line
        run.append(text)
    if run:
        yield first, "\n".join(run)


def _comment_lines(source: str) -> Iterator[tuple[int, str]]:
    for file in python_files(source):
        try:
            for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
                if token.type == tokenize.COMMENT:
                    yield token.start[0] + file.lines_before, token.string
        except (tokenize.TokenError, SyntaxError, UnicodeError):
            continue  # Text after a tokenizer error is not Python.


def _cpp_comments(pieces: list[Piece]) -> Iterator[tuple[int, str]]:
    """Yield C++ comments with their first lines. Comments separated by whitespace only form one text."""
    for piece in pieces:
        run: list[str] = []
        first = 0
        for token in piece.all_tokens:
            if token.kind is Kind.COMMENT:
                first = first if run else piece.line(token)
                run.append(token.text)
            elif token.kind is not Kind.SPACE:
                if run:
                    yield first, "\n".join(run)
                run = []
        if run:
            yield first, "\n".join(run)
