"""A submission's verdict for continuous integration, and the forms with a line for each submission. Pure."""

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from evaluator.protocol.submission_files import MANIFEST, SourceLocation, bad_path, place_of
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

    `path` is the submission's file relative to the current folder, if the submission has one: of several files, the
    manifest. `in_file`: lines of the findings are lines of the file at `path`, because the submission was not extracted
    from an answer. `inside` maps lines of several files to files.
    """

    problem: str
    name: str
    status: Status | None
    path: str | None = None
    in_file: bool = False
    reason: Finding | None = None
    findings: tuple[Finding, ...] = ()
    speedup: float | None = None
    inside: Mapping[int, Location] = {}
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
    def location(self) -> Location | None:
        """Location of the reason."""
        return self.location_of(self.reason)

    def location_of(self, finding: Finding | None) -> Location | None:
        """Return the location of a finding; None without a file."""
        if self.path is None:
            return None
        line = finding.line if finding is not None and self.in_file else None
        return Location(self.path, None) if line is None else self.inside.get(line, Location(self.path, line))

    @property
    def message(self) -> str:
        """Code and message of the reason, or the reason of a refusal, on one line."""
        if self.refusal is not None:
            return one_line(self.refusal, _MESSAGE)
        return "" if self.reason is None else one_line(f"{self.reason.code} {self.reason.message}", _MESSAGE)


def verdict_of(card: Scorecard, path: str | None) -> Verdict:
    """Return the verdict of a card, for the submission's file at `path`."""
    timing = card.timing if card.status is Status.CORRECT else None
    findings = [*card.findings] if card.reason is None else [card.reason, *card.findings]
    return Verdict(
        problem=card.problem.name,
        name=card.submission.name,
        status=card.status,
        path=path,
        in_file=not card.submission.extracted_from_answer,
        reason=card.reason,
        findings=tuple(card.remarks),
        speedup=card.quoted.speedup,
        inside={}
        if path is None
        else _locations_in_files(path, card.submission.source, {finding.line for finding in findings}),
        mode=card.mode,
        speedup_low=card.quoted.low,
        speedup_high=card.quoted.high,
        mixes_kinds=timing is not None and timing.mixes_kinds,
    )


def _locations_in_files(path: str, source: str, lines: Iterable[int | None]) -> dict[int, Location]:
    """Return the locations of lines in the files beside the manifest at `path`."""
    if PurePosixPath(path).name != MANIFEST:
        return {}
    return {line: _located(path, place_of(source, line)) for line in lines if line is not None}


def _located(manifest: str, place: SourceLocation) -> Location:
    """Return the location of a place. A forged card's impossible path is replaced by the manifest."""
    if place.path is None or bad_path(place.path) is not None:
        return Location(manifest, None)
    return Location((PurePosixPath(manifest).parent / place.path).as_posix(), place.line)


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
