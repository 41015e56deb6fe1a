"""A problem, and the result of its admission."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from evaluator.records.base import Record, Sha256
from evaluator.records.names import (
    BenchmarkRule,
    CheckRule,
    ElementFormat,
    L2Rule,
    Layout,
    Mode,
    Precision,
    Profile,
    SizeName,
    WeightsRule,
)


class ToleranceOverride(Record, frozen=True):
    """Author's parameters of the measured tolerance rule; `None` keeps the default."""

    multiple: float | None = None
    floor: float | None = None


Constant = bool | int | float | str | list[int]
"""Value of a module-level constant of a reference, replaceable by a case."""
CaseName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$")]


class Case(Record, frozen=True):
    """A shape of a problem: `axes` are the constants that replace those in the reference's text.

    `weight` is the case's part of the score, relative to the other cases: for example the number of calls in a trace.
    `origin` names the source of the case. `uuid` and `tolerance` come from the file with the case, kept as data.
    """

    name: CaseName
    axes: dict[str, Constant]
    weight: float = 1.0
    origin: str = ""
    uuid: str | None = None
    tolerance: dict[str, Any] = {}


class AxisRange(Record, frozen=True):
    """Range of an axis for hidden cases: the multiples of `multiple_of` from `min` to `max`."""

    min: int
    max: int
    multiple_of: int = 1


def cases_of(sizes: Mapping[str, dict[str, Constant]]) -> dict[str, Case]:
    """Return a case for each size, by name.

    >>> cases_of({"small": {"n": 8}})["small"].axes
    {'n': 8}
    """
    return {str(name): Case(name=str(name), axes=axes) for name, axes in sizes.items()}


class MatchedRatio(Record, frozen=True):
    """SOL-ExecBench's tolerance: errors up to `max_atol + max_rtol * |expected|`, in the required share of elements.

    `max_error_cap` limits the error of every element. `allow_negative_inf` accepts -inf where the reference has it.
    `either`: as in FlashInfer-Bench, an error may also be small by one of both numbers alone.
    """

    max_atol: float = 1e-2
    max_rtol: float = 1e-2
    required_matched_ratio: float = 0.99
    max_error_cap: float | None = None
    allow_negative_inf: bool = False
    either: bool = False


class RooflineOverride(Record, frozen=True):
    """Author's correction of counted bytes and operations, with the `reason`.

    Each correction is a formula of the reference's constants, such as `4 * n * (n + 1) // 2`; None keeps the count.
    """

    reason: str
    read_bytes: str | None = None
    written_bytes: str | None = None
    flop: str | None = None


class OutputFormat(Record, frozen=True):
    """Declaration of an output: a format of few bits, or `flips`.

    `scales` is the path of the output that holds the scales of the format's blocks. `flips` is the share of elements
    that may be on the other side of a step, as of a comparison: from 0 to 1/16.
    """

    format: ElementFormat | None = None
    scales: str | None = None
    flips: float = 0.0


class Formats(Record, frozen=True):
    """Declared inputs, by parameter of forward, and outputs, by path (`output`, `output[0]`)."""

    inputs: dict[str, ElementFormat] = {}
    outputs: dict[str, OutputFormat] = {}


_Index = Annotated[int, msgspec.Meta(ge=0)]


class RowSite(Record, frozen=True):
    """Dimension `dim` of input tensor number `tensor`, along which rows are independent.

    `outputs` holds, by path, the dimension along which each slice of an output depends on one row, at least mostly. The
    reference takes rows with random `signs`, and rows whose size is `concentrated` in a few elements.
    """

    tensor: _Index
    dim: _Index
    outputs: dict[str, _Index]
    signs: bool = True
    concentrated: bool = True


class Problem(Record, frozen=True):
    """A reference `Model` with `get_inputs` and `get_init_inputs`, and its settings. Loading a problem runs no code.

    `source` is the reference's text as written by its author. `cases` has the sizes and the cases of the workload,
    by name. `split` maps inputs to the dimension along which they can be cut into blocks without changing the
    rows of the output (its dimension 0), so that float64 fits into memory. `profiles` maps value profiles to a reason
    for exclusion, or to true for unconditional use. `layouts` lists the allowed memory layouts of inputs. `weights` is
    the rule for weights, `l2` the state of the inputs in a GPU's L2 cache when a timed call begins. `formats` declares
    inputs and outputs in formats of few bits. `check` is the role of the reference's own `check`, None without one.
    `hidden` has the axes of hidden cases, with their ranges. `benchmark` is the benchmark whose rule gives a second
    opinion.
    """

    name: str
    title: str
    level: int
    description: str
    origin: str
    path: str
    source: str
    sha256: Sha256
    cases: dict[CaseName, Case]
    precision: Precision = Precision.FP32
    mode: Mode = Mode.TRAIN
    backward: bool = False
    tolerance: ToleranceOverride = ToleranceOverride()
    split: dict[str, int] = {}
    roofline: RooflineOverride | None = None
    profiles: dict[Profile, str | bool] = {}
    layouts: list[Layout] = []
    weights: WeightsRule = WeightsRule.CHANGING
    l2: L2Rule = L2Rule.COLD
    formats: Formats = Formats()
    check: CheckRule | None = None
    hidden: dict[str, AxisRange] = {}
    benchmark: BenchmarkRule = BenchmarkRule.KERNELBENCH

    @property
    def workload(self) -> tuple[str, ...]:
        """The names of the cases beside the sizes, in their order."""
        return tuple(name for name in self.cases if name not in set(SizeName))

    def matched_ratio(self, case: CaseName) -> MatchedRatio | None:
        """The tolerance of a case by the benchmark's rule; None where that is KernelBench's, or the problem's check."""
        if self.benchmark is BenchmarkRule.KERNELBENCH or self.benchmark.is_check or case not in self.cases:
            return None
        return msgspec.convert(self.cases[case].tolerance, MatchedRatio)


class ControlResult(Record, frozen=True):
    """Result of a bad submission (a control) of `problems validate`.

    `gets_away`: the control passes every call of a grade. `passes_on` lists the profiles on which its values pass,
    `caught_on` is the first profile on which its values fail. `caught_by_rounding`: its values pass on every profile,
    but on the problem's own values the errors reveal the rounding of reduced precision, as timed calls would detect.
    `passes_kernelbench`: on the problem's own values the control also passes KernelBench's rule.
    """

    control: str
    gets_away: bool
    passes_on: list[Profile]
    caught_on: Profile | None
    caught_by_rounding: bool
    advice: str
    passes_kernelbench: bool


class Admission(Record, frozen=True):
    """Result of separating bad from good submissions of a problem at a given size.

    `left_out` maps the unused profiles to reasons. `honest_failures` lists honest variants of the reference that exceed
    the problem's tolerance. `cases` are the names of all cases of the problem.
    """

    problem: str
    size: CaseName
    profiles: list[Profile]
    left_out: dict[Profile, str]
    controls: list[ControlResult]
    honest_failures: list[str]
    cases: list[CaseName] = []

    @property
    def admitted(self) -> bool:
        """Whether every bad submission fails and every honest variant passes."""
        return not self.honest_failures and not any(each.gets_away for each in self.controls)
