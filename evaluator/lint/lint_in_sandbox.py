"""Judge side of the linter: run the analysis in a confined child and convert the answer to findings."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from evaluator.findings import Code, finding
from evaluator.lint.messages import Look, Looked
from evaluator.protocol.frames import BuildRequest, Closed, DeadlinePassed, FrameError
from evaluator.protocol.one_question import ask
from evaluator.records import Finding, Toolchain
from evaluator.sandbox import Child, Limits

_ENTRY = "evaluator.lint.lint:run"
_LIMIT_S = 10.0
"""A real submission takes about 20 ms."""
_LIMITS = Limits(memory_bytes=1 << 30, processes=16, file_bytes=0, open_files=64, private_folder_bytes=1 << 20)
"""Python's syntax tree of a 1 MiB text may take a few hundred MiB."""


class LookedAt(NamedTuple):
    """Findings of a text, the predicted build requests, and the languages; None for a text that cannot be parsed."""

    findings: list[Finding]
    builds: list[BuildRequest] = []
    toolchains: list[Toolchain] | None = None


def look_at(source: str, entries: Sequence[str], spawn: Callable[[str, Limits], Child]) -> LookedAt:
    """Analyse a text in a confined child from `spawn`. A failing child results in a finding, never in a verdict.

    Raises:
        JudgeFailed: the child could not be started.
    """
    child = spawn(_ENTRY, _LIMITS)
    try:
        answer = ask(child, Look(source, list(entries)), Looked, _LIMIT_S)
    except DeadlinePassed:
        return _not_looked_at(f"the analysis took longer than {_LIMIT_S:g} s")
    except (Closed, FrameError):
        return _not_looked_at("the text crashed the analysis process")
    found = [finding(noticed.code, noticed.message, line=noticed.line) for noticed in answer.noticed]
    incomplete = [_noted(answer.incomplete)] if answer.incomplete else []
    return LookedAt([*found, *incomplete], answer.builds, answer.toolchains)


def _not_looked_at(why: str) -> LookedAt:
    return LookedAt([_noted(why)])


def _noted(why: str) -> Finding:
    return finding(Code.NOT_LOOKED_AT, why)
