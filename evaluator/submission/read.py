"""Reading of a submission: a Python file, a folder of files, or the code in a language model's answer.

The text is hostile: nothing is run or parsed, because text can crash Python's own parser. Every step takes time linear
in the text.

A `.py` file is Python. Any other text (a `.txt` or `.md` file, stdin, a string from a program) is an answer, maybe
after reasoning, which is left out. The code is the last closed fenced block that defines the entry class: ModelNew,
unless the grade names another. The whole answer is Python if the class is defined outside blocks, or if no blocks exist
and the text looks like Python. Without ModelNew, the same rules look for Model. Any remaining text contains no code.

A text with the first line of several files is such a submission (see `evaluator/protocol/submission_files.py`). A
folder becomes such a text, and so does a file `.json` with a solution of SOL-ExecBench (`solution_json.py`).
"""

import hashlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from evaluator.errors import SubmissionUnreadable
from evaluator.files.safe_open import NotRegular, read_found, read_named
from evaluator.findings import Code, finding
from evaluator.findings.submission import END_REASONING
from evaluator.protocol.submission_files import BadFiles, checked, is_several, parts
from evaluator.records import Finding, Record, Sha256
from evaluator.submission.answer import Answer, Block, answer_in, content_of, fenced_blocks
from evaluator.submission.custom_kernel import KERNEL, custom_kernel_text, is_custom_kernel
from evaluator.submission.folder import is_submission_folder, read_folder_text, spelled
from evaluator.submission.forms import TextBlock, is_diff, is_json, prose_before_code, without_code
from evaluator.submission.model_new import entries_of, looks_like_python
from evaluator.submission.solution_json import is_solution, solution_text

MAX_CODE_BYTES = 1024 * 1024
"""Larger than any honest kernel; small enough for a scorecard and for a build."""
MAX_ANSWER_BYTES = 4 * MAX_CODE_BYTES
"""An answer contains reasoning and drafts beside the code."""

STDIN = "-"
_NAMING_DIGITS = 12
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")

_MOST_LABELS = 3


class Submission(Record, frozen=True, kw_only=True):
    """A submitted text: Python that should define ModelNew.

    Line n of `source` is line n + `line_offset` of the original file. `sha256` is that of `source` in UTF-8.
    """

    name: str
    origin: str
    sha256: Sha256
    source: str
    extracted_from_answer: bool
    line_offset: int
    findings: tuple[Finding, ...]


class _Code(NamedTuple):
    """The text of a submission, and how it was extracted."""

    source: str
    extracted: bool = False
    line_offset: int = 0
    findings: tuple[Finding, ...] = ()


def read_submission(
    path: Path | Literal["-"],
    stdin: BinaryIO | None = None,
    *,
    found_in: Path | None = None,
    entry: str | None = None,
) -> Submission | Finding:
    """Read the submission at `path`, or from standard input for `-`.

    Args:
        path: a file; the suffix determines its kind.
        stdin: the stream for `-`; None for the process's own standard input.
        found_in: the folder whose listing contained `path`, which must then be a regular file and not a link. None if
            the user named the path.
        entry: name of the class to look for in an answer; None for ModelNew, else Model.

    Returns:
        The submission, or a finding with the reason for its absence: too large, not text, or an answer without code.

    Raises:
        SubmissionUnreadable: the system refuses the file.
    """
    is_folder = not isinstance(path, str) and path.is_dir()
    suffix = "" if isinstance(path, str) or is_folder else path.suffix.lower()
    limit = MAX_CODE_BYTES if suffix == ".py" else MAX_ANSWER_BYTES
    data = _read(path, stdin, limit, found_in)
    if isinstance(data, Finding):
        return data
    if len(data) > limit:
        subject = "a submission" if suffix == ".py" else "an answer"
        return _too_large(f"{subject} is at most {limit >> 20} MiB of text, and this file is larger", limit)
    text = _decode(data)
    if isinstance(text, Finding):
        return text
    code = _code_of(text, suffix, entries_of(entry))
    if isinstance(code, Finding):
        return code
    if entry is None and not is_several(code.source) and is_custom_kernel(code.source):
        code = code._replace(source=custom_kernel_text(code.source), line_offset=0)
    source_bytes = code.source.encode()
    if len(source_bytes) > MAX_CODE_BYTES:
        message = f"the code is {len(source_bytes)} bytes; a submission is at most {MAX_CODE_BYTES >> 20} MiB"
        return _too_large(message, MAX_CODE_BYTES)
    if (wrong := _wrong_files(code.source)) is not None:
        return wrong
    sha256 = hashlib.sha256(source_bytes).hexdigest()
    return Submission(
        # Different texts from a pipe are different submissions.
        name=f"stdin-{sha256[:_NAMING_DIGITS]}" if isinstance(path, str) else _name_of(path, is_folder=is_folder),
        origin="stdin" if isinstance(path, str) else spelled(path),
        sha256=sha256,
        source=code.source,
        extracted_from_answer=code.extracted,
        line_offset=code.line_offset,
        findings=code.findings,
    )


