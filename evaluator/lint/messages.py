"""Question and answer of the confined child behind the lint."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec

from evaluator.findings import Code, finding
from evaluator.protocol.frames import BuildRequest, Frame
from evaluator.protocol.frames.bounds import Name, Text
from evaluator.records import Finding, Toolchain
from evaluator.sandbox.question import NoAnswer, Question, Spawn

MAX_REMARKS = 64
MAX_BUILDS = 4
MAX_MESSAGE = 400
_MAX_NAME = 80
_SHOWN_PER_CODE = 4


class Remark(NamedTuple):
    """Observation about a submission: code, line in the submission, and message."""

    code: Code
    line: int
    message: str


class Look(Frame, frozen=True):
    """Judge: analyse a submission. `entries` are the names of its class, the preferred name first."""

    submission: Text
    entries: list[Name]


class Noticed(Frame, frozen=True):
    """Child: one remark."""

    code: Code
    line: Annotated[int, msgspec.Meta(ge=1, le=1 << 22)]
    message: Annotated[str, msgspec.Meta(max_length=MAX_MESSAGE)]


class LintResult(Frame, frozen=True):
    """Child: all remarks. `incomplete` states why a part of the text was skipped.

    `builds` holds the predicted build requests, `toolchains` the languages; None if the text could not be parsed.
    """

    noticed: Annotated[list[Noticed], msgspec.Meta(max_length=MAX_REMARKS)]
    incomplete: Annotated[str, msgspec.Meta(max_length=MAX_MESSAGE)] = ""
    builds: Annotated[list[BuildRequest], msgspec.Meta(max_length=MAX_BUILDS)] = []
    toolchains: Annotated[list[Toolchain], msgspec.Meta(max_length=len(Toolchain))] | None = None


ANALYSIS = Question("evaluator.lint.lint:run", Look, LintResult, limit_s=10.0)
"""A real submission takes about 20 ms."""


def shown(name: str) -> str:
    r"""Return a submission's identifier for a message: shortened, without terminal control characters.

    >>> shown("a\x1b[2Jb")
    'a?[2Jb'
    """
    cut = name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"
    return "".join(character if character.isprintable() else "?" for character in cut)


def thinned(remarks: list[Remark]) -> list[Noticed]:
    """Deduplicate and sort remarks by line, and keep the first few of each code."""
    by_code: dict[Code, list[Remark]] = {}
    messages: set[tuple[Code, str]] = set()
    for remark in sorted(remarks, key=lambda remark: (remark.line, remark.code.value)):
        if (remark.code, remark.message) not in messages:
            messages.add((remark.code, remark.message))
            by_code.setdefault(remark.code, []).append(remark)
    shown_remarks = []
    for of_it in by_code.values():
        *first, last = of_it[:_SHOWN_PER_CODE]
        more = len(of_it) - _SHOWN_PER_CODE
        shown_remarks += [*first, last._replace(message=f"{last.message} (and {more} more)") if more > 0 else last]
    shown_remarks.sort(key=lambda remark: (remark.line, remark.code.value))
    return [Noticed(code, max(line, 1), message[:MAX_MESSAGE]) for code, line, message in shown_remarks[:MAX_REMARKS]]


class LookedAt(NamedTuple):
    """Findings of a text, the predicted build requests, and the languages; None for a text that cannot be parsed."""

    findings: list[Finding]
    builds: list[BuildRequest] = []
    toolchains: list[Toolchain] | None = None


def look_at(source: str, entries: Sequence[str], spawn: Spawn) -> LookedAt:
    """Analyse a text in a confined child from `spawn`. A failing child results in a finding, never in a verdict.

    Raises:
        JudgeFailed: the child could not be started.
    """
    answer = ANALYSIS.ask(Look(source, list(entries)), spawn)
    if isinstance(answer, NoAnswer):
        late = f"the analysis took longer than {ANALYSIS.limit_s:g} s"
        return LookedAt([_incomplete(late if answer.timed_out else "the text crashed the analysis process")])
    findings = [finding(noticed.code, noticed.message, line=noticed.line) for noticed in answer.noticed]
    incomplete = [_incomplete(answer.incomplete)] if answer.incomplete else []
    return LookedAt([*findings, *incomplete], answer.builds, answer.toolchains)


def _incomplete(reason: str) -> Finding:
    return finding(Code.NOT_LOOKED_AT, reason)
