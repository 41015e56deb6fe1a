"""A submission's verdict for continuous integration, and the forms with a line for each submission. Pure."""

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import NamedTuple

from evaluator.protocol.submission_files import MANIFEST, bad_path, place_of
from evaluator.records import Finding, GradeMode, Scorecard, Status
from evaluator.report.layout.quotation import Level, annotation
from evaluator.text import one_line, speedup_text

MISSING = "missing"
REFUSED = "refused"
_MESSAGE = 400
_MOST_ANNOTATIONS = 50
"""GitHub shows ten errors and ten warnings of a step."""


class Location(NamedTuple):
    """A file relative to the current folder, and a line of the file, if known."""

    path: str
    line: int | None


class Verdict(NamedTuple):
    """Verdict on a submission; `status` is None without a card. `refusal` is the reason why an input is refused.

    `location` is that of the reason, if the submission has a file.
    """

    problem: str
    name: str
    status: Status | None
    location: Location | None = None
    reason: Finding | None = None
    speedup: float | None = None
    mode: GradeMode = GradeMode.FULL
    speedup_low: float | None = None
    speedup_high: float | None = None
    mixes_kinds: bool = False
    refusal: str | None = None

    @property
    def speedup_text(self) -> str:
        """The speedup with the interval, and a remark about calls of two kinds; empty without a speedup."""
        return speedup_text(self.speedup, self.speedup_low, self.speedup_high, mixes_kinds=self.mixes_kinds)

    @property
    def label(self) -> str:
        """Problem and name, on one line. A refused input may have no problem."""
        return one_line("/".join(filter(None, (self.problem, self.name))), 200)

    @property
    def status_text(self) -> str:
        """The status, `refused` or `missing`."""
        if self.status is None:
            return MISSING if self.refusal is None else REFUSED
        return self.status.value

    @property
    def message(self) -> str:
        """Code and message of the reason, or the reason of a refusal, on one line."""
        if self.refusal is not None:
            return one_line(self.refusal, _MESSAGE)
        return "" if self.reason is None else one_line(f"{self.reason.code} {self.reason.message}", _MESSAGE)


def verdict_of(card: Scorecard, path: str | None) -> Verdict:
    """Return the verdict of a card, for the submission's file at `path`: of several files, the manifest."""
    timing = card.timing if card.status is Status.CORRECT else None
    return Verdict(
        problem=card.problem.name,
        name=card.submission.name,
        status=card.status,
        location=None if path is None else _location(card, path),
        reason=card.reason,
        speedup=card.quoted.speedup,
        mode=card.mode,
        speedup_low=card.quoted.low,
        speedup_high=card.quoted.high,
        mixes_kinds=timing is not None and timing.mixes_kinds,
    )


def _location(card: Scorecard, path: str) -> Location:
    """Return the location of the reason. A text from an answer has no line in the answer's file."""
    line = None if card.reason is None or card.submission.extracted_from_answer else card.reason.line
    if line is None or PurePosixPath(path).name != MANIFEST:
        return Location(path, line)
    place = place_of(card.submission.source, line)
    if place.path is None or bad_path(place.path) is not None:  # of a forged card
        return Location(path, None)
    return Location((PurePosixPath(path).parent / place.path).as_posix(), place.line)


def concise(verdicts: Iterable[Verdict]) -> str:
    """Return a line for each submission: file with line, verdict, reason."""
    return "".join(f"{_location_text(verdict)}: {_outcome_text(verdict)}\n" for verdict in verdicts)


def _location_text(verdict: Verdict) -> str:
    if (location := verdict.location) is None:
        return verdict.label
    path = one_line(location.path, 400)
    return path if location.line is None else f"{path}:{location.line}"


def _outcome_text(verdict: Verdict) -> str:
    if verdict.status is Status.CORRECT and verdict.mode is GradeMode.CHECK:
        return "correct, not timed (mode check)"
    if verdict.status is Status.CORRECT:
        return "correct" if verdict.speedup is None else f"correct, {verdict.speedup_text}"
    if verdict.refusal is not None:
        return f"{verdict.status_text}: {verdict.message}"
    return " ".join(filter(None, (verdict.status_text, verdict.message)))


def annotations(verdicts: Iterable[Verdict]) -> str:
    """Return GitHub's annotations of all submissions that are not correct, errors first."""
    failed = [verdict for verdict in verdicts if verdict.status is not Status.CORRECT]
    failed.sort(key=lambda verdict: _level(verdict) is not Level.ERROR)
    lines = [
        annotation(
            _level(verdict),
            f"{verdict.message or verdict.status_text}\n{verdict.reason.next_step if verdict.reason else ''}".strip(),
            title=f"{verdict.label}: {verdict.status_text}",
            file=None if verdict.location is None else verdict.location.path,
            line=None if verdict.location is None else verdict.location.line,
        )
        for verdict in failed[:_MOST_ANNOTATIONS]
    ]
    if len(failed) > _MOST_ANNOTATIONS:
        message = f"{len(failed) - _MOST_ANNOTATIONS} more submissions are not correct"
        lines.append(annotation(Level.NOTICE, message, title="Warpgrade"))
    return "".join(f"{line}\n" for line in lines)


def _level(verdict: Verdict) -> Level:
    return Level.WARNING if verdict.status is Status.INCONCLUSIVE else Level.ERROR