def _code_of(text: str, suffix: str, entries: Sequence[str]) -> _Code | Finding:
    """Return the code of a text from a file with that suffix."""
    if suffix == ".json" and is_solution(text):
        try:
            return _Code(solution_text(text))
        except BadFiles as error:
            return finding(Code.BAD_FILES, str(error))
    return _Code(text) if suffix == ".py" or is_several(text) else _code_in(text, entries)


def _wrong_files(source: str) -> Finding | None:
    """Return why the files of a submission of several files are not allowed; None for any other submission."""
    if not is_several(source):
        return None
    try:
        checked(parts(source))
    except BadFiles as error:
        return finding(Code.BAD_FILES, str(error))
    return None


def _name_of(path: Path, *, is_folder: bool) -> str:
    """Return the name of a submission at `path`; `.` has the name of the current folder."""
    return spelled((path.name or path.resolve().name) if is_folder else path.stem)


def _read(path: Path | Literal["-"], stdin: BinaryIO | None, at_most: int, found_in: Path | None) -> bytes | Finding:
    """Read at most one byte more than the limit, to detect larger files."""
    try:
        if not isinstance(path, str) and is_submission_folder(path):
            text = read_folder_text(path, MAX_CODE_BYTES, found_in)
            return text if isinstance(text, Finding) else text.encode()
        if isinstance(path, str):
            return (sys.stdin.buffer if stdin is None else stdin).read(at_most + 1)
        if found_in is not None:
            return read_found(found_in, path.relative_to(found_in).as_posix(), at_most)
        return read_named(path, at_most)
    except NotRegular as error:
        hint = "submit the file itself: in a folder, only regular files are read"
        raise SubmissionUnreadable(f"{path} is refused: {error.strerror}", hint=hint) from error
    except IsADirectoryError as error:
        hint = (
            "name one file of the folder, or write submission.toml into it: see docs/languages.md; "
            "`warpgrade batch` grades a folder of submissions"
        )
        raise SubmissionUnreadable(f"{path} is a folder, not a submission", hint=hint) from error
    except (OSError, ValueError) as error:
        # ValueError: a NUL in the name, or a closed stream.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        hint = "check the name and the permissions; `-` reads standard input"
        raise SubmissionUnreadable(f"cannot read {path}: {reason}", hint=hint) from error


def _decode(data: bytes) -> str | Finding:
    if data.startswith(_UTF16_MARKS):
        return finding(Code.NOT_TEXT, "the submission is UTF-16, not UTF-8")
    nul = data.find(b"\0")
    if nul >= 0:
        return finding(Code.NOT_TEXT, f"the submission has a NUL byte at byte {nul}", line=_line_at(data, nul))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"the submission is not UTF-8: {error.reason} at byte {error.start}"
        return finding(Code.NOT_TEXT, message, line=_line_at(data, error.start))


