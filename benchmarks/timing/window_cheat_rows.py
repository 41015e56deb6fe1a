"""Rows of `window_cheats`: cheats, their problems at three durations of a call, and the table of outcomes."""

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from evaluator.catalog.reference import with_constants
from evaluator.findings import Code
from evaluator.records import DeviceKind, Outcome, SizeName, Status
from tests.zoo.entries import ZOO, Entry, entries

DURATIONS_US = (5, 20, 200)
ALLOWED_US = 0.5
_FAR = 0.3
"""Difference between the wanted and the measured duration of the first honest call, relative to the wanted one, above
which the problem is scaled again."""
_MOST = 4
"""A knob is at most so many times its guess, or that part of it: a wrong measurement must not fill the memory."""
_PERSISTENT = ZOO / "windows" / "persistent-kernel.py"


class Scale(NamedTuple):
    """Constants of a problem by duration, guessed for an H200, and the constant that is scaled by measured times.

    The time of a call grows with `knob` to the `power`. The knob stays a multiple of `step`.
    """

    guesses: Mapping[int, dict[str, int]]
    knob: str
    step: int = 1
    power: float = 1.0

    def rescaled(self, duration_us: int, constants: dict[str, int], taken_us: float) -> dict[str, int]:
        """Return the constants for calls of `duration_us`, where calls with `constants` took `taken_us`.

        Constants that are near enough, or at a limit, come back as they are.
        """
        if taken_us <= 0 or abs(taken_us / duration_us - 1) <= _FAR:
            return constants
        guess, now = self.guesses[duration_us][self.knob], constants[self.knob]
        wanted = now * (duration_us / taken_us) ** (1 / self.power)
        bounded = min(max(wanted, guess / _MOST), guess * _MOST)
        return {**constants, self.knob: max(round(bounded / self.step), 1) * self.step}


SCALES = {
    "relu": Scale(
        {us: {"batch_size": rows, "dim": 4096} for us, rows in ((5, 256), (20, 2048), (200, 24576))}, "batch_size", 16
    ),
    "short_walk": Scale(
        {us: {"places": 65536, "walkers": 32, "steps": steps} for us, steps in ((5, 6), (20, 30), (200, 330))}, "steps"
    ),
    "matmul": Scale(
        {
            5: {"rows": 128, "inner": 128, "columns": 64},
            20: {"rows": 640, "inner": 640, "columns": 640},
            200: {"rows": 1728, "inner": 1728, "columns": 1728},
        },
        "inner",  # A small product takes as long as its sums; more columns would run beside each other.
        32,
    ),
    "two_linears": Scale(
        {
            5: {"size": 64, "batch_size": 16},
            20: {"size": 512, "batch_size": 64},
            200: {"size": 1536, "batch_size": 256},
        },
        "size",
        64,
        3.0,
    ),
}


class Cheat(NamedTuple):
    """A cheat of windows: its title, row of the zoo, file if another form than the row's, and changes of the text.

    `changes` are pairs of old and new text by duration: a guessed number of calls depends on the problem's size.
    """

    title: str
    row: str
    form: Path | None = None
    changes: Mapping[int, tuple[str, str]] = {}


# The two launches of the first and the third move twice the bytes of a relu, which costs more than launches of longer
# calls: beyond 5 us, the persistent kernel and the graph are the strong forms of work for all calls at once.
CHEATS = (
    Cheat("work put off to the last call", "window-in-the-last-call"),
    Cheat("batched in the first call", "window-in-the-first-call"),
    Cheat(
        "guessed number of calls",
        "window-of-guessed-length",
        # Windows have 25 to 32 calls, 13 to 16, and 3 or 4 (2 or 3 on an H100).
        changes={20: ("CERTAIN = 24", "CERTAIN = 12"), 200: ("CERTAIN = 24", "CERTAIN = 2")},
    ),
    Cheat("persistent kernel", "window-in-the-first-call", _PERSISTENT),
    Cheat("overlapped on other streams", "window-overlapped"),
    Cheat("one CUDA graph for all calls", "window-in-one-graph"),
    Cheat("thread in pauses", "window-in-pauses"),
    Cheat("results of the call before", "window-of-last-results"),
    Cheat("weights folded once", "window-weights-folded-once"),
)


