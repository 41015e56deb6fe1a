"""The scorecard: the record of one grade."""

from evaluator.records.base import SCHEMA_VERSION, Record, Seed, Sha256
from evaluator.records.build import Build
from evaluator.records.check import Check
from evaluator.records.evidence import OwnKernels, Profiling, Roofline
from evaluator.records.finding import Finding
from evaluator.records.machine import DeviceFacts, Environment, SandboxFacts
from evaluator.records.names import (
    Mode,
    Precision,
    Profile,
    SizeName,
    Status,
    ToleranceRule,
    WeightsGraded,
    WeightsRule,
)
from evaluator.records.problem import Constant
from evaluator.records.timing import Baseline, Timing


class ProblemRef(Record, frozen=True):
    """Which problem was graded, precisely enough to find it again and to see whether it changed."""

    name: str
    title: str
    level: int
    origin: str
    sha256: Sha256
    size: SizeName
    constants: dict[str, Constant]
    precision: Precision
    mode: Mode
    backward: bool


class SubmissionRef(Record, frozen=True):
    """What was graded. `source` is the Python text that was run, so a card replays without any other file.

    `sha256` is that of `source`; None where no code could be made out.
    """

    name: str
    origin: str
    sha256: Sha256 | None
    source: str
    extracted_from_answer: bool


class Seeds(Record, frozen=True):
    """The seeds that are not written beside a call. They are drawn fresh for every grade and revealed here.

    `profiles` are those that calls may have beside their problem's own values; a call's seed says which it has.
    """

    weight: Seed
    replayed_from: str | None
    profiles: list[Profile] = []


class Weights(Record, frozen=True):
    """Which weights the calls had.

    `rule` is what was asked for; `graded` what was done: weights that the submission does not have as the reference
    has them cannot be changed, and then `reason` says why, as it does where the reference bears no others. `changed`
    counts the parameters with weights of their own in each call, `copied` those of them that the runner had to copy.
    Where it is for the submission's sake alone that they stayed, they are `unmatched`, and no speedup is quoted.
    """

    rule: WeightsRule
    graded: WeightsGraded
    reason: str | None = None
    changed: int = 0
    copied: int = 0
    unmatched: bool = False


class RunnerOutput(Record, frozen=True):
    """What the submission printed: untrusted text, cut to its beginning and end."""

    total_bytes: int
    text: str


class Signature(Record, frozen=True):
    """Whose key signed the card, and the signature: Ed25519, both in base64.

    All else in the card is signed (how: `evaluator/signatures/signing.py`), the signer's own `name` of the key too.
    """

    algorithm: str
    public_key: str
    name: str
    value: str


class Scorecard(Record, frozen=True, kw_only=True):
    """The record of one grade: everything needed to believe it, and to repeat it."""

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
    required_own_kernel: float | None = None
    weights: Weights | None = None
    signature: Signature | None = None
