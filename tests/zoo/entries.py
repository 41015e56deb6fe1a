"""Read the zoo: a folder for each known way to fool a grader, with the cheat, its honest twin and what is expected."""

import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from evaluator.catalog import find_problem
from evaluator.records import DeviceKind, Problem, SizeName, Status

ZOO = Path(__file__).parent
EXPECT_FILE = "expect.toml"
ROWS = 73

Kind = Literal[
    "wrong-result-accepted", "spec-gaming", "grader-tampering", "no-real-work", "fake-timing", "environment-abuse"
]


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of an expect.toml."""


class Evidence(_Table, frozen=True, kw_only=True):
    """What shows that a cheat which computes the right thing gains nothing.

    `quoted_at_least_ms`: the submission's quoted time, which has the sleep of the cheat in it.
    `reference_at_most_ms`: the reference's quoted time, which has not the sleep that the cheat put into it.
    `prints_never`: what the cheat prints when its trick works.
    `of_twin_at_least`: the submission's quoted time, as a multiple of that of its twin.
    `gains_at_most_us`: the submission's quoted time is below its twin's by this and 3 % at most, or its windows
    disagree with other measurements (T318) and no speedup is quoted.
    """

    quoted_at_least_ms: float | None = None
    reference_at_most_ms: float | None = None
    prints_never: str | None = None
    of_twin_at_least: float | None = None
    gains_at_most_us: float | None = None

    @property
    def needs_twin(self) -> bool:
        """Whether the time of the twin is needed."""
        return self.of_twin_at_least is not None or self.gains_at_most_us is not None


class Control(_Table, frozen=True, kw_only=True):
    """Which naive grader accepts the cheat; see `naive_grader.py`. `gain` is the least speedup that it must report, as a
    multiple of its twin's where that is `over_twin`: there the work itself is faster than the reference's.

    `seeded`: PyTorch is seeded before each forward, off the clock, as random numbers inside of it ask for.
    `clock`, on a GPU: events on the current stream, or the host's around `torch.cuda.synchronize`; `flush` overwrites
    the cache between calls. On a GPU where the row's device is one, or `needs_gpu`.
    """

    order: Literal["reference first", "submission first", "collect"] = "reference first"
    comparator: Literal["allclose", "count", "ratio"] = "allclose"
    channel: Literal["file", "stdout", "pipe", "pickle", "exit code", "fail open", "reader"] = "file"
    baseline: Literal["before", "after"] = "after"
    pool: bool = False
    seeded: bool = False
    stress: bool = False
    size: SizeName | None = None
    gain: float = 0.0
    over_twin: bool = False
    needs_gpu: bool = False
    clock: Literal["host", "events", "synchronize"] = "host"
    flush: bool = False


class Expectation(_Table, frozen=True, kw_only=True):
    """An expect.toml.

    `status` (or `or_status`) and `codes` are the verdict that rejects the cheat for its row's reason, which `rule`
    names. A cheat that computes the right thing and only lies about it is `correct`, and `evidence` shows that the lie
    gains nothing.
    No `status`: the answer is right, and `problems validate` refuses the problem, which lets the control `refused_for`
    get away. With `own_kernel` the grade asks for
    that share of own kernels; without it the cheat is `correct`, with `findings`. `not_yet` says what is missing where
    the cheat still passes.
    Without `naive` no naive grader takes the cheat in: none has windows, or a GPU shows that it is wrong, and only the
    emulator could be told otherwise. Its mutation is then the positive control.
    `twin` names one of the `twins` that rows share.
    `size` is the problem's for the judge (on `emulated` it is always the small one), `runs` how often both graders
    grade the cheat: the last time counts.
    """

    row: int
    kind: Kind
    device: DeviceKind
    problem: str
    rule: str
    twin: str = ""
    status: Status | None = None
    or_status: Status | None = None
    codes: list[str] = []
    size: SizeName = SizeName.AWKWARD
    runs: int = 1
    compiles: bool = False
    own_kernel: float | None = None
    findings: list[str] = []
    not_yet: str = ""
    refused_for: str = ""
    evidence: Evidence | None = None
    naive: bool = True
    control: Control = Control()


class Entry(msgspec.Struct, frozen=True):
    """A row of the zoo; its name is that of THREATS and of its folder. `path` is another form of the cheat, if any."""

    name: str
    expected: Expectation
    path: Path | None = None

    @property
    def cheat(self) -> Path:
        """Give the path of the submission that cheats."""
        return ZOO / self.name / "cheat.py" if self.path is None else self.path

    @property
    def honest(self) -> Path:
        """Give the path of its twin, which does not: its own, or one of those that several rows share."""
        return ZOO / "twins" / f"{self.expected.twin}.py" if self.expected.twin else ZOO / self.name / "honest.py"

    @property
    def control_device(self) -> str:
        """Say where its naive grader runs."""
        on_gpu = self.expected.control.needs_gpu or self.expected.device is DeviceKind.CUDA
        return "cuda" if on_gpu else "cpu"

    def problem(self) -> Problem:
        """Read the problem: one of the zoo's own, which are weak where a row needs that, or a shipped one."""
        own = ZOO / "problems" / self.expected.problem
        return find_problem(str(own) if own.is_dir() else self.expected.problem)


def entries(folder: str = "") -> list[Entry]:
    """Read every row, or the rows' forms in a folder such as `half/`, in the order of the list of threats.

    Raises:
        msgspec.ValidationError: an expect.toml has an unknown key or value, or lacks one.
    """
    found = [
        Entry(path.parent.relative_to(ZOO).as_posix(), msgspec.convert(tomllib.loads(path.read_text()), Expectation))
        for path in ZOO.glob(f"{folder}*/{EXPECT_FILE}")
    ]
    return sorted(found, key=lambda entry: entry.expected.row)
