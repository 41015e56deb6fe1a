"""Results for continuous integration: forms of stdout; annotations and the step's summary in GitHub Actions."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from evaluator.commands import terminal
from evaluator.commands.options import ResultFormat
from evaluator.commands.terminal import in_workflow
from evaluator.report.ci.verdicts import Verdict, annotations, concise

_SUMMARY = "GITHUB_STEP_SUMMARY"
_MOST_BYTES = 900_000
"""GitHub drops a summary above 1 MiB."""


def emit_verdicts(verdicts: Iterable[Verdict], form: Literal[ResultFormat.CONCISE, ResultFormat.GITHUB]) -> None:
    """Write verdicts to stdout."""
    match form:
        case ResultFormat.CONCISE:
            terminal.emit(concise(verdicts))
        case ResultFormat.GITHUB:
            terminal.emit(annotations(verdicts), commands=True)


def publish(verdicts: Iterable[Verdict], markdown: str, *, annotated: bool) -> None:
    """Annotate submissions on stderr, unless already `annotated` on stdout, and append Markdown to the summary.

    Does nothing outside of a workflow.
    """
    if not in_workflow():
        return
    if not annotated:
        terminal.send_commands(annotations(verdicts))
    path = os.environ.get(_SUMMARY)
    content = markdown.encode("utf-8", "backslashreplace")
    if not path:
        return
    try:
        with Path(path).open("ab") as file:
            if file.tell() + len(content) <= _MOST_BYTES:
                file.write(content)
            else:
                terminal.tell("the summary of the step is full: the report is not in it")
    except OSError as error:
        terminal.tell(f"cannot write the summary of the step: {error.strerror or error}")