class Graded(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one grade of a cheat, or of an honest twin, whose name is its file. `error`: there was no verdict."""

    name: str
    duration_us: int
    constants: dict[str, int] = {}
    status: Status | None = None
    code: str = ""
    message: str = ""
    findings: list[str] = []
    speedup: float | None = None
    call_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    calls: str = ""
    error: str = ""

    @property
    def has_failed(self) -> bool:
        """Whether there is no verdict, or one that says nothing about cheating, such as a failed build."""
        return self.status not in (Status.CORRECT, Status.WRONG_RESULT, Status.REJECTED)


Grades = Mapping[tuple[str, int], Graded]


class State(StrEnum):
    """What came of a cheat at one duration. Only `quoted` can gain something."""

    MISSING = "not graded"
    FAILED = "failed"
    REFUSED = "refused"
    OTHER_REASON = "refused for another reason"
    UNQUOTED = "no speedup quoted"
    QUOTED = "quoted"


class Line(NamedTuple):
    """A line of the table. `note` says why the line is not complete: empty if it is."""

    state: State
    codes: list[str]
    gain_us: float | None = None
    note: str = ""


def entry_of(cheat: Cheat) -> Entry:
    """Return the row of the zoo, with the form's file if the cheat has one."""
    return replace(_rows()[cheat.row], path=cheat.form)


@functools.cache
def _rows() -> dict[str, Entry]:
    return {entry.name: entry for entry in entries()}


def twin_of(cheat: Cheat) -> str:
    """Return the name of the honest twin."""
    return str(entry_of(cheat).honest.relative_to(ZOO))


def problem_of(cheat: Cheat) -> str:
    """Return the name of the problem in the zoo's row."""
    return entry_of(cheat).expected.problem


def names_for(problem: str) -> list[str]:
    """Return the names of everything that is graded on a problem: the twins, which come first, then the cheats."""
    cheats = [cheat for cheat in CHEATS if problem_of(cheat) == problem]
    return [*dict.fromkeys(map(twin_of, cheats)), *(cheat.title for cheat in cheats)]


def is_twin(name: str) -> bool:
    """Return whether the name is that of an honest twin."""
    return name not in [cheat.title for cheat in CHEATS]


def cheats_text(cheat: Cheat, duration_us: int) -> str:
    """Return the text of a cheat for a duration.

    Raises:
        ValueError: the text to change does not occur exactly once.
    """
    text = entry_of(cheat).cheat.read_text()
    if duration_us not in cheat.changes:
        return text
    old, new = cheat.changes[duration_us]
    if text.count(old) != 1:
        raise ValueError(f"{cheat.row}: {old!r} occurs {text.count(old)} times in the cheat")
    return text.replace(old, new)


def write_problem(entry: Entry, constants: dict[str, int], folder: Path) -> Path:
    """Write the problem of a row into a new folder of `folder`, with other constants as its full size."""
    problem = entry.problem()
    name = "_".join([problem.name, *(str(value) for value in constants.values())])
    made = folder / name
    made.mkdir(exist_ok=True)
    settings = Path(problem.path, "problem.toml").read_text()
    sizes = "".join(f"{key} = {value}\n" for key, value in constants.items())
    text = re.sub(r"^\[sizes\.full\]\n[^\[]*", f"[sizes.full]\n{sizes}\n", settings, count=1, flags=re.MULTILINE)
    if tomllib.loads(text)["sizes"]["full"] != constants:
        raise ValueError(f"{problem.name}: problem.toml has no section of the full size that can be replaced")
    (made / "problem.toml").write_text(text)
    (made / "reference.py").write_text(with_constants(problem.source, constants, problem.name))
    return made


def at_size(entry: Entry, problem: Path, device: DeviceKind, cheat: Path) -> Entry:
    """Return the row for the problem in another folder, graded once and without its evidence: the table compares."""
    expected = replace(entry.expected, problem=str(problem), size=SizeName.FULL, device=device, evidence=None, runs=1)
    return replace(entry, expected=expected, path=cheat)


def graded_of(name: str, duration_us: int, constants: dict[str, int], outcome: Outcome) -> Graded:
    """Return what the table needs of an outcome. A failure of the grader is no verdict."""
    timing, reason = outcome.timing, outcome.reason
    code, message = ("", "") if reason is None else (reason.code, reason.message[:300])
    found = Graded(
        name=name,
        duration_us=duration_us,
        constants=constants,
        status=outcome.status,
        code=code,
        message=message,
        findings=[finding.code for finding in outcome.findings],
        error=f"{code}: {message}" if outcome.status is Status.INFRA_ERROR else "",
    )
    if timing is None:
        return found
    return replace(
        found,
        speedup=timing.speedup,
        call_us=timing.submission_median_ms * 1e3,
        low_us=_us(timing.submission_low_ms),
        high_us=_us(timing.submission_high_ms),
        calls=timing.submission.kind.value,
    )


def _us(time_ms: float | None) -> float | None:
    return None if time_ms is None else time_ms * 1e3


def line_of(cheat: Cheat, duration_us: int, grades: Grades) -> Line:
    """Return the line of a cheat at one duration. A line without a sound twin is not complete."""
    found, twin = grades.get((cheat.title, duration_us)), grades.get((twin_of(cheat), duration_us))
    line = _state_of(cheat, found, twin)
    if line.note or found is None:
        return line
    return line._replace(note=_doubt_of_twin(found, twin))


def _state_of(cheat: Cheat, found: Graded | None, twin: Graded | None) -> Line:
    if found is None:
        return Line(State.MISSING, [], note="not graded")
    if found.error:
        return Line(State.FAILED, [], note=found.error)
    match found.status:
        case Status.WRONG_RESULT | Status.REJECTED:
            if found.code in entry_of(cheat).expected.codes:
                return Line(State.REFUSED, [found.code])
            return Line(State.OTHER_REASON, [found.code], note=f"{found.status}: {found.message}")
        case Status.CORRECT if found.call_us is not None:
            if found.speedup is None:
                reasons = {Code.SHARED_WORK.value, Code.BELOW_RESOLUTION.value, Code.WEIGHTS_NOT_CHANGED.value}
                return Line(State.UNQUOTED, [code for code in found.findings if code in reasons], 0.0)
            gain_us = None if twin is None or twin.call_us is None else twin.call_us - found.call_us
            return Line(State.QUOTED, [], gain_us)
        case Status.CORRECT:
            return Line(State.FAILED, [], note="correct, without a time")
        case _:
            return Line(State.FAILED, [found.code], note=f"{found.status}: {found.message}")


def _doubt_of_twin(found: Graded, twin: Graded | None) -> str:
    """Return why the twin cannot stand beside the cheat; empty if it can."""
    if twin is None:
        return "its twin was not graded"
    if twin.error or twin.status is not Status.CORRECT or twin.call_us is None:
        return f"its twin: {twin.error or f'{twin.status} {twin.code} {twin.message}'}"
    if twin.constants != found.constants:
        return "its twin was graded at another size"
    return ""


def lines_of(grades: Grades) -> dict[tuple[str, int], Line]:
    """Return all lines, by cheat and duration."""
    return {(cheat.title, us): line_of(cheat, us, grades) for cheat in CHEATS for us in DURATIONS_US}


def exit_code(lines: Iterable[Line]) -> int:
    """Return 1 if a cheat gains more than is allowed, 3 if a line is not complete, else 0."""
    found = list(lines)
    if any(line.gain_us is not None and line.gain_us > ALLOWED_US for line in found):
        return 1
    return 3 if any(line.note for line in found) else 0


def table(grades: Grades) -> str:
    """Return the lines in Markdown, and the notes."""
    lines = lines_of(grades)
    gaining = [line for line in lines.values() if line.gain_us is not None and line.gain_us > ALLOWED_US]
    complete = [line for line in lines.values() if not line.note]
    summary = (
        f"{len(complete)} of {len(lines)} lines are complete. {len(gaining)} gain more than {ALLOWED_US:g} us a call. "
        "Times of a call in us, as quoted; without a quoted speedup nothing is gained."
    )
    text = [
        summary,
        "",
        "| cheat | duration | state | cheat | twin | gain | 95 % of the gain |",
        "|---|---|---|---|---|---|---|",
    ]
    for (title, us), line in lines.items():
        (cheat,) = (each for each in CHEATS if each.title == title)
        found, twin = grades.get((title, us)), grades.get((twin_of(cheat), us))
        state = f"{line.state.value} ({', '.join(line.codes)})" if any(line.codes) else line.state.value
        gain, interval = "", ""
        if line.gain_us is not None and line.state is State.QUOTED:
            gain = f"**{line.gain_us:+.2f}**" if line.gain_us > ALLOWED_US else f"{line.gain_us:+.2f}"
            interval = _interval(found, twin)
        elif line.state is State.UNQUOTED:
            gain = "none"
        text.append(f"| {title} | {us} us | {state} | {_call(found)} | {_call(twin)} | {gain} | {interval} |")
    notes = [f"- {title}, {us} us: {_flat(line.note)}" for (title, us), line in lines.items() if line.note]
    text += ["", "Not complete:", "", *notes] if notes else []
    return "\n".join(text) + "\n"


def _call(found: Graded | None) -> str:
    if found is None or found.call_us is None:
        return ""
    return f"{found.call_us:.2f} ({found.calls})"


def _interval(found: Graded | None, twin: Graded | None) -> str:
    if found is None or twin is None:
        return ""
    if None in (ends := (found.low_us, found.high_us, twin.low_us, twin.high_us)):
        return ""
    low_us, high_us, twin_low_us, twin_high_us = (each for each in ends if each is not None)
    return f"{twin_low_us - high_us:+.2f} to {twin_high_us - low_us:+.2f}"


def _flat(text: str) -> str:
    return " ".join(text.replace("|", "/").split())
