"""Timeline of a run, RUN/timeline.jsonl: a line for each session, and for each turn of a submission on a lane.

A turn is about 250 bytes. A line cut by a crash is ignored, like turns on lanes unknown to the session.
"""

import datetime
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from evaluator.batch.runs.lines import filled_lines
from evaluator.batch.runs.run_folder import RunFolder
from evaluator.errors import CardError, UsageError
from evaluator.files.card_files import write_whole
from evaluator.files.safe_open import open_to_append, read_found
from evaluator.report.timeline import MOST_STAGES, Lane, Session, SessionTimeline, Turn, trace_bytes
from evaluator.text import one_line

_MAX_BYTES = 64 << 20
"""Maximum number of bytes read: some 260 000 turns."""
_BUILT = "built"
_NAME = 200


class RecordedRun(NamedTuple):
    """The sessions of a run. `is_cut` tells whether the file continues after the last byte read."""

    sessions: list[SessionTimeline]
    is_cut: bool


class TimelineWriter:
    """Writer of one session's timeline. A context manager. A turn is written at its end."""

    def __init__(self, folder: RunFolder, lanes: Sequence[Lane], began_s: float) -> None:
        """Start a session at `began_s` of the monotonic clock. Raises OSError if the file cannot be written."""
        self._began_s = began_s
        self._open: dict[int, Turn] = {}
        self._file: BinaryIO = open_to_append(folder.path, folder.timeline.name)
        self._file.write(b"\n")  # ends a line cut by a crash or a full disk
        self._write(Session(datetime.datetime.now(datetime.UTC), platform.node(), list(lanes)))

    def close(self) -> None:
        """Close the file. Unfinished turns are not written."""
        self._file.close()

    def stage(self, lane: int, submission: tuple[str, str], stage: str, at_s: float) -> None:
        """Record that the submission, named by problem and name, enters a stage."""
        submission = (one_line(submission[0], _NAME), one_line(submission[1], _NAME))
        turn = self._open.get(lane)
        if turn is not None and (turn.problem, turn.name) != submission:
            self.end(lane, at_s)  # the lane lost its machine, and another lane makes the rest
            turn = None
        if stage == _BUILT:
            self.end(lane, at_s, is_built=True)
            return
        if turn is None:
            problem, name = submission
            turn = Turn(lane, problem, name, [], 0.0)
            self._open[lane] = turn
        same = turn.stages and turn.stages[-1][0] == stage
        if not same and len(turn.stages) < MOST_STAGES:
            turn.stages.append((stage, self._since(at_s)))

    def end(self, lane: int, at_s: float, *, is_built: bool = False) -> None:
        """Write the lane's turn, if any, as ended."""
        turn = self._open.pop(lane, None)
        if turn is not None:
            self._write(msgspec.structs.replace(turn, ended_s=self._since(at_s), is_built=is_built))

    def _since(self, at_s: float) -> float:
        return round(max(0.0, at_s - self._began_s), 4)

    def _write(self, line: Session | Turn) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")


def read_timeline(folder: RunFolder) -> RecordedRun:
    """Read the timeline of a run. A run of an older version has none.

    Raises:
        CardError: the file cannot be read.
    """
    try:
        content = read_found(folder.path, folder.timeline.name, _MAX_BYTES)
    except FileNotFoundError:
        return RecordedRun([], is_cut=False)
    except OSError as error:
        raise CardError(f"cannot read {folder.timeline}: {error.strerror or error}") from error
    decoder: msgspec.json.Decoder[Session | Turn] = msgspec.json.Decoder(Session | Turn)
    sessions: list[tuple[Session, list[Turn]]] = []
    for line in filled_lines(content):
        try:
            record = decoder.decode(line)
        except (ValueError, RecursionError):
            continue
        match record:
            case Session():
                sessions.append((record, []))
            case Turn() if sessions and record.lane < len(sessions[-1][0].lanes):
                sessions[-1][1].append(record)
            case Turn():
                continue
    timelines = [SessionTimeline(session, turns) for session, turns in sessions if turns]
    return RecordedRun(timelines, is_cut=len(content) > _MAX_BYTES)


def read_timelines(runs: Sequence[Path]) -> RecordedRun:
    """Read the sessions of all runs. Raises CardError if a file cannot be read."""
    recorded = [read_timeline(RunFolder(run)) for run in runs]
    sessions = [session for run in recorded for session in run.sessions]
    return RecordedRun(sessions, is_cut=any(run.is_cut for run in recorded))


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