def _line_at(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1


def _too_large(message: str, limit_bytes: int) -> Finding:
    return finding(Code.TOO_LARGE, message, limit_bytes=limit_bytes)


class _Text(NamedTuple):
    """The answer behind `lines_before` lines of a text, and its fenced blocks. `is_part`: the text has more."""

    answer: str
    lines_before: int
    blocks: list[Block]
    is_part: bool

    def defining(self, name: str) -> list[Block]:
        """Return the blocks that define the class `name`."""
        definition = _definition(name)
        return [block for block in self.blocks if _defines(definition, self.answer, block)]

    def line_of(self, block: Block) -> int:
        """Return the line of the text in which the content of a block begins, from 1."""
        return self.lines_before + _line_in(self.answer, block.start)

    def pieces(self) -> list[TextBlock]:
        """Return the contents of all blocks, with their lines: counted once, since blocks may be many."""
        line, position, pieces = self.lines_before + 1, 0, []
        for block in self.blocks:
            line, position = line + self.answer.count("\n", position, block.start), block.start
            pieces.append(TextBlock(content_of(self.answer, block), line))
        return pieces

    def label(self, block: Block) -> str:
        """Return a block's place, the language after its fence, and whether the block is closed."""
        words = ", ".join(filter(None, [block.language, "" if block.closed else "never closed"]))
        return f"line {self.line_of(block)}{f' ({words})' if words else ''}"


def _code_in(text: str, entries: Sequence[str]) -> _Code | Finding:
    """Return the last closed block that defines the first possible of `entries`, or the answer if Python.

    Otherwise, return a finding.
    """
    answer_span = answer_in(text)
    answer = text[answer_span.start : answer_span.end]
    blocks = list(fenced_blocks(answer))
    parsed = _Text(answer, text.count("\n", 0, answer_span.start), blocks, is_part=len(answer) < len(text))
    draft = _draft(text, answer_span, entries[0])
    may_be_file = not is_diff(answer) and not is_json(answer)
    for name in (*entries, KERNEL):
        defining = parsed.defining(name)
        if closed := [block for block in defining if block.closed]:
            return _extracted(parsed, closed[-1], draft)
        if defining:
            line = parsed.line_of(defining[-1])
            return _cut_off(f"the block that defines {name}, from line {line}, is never closed", text)
        if may_be_file and _defined_outside(name, answer, blocks):
            return _unfenced(parsed, draft)
        if blocks and not blocks[-1].closed and blocks[-1].end == len(answer):
            return _cut_off(f"the last block, from line {parsed.line_of(blocks[-1])}, is never closed", text)
    if may_be_file and not blocks and looks_like_python(answer):
        return _unfenced(parsed, draft)
    if answer_span.unended is not None:
        line = _line_in(text, answer_span.unended)
        return _cut_off(
            f"the model's reasoning, from line {line}, never ends, so there is no answer", text, END_REASONING
        )
    left_out = "; code inside the model's reasoning does not count" if draft else ""
    return without_code(TextBlock(answer, parsed.lines_before + 1), parsed.pieces(), entries, left_out)


def _cut_off(cause: str, text: str, next_step: str | None = None) -> Finding:
    line = text.rstrip().count("\n") + 1
    return finding(Code.CUT_OFF, f"{cause}: the text ends at line {line}", line=line, next_step=next_step)


def _unfenced(parsed: _Text, draft: str) -> _Code | Finding:
    """Return an answer that is Python as a whole; a finding if the answer begins with prose."""
    first = parsed.lines_before + 1
    if (prose := prose_before_code(TextBlock(parsed.answer, first))) is not None:
        return prose
    findings = (_left_out(f"the grade uses the text from line {first}", [draft], first),) if draft else ()
    return _Code(parsed.answer, extracted=parsed.is_part, line_offset=parsed.lines_before, findings=findings)


def _left_out(used: str, left_out: list[str], line: int) -> Finding:
    return finding(Code.LEFT_OUT, f"{used}; left out: {', '.join(left_out)}", line=line)


def _draft(text: str, answer_span: Answer, name: str) -> str:
    """Return the place of code that defines the class `name` outside of the answer; empty without such code."""
    definition = _definition(name)
    draft = definition.search(text, 0, answer_span.start) or definition.search(text, answer_span.end)
    return "" if draft is None else f"reasoning or draft with code in line {_line_in(text, draft.end())}"


def _line_in(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _defined_outside(name: str, text: str, blocks: list[Block]) -> bool:
    """Return whether a line outside all blocks, which are in order, defines the class `name`."""
    remaining = iter(blocks)
    block = next(remaining, None)
    for match in _definition(name).finditer(text):
        while block is not None and block.end <= match.start():
            block = next(remaining, None)
        if block is None or match.start() < block.start:
            return True
    return False


def _extracted(parsed: _Text, chosen: Block, draft: str) -> _Code:
    other_blocks = [block for block in parsed.blocks if block != chosen]
    left_out = [f"the block from {parsed.label(block)}" for block in other_blocks[:_MOST_LABELS]]
    if len(other_blocks) > _MOST_LABELS:
        left_out.append(f"{len(other_blocks) - _MOST_LABELS} more")
    left_out += [draft] if draft else []
    line = parsed.line_of(chosen)
    findings = (_left_out(f"the grade uses the block from {parsed.label(chosen)}", left_out, line),) if left_out else ()
    return _Code(content_of(parsed.answer, chosen), extracted=True, line_offset=line - 1, findings=findings)


def _definition(name: str) -> re.Pattern[str]:
    """Return the pattern of a line that begins with `class NAME` or `NAME =`; for KernelBot's function, with `def`."""
    word = "def" if name == KERNEL else "class"
    return re.compile(rf"^(?P<indent>[ \t]*)(?:{word}[ \t]+{name}\b|{name}[ \t]*=(?!=))", re.MULTILINE)


def _defines(definition: re.Pattern[str], text: str, block: Block) -> bool:
    """Return whether a line of the block, without its indentation, is a definition."""
    return any(len(match["indent"]) <= block.indent for match in definition.finditer(text, block.start, block.end))
