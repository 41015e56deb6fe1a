"""Timelines of runs, read for a report and written as a trace."""

from collections.abc import Sequence
from pathlib import Path

from evaluator.batch.runs.run_folder import RunFolder
from evaluator.batch.runs.timeline_file import RecordedRun, read_timeline
from evaluator.errors import UsageError
from evaluator.files.card_files import write_whole
from evaluator.report.timeline.trace import trace_bytes


def read_timelines(runs: Sequence[Path]) -> RecordedRun:
    """Read the sessions of all runs. Raises CardError if a file cannot be read."""
    read = [read_timeline(RunFolder(run)) for run in runs]
    return RecordedRun([each for run in read for each in run.sessions], is_cut=any(run.is_cut for run in read))


def write_trace(recorded: RecordedRun, path: Path) -> None:
    """Write the sessions in Chrome's trace format. The file is replaced as a whole.

    Raises:
        UsageError: there is no session, or the file cannot be written.
    """
    if not recorded.sessions:
        hint = "`warpgrade batch` writes RUN/timeline.jsonl while it grades; runs of earlier versions have no such file"
        raise UsageError("no timeline is recorded", hint=hint)
    try:
        write_whole(path, trace_bytes(recorded.sessions))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
