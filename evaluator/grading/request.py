"""What is to be graded and how, and a grade that is begun: built, to be finished where a GPU is."""

from evaluator.deadline import limit_s
from evaluator.devices.gpu import Gpu
from evaluator.isolation import SandboxMode
from evaluator.progress import Lap
from evaluator.records import (
    BaselineKind,
    DeviceKind,
    Finding,
    Outcome,
    Problem,
    ProfilerKind,
    Record,
    Scorecard,
    Sha256,
    SizeName,
    ToleranceRule,
    WeightsRule,
)
from evaluator.submission.read import Submission


class Unread(Record, frozen=True):
    """A submission that could not be made out: why, and where it came from. It still gets a scorecard."""

    name: str
    origin: str
    finding: Finding


class GradeRequest(Record, frozen=True):
    """What is to be graded, and how. `timeout_s` is for each stage of the submission; None leaves it to the judge.

    `require_own_kernel` is the least share of the work that the submission's own kernels must do; `strict` refuses to
    grade where a wall of the sandbox is missing. `baselines` and `speedup_of` are timed beside the reference. With
    `profile` a correct submission is run once more, to see where its time goes. `deadline_s` is for the whole grade.
    `weights` is the problem's own rule where it is None.
    """

    problem: Problem
    submission: Submission | Unread
    device: DeviceKind
    gpu: Gpu | None
    size: SizeName
    tolerance: ToleranceRule
    sandbox: SandboxMode
    timeout_s: float | None
    build_timeout_s: float
    replay: Scorecard | None
    require_own_kernel: float | None = None
    strict: bool = False
    baselines: list[BaselineKind] = []
    speedup_of: Submission | None = None
    profile: ProfilerKind | None = None
    deadline_s: float | None = None
    weights: WeightsRule | None = None

    @property
    def limit_s(self) -> float:
        """How long all of the grade may take."""
        return limit_s(self.deadline_s, self.build_timeout_s)


class Library(Record, frozen=True):
    """What a build made, by its key in the cache, for a machine that does not share that."""

    key: Sha256
    content: bytes
    log: str
    wall_s: float


class Begun(Record, frozen=True):
    """A grade whose submission is built, to be finished where a GPU is; with its `libraries`, if that is elsewhere.

    `submission_s` is how much of the time was the submission's own.
    """

    outcome: Outcome
    lap: Lap
    libraries: list[Library] = []
    submission_s: float = 0.0
