"""The scorecard, and the outcome of a grade before the card is written."""

from typing import NamedTuple

from msgspec.structs import replace

from evaluator.records.base import SCHEMA_VERSION, Finding, LevelNumber, Record, Seed, Sha256
from evaluator.records.check import CaseResult, Check, Quoted, Score
from evaluator.records.evidence import (
    Build,
    DeviceFacts,
    Environment,
    GpuFacts,
    MachineCode,
    OwnKernels,
    Profiling,
    Roofline,
    SandboxFacts,
)
from evaluator.records.languages import Toolchain
from evaluator.records.names import (
    BenchmarkRule,
    CheckRule,
    DeviceKind,
    GradeMode,
    Mode,
    Precision,
    Profile,
    SizeName,
    Status,
    ToleranceRule,
    ValuesRule,
    WeightsGraded,
    WeightsRule,
)
from evaluator.records.problem import CaseName, Constant
from evaluator.records.timing import Baseline, L2Inputs, Timing


class ProblemRef(Record, frozen=True):
    """Reference to the graded problem, with a hash to detect changes.

    `size` is the name of the card's own case, with the axes `constants`. `check` is the role of the problem's own
    check.
    """

    name: str
    title: str
    level: LevelNumber
    origin: str
    sha256: Sha256
    size: CaseName
    constants: dict[str, Constant]
    precision: Precision
    mode: Mode
    backward: bool
    check: CheckRule | None = None


class SubmissionRef(Record, frozen=True):
    """The graded submission. `source` is the executed Python text: a card replays without other files.

    A submission of several files has all its files in `source` (see `evaluator/protocol/submission_files.py`).
    `sha256` is the hash of `source`; None if no code was found. `toolchains` are the languages that the text names:
    none for plain PyTorch, and for cards without this field.
    """

    name: str
    origin: str
    sha256: Sha256 | None
    source: str
    extracted_from_answer: bool
    toolchains: list[Toolchain] = []


class CancellingRows(Record, frozen=True):
    """Dimension of an input tensor along which secret rows have random signs in calls with the problem's own values.

    `tensor` is the number of the tensor among all input tensors.
    """

    tensor: int
    dim: int


class Seeds(Record, frozen=True):
    """Seeds shared by all calls. A grade draws fresh seeds and reveals them here.

    `profiles` lists the profiles of calls beside the problem's own values; the call's seed selects the profile. The
    seed also selects the rows along the dimensions in `cancelling_rows`.
    """

    weight: Seed
    replayed_from: str | None
    profiles: list[Profile] = []
    cancelling_rows: list[CancellingRows] = []


class Weights(Record, frozen=True):
    """Weights of the calls.

    `rule` is the requested rule, `graded` the applied one. Weights stay frozen if the submission's parameters do not
    correspond to the reference's, or if the reference supports no other weights; `reason` names the cause. `changed`
    counts the parameters with new values in each call, `copied` those among them that the runner copies. `unmatched`:
    the weights stayed frozen only because of the submission, so no speedup is quoted.
    """

    rule: WeightsRule
    graded: WeightsGraded
    reason: str | None = None
    changed: int = 0
    copied: int = 0
    unmatched: bool = False


class RunnerOutput(Record, frozen=True):
    """Text printed by the submission: untrusted, cut to its beginning and end."""

    total_bytes: int
    text: str


class Signature(Record, frozen=True):
    """Signature of the card and its public key: Ed25519, both in base64.

    The signature covers the rest of the card, including the signer's `name` of the key (see
    `evaluator/signatures/signing.py`).
    """

    algorithm: str
    public_key: str
    name: str
    value: str


_WITHOUT_OUTPUTS = frozenset({Status.BUILD_ERROR, Status.RUNTIME_ERROR, Status.TIMEOUT, Status.INFRA_ERROR})


