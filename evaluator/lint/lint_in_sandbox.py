"""Judge side of the linter: run the analysis in a confined child and convert the answer to findings."""

from collections.abc import Sequence
from typing import NamedTuple

from evaluator.findings import Code, finding
from evaluator.lint.messages import ANALYSIS, Look
from evaluator.protocol.frames import BuildRequest
from evaluator.records import Finding, Toolchain
from evaluator.sandbox.question import NoAnswer, Spawn


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