class Scorecard(Record, frozen=True, kw_only=True):
    """Record of a grade: all data needed to verify and to repeat the grade.

    A card of mode `check`, and a card of `emulated`, never has times. `benchmark_correct`: `benchmark_rule`, the
    rule of the problem's own benchmark, accepts the submission's outputs (`benchmark_of_checks`).

    A grade of several cases has the result of each in `cases`, the card's own first, and a `score`. The status is the
    worst. Times and evidence outside of `cases` are of the card's own case; `checks` are all.
    """

    schema_version: int = SCHEMA_VERSION
    status: Status
    reason: Finding | None
    problem: ProblemRef
    submission: SubmissionRef
    device: DeviceFacts
    environment: Environment
    sandbox: SandboxFacts | None
    tolerance: ToleranceRule
    seeds: Seeds | None
    build: Build | None
    checks: list[Check]
    timing: Timing | None
    findings: list[Finding]
    output: RunnerOutput
    graded_at: str
    stages_s: dict[str, float]
    wall_s: float
    roofline: Roofline | None = None
    baselines: list[Baseline] = []
    profiling: Profiling | None = None
    own_kernels: OwnKernels | None = None
    machine_code: MachineCode | None = None
    required_own_kernel: float | None = None
    weights: Weights | None = None
    values: ValuesRule = ValuesRule.ALL
    l2: L2Inputs | None = None
    mode: GradeMode = GradeMode.FULL
    entry: str | None = None
    signature: Signature | None = None
    benchmark_correct: bool | None = None
    benchmark_rule: BenchmarkRule = BenchmarkRule.KERNELBENCH
    cases: list[CaseResult] = []
    score: Score | None = None

    @property
    def has_passed(self) -> bool:
        """Whether a check passed with evidence: comparisons, unless a check or the benchmark's rule decides instead."""
        decides = self.problem.check is CheckRule.INSTEAD or self.tolerance is ToleranceRule.BENCHMARK
        return any(check.ok and (check.tensors or decides) for check in self.checks)

    @property
    def benchmark_of_checks(self) -> bool | None:
        """Whether the benchmark's rule accepts all checked calls with an opinion, at the card's case and its workload.

        The opinion is about the calls before the verdict ended the grade. None without an opinion, and for a submission
        without outputs: not built, crashed, or out of time. By no rule is a submission without outputs correct.
        """
        others = {case.name for case in self.cases if not case.hidden} - set(SizeName)
        names = {None, self.problem.size, *others}
        opinions = [check.benchmark_ok for check in self.checks if check.size in names]
        known = [opinion for opinion in opinions if opinion is not None]
        return all(known) if known and self.status not in _WITHOUT_OUTPUTS else None

    @property
    def remarks(self) -> list[Finding]:
        """The findings beside the reason."""
        return [finding for finding in self.findings if finding != self.reason]

    @property
    def is_disputed(self) -> bool:
        """Whether the benchmark's rule and the verdict disagree."""
        return self.benchmark_correct not in (None, self.status is Status.CORRECT)

    @property
    def sizes(self) -> tuple[CaseName, ...]:
        """The names of the graded cases, the card's own first."""
        names = [*(case.name for case in self.cases), *(each.size for each in self.checks if each.size is not None)]
        return tuple(dict.fromkeys([self.problem.size, *names]))

    @property
    def quoted(self) -> Quoted:
        """The speedup of a correct card: the score of several timed cases, otherwise that of the card's own case."""
        if self.status is not Status.CORRECT:
            return Quoted(None, None, None)
        several = sum(not case.hidden for case in self.cases) > 1
        quote = self.score if several else self.timing
        return (
            Quoted(None, None, None) if quote is None else Quoted(quote.speedup, quote.speedup_low, quote.speedup_high)
        )

    @property
    def has_like_weights(self) -> bool:
        """Whether both sides computed with weights of the same kind. True for older cards without this field."""
        return self.weights is None or not self.weights.unmatched

    @property
    def is_timed(self) -> bool:
        """Whether a correct submission is timed, by mode and device of the grade."""
        return self.mode is GradeMode.FULL and self.device.kind is not DeviceKind.EMULATED


class Fault(NamedTuple):
    """Failure of a submission: verdict and reason."""

    status: Status
    finding: Finding


class Outcome(Record, frozen=True):
    """Result so far. An outcome starts as a failure; only the judge's own evidence turns a failure into a pass.

    `toolchains` are the languages of the parsed text; None without a parsed text.
    """

    status: Status = Status.INFRA_ERROR
    reason: Finding | None = None
    build: Build | None = None
    checks: list[Check] = []
    timing: Timing | None = None
    l2: L2Inputs | None = None
    findings: list[Finding] = []
    sandbox: SandboxFacts | None = None
    gpu: GpuFacts | None = None
    roofline: Roofline | None = None
    baselines: list[Baseline] = []
    profiling: Profiling | None = None
    own_kernels: OwnKernels | None = None
    machine_code: MachineCode | None = None
    weights: Weights | None = None
    output: RunnerOutput = RunnerOutput(total_bytes=0, text="")
    toolchains: list[Toolchain] | None = None
    cases: list[CaseResult] = []
    score: Score | None = None

    @property
    def is_final(self) -> bool:
        """Whether the verdict is decided: a failure with its reason, or `correct`."""
        return self.reason is not None or self.status is Status.CORRECT

    def failed(self, status: Status, reason: Finding) -> "Outcome":
        """Return the outcome with a failure as the verdict."""
        return replace(self, status=status, reason=reason)
