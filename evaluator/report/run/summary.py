"""Statistics of many submissions and of their cases: shares built, correct and fast, pass@k, mean speedups. Pure.

The denominator includes every submission, graded or not, and every refused input. Statistics never mix devices. A
refused input without a known problem counts in the total only: in shares of submissions, and in no mean over problems.

Intervals of shares treat samples of one problem as independent. If few problems have many samples each, the intervals
are too narrow to generalise to other problems.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from evaluator.catalog import natural
from evaluator.findings import Code
from evaluator.records import BenchmarkRule, CallKind, L2Rule, Status
from evaluator.report.run.intervals import NOTHING, Estimate, geometric_mean, share
from evaluator.text import significant, speedup_text


class CaseSample(NamedTuple):
    """A case of a submission's card; the fields are those of `CaseResult`. `status` is None for a case left out.

    `axes` are those that differ between the cases of the card, as text.
    """

    name: str
    status: Status | None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    axes: str = ""

    @property
    def correct(self) -> bool:
        """Whether the case is correct."""
        return self.status is Status.CORRECT


class CaseSummary(NamedTuple):
    """A case of a problem over all submissions.

    `faster` counts those whose interval lies above 1. `speedup` is the geometric mean of the quoted speedups.
    """

    problem: str
    case: str
    graded: int
    correct: int
    faster: int
    speedup: float | None


def case_summaries(samples: Iterable[tuple[str, Sequence[CaseSample]]]) -> list[CaseSummary]:
    """Return a summary of each case, from the problem and the cases of each submission."""
    by_case: dict[tuple[str, str], list[CaseSample]] = defaultdict(list)
    for problem, cases in samples:
        for case in cases:
            by_case[problem, case.name].append(case)
    return [_summary(problem, name, cases) for (problem, name), cases in by_case.items()]


def case_table(summaries: Sequence[CaseSummary]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table of the cases."""
    rows = [
        [
            f"{each.problem}, {each.case}",
            f"{each.correct} of {each.graded}",
            str(each.faster),
            NOTHING if each.speedup is None else f"{significant(each.speedup)}x",
        ]
        for each in summaries
    ]
    return ["", "correct", "faster", "speedup"], rows


def _summary(problem: str, name: str, cases: Sequence[CaseSample]) -> CaseSummary:
    graded = [case for case in cases if case.status is not None]
    right = [case for case in graded if case.correct]
    mean = geometric_mean([case.speedup for case in right if case.speedup is not None and case.speedup > 0])
    return CaseSummary(
        problem=problem,
        case=name,
        graded=len(graded),
        correct=len(right),
        faster=sum((case.speedup_low or 0.0) > 1 for case in right),
        speedup=None if mean is None else mean.value,
    )


THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0)
PASS_AT = (1, 2, 5, 10, 25, 50, 100)
MISSING = "missing"
REFUSED = "refused"


class Device(NamedTuple):
    """Device of graded samples: its kind, and the name of the CPU or GPU. The name is empty if nothing was graded."""

    kind: str
    name: str
    timed: bool


class RunSample(NamedTuple):
    """One submission of a run. `status` and `device` are None without a card; `reason` is a finding's code, if any.

    `reference_calls`, `submission_calls` and `l2` are circumstances of the speedup, as in the index. A refused
    input could not be graded. `level` is None without a known problem. `benchmark_correct` and `benchmark_rule` are
    as on the card. `cases` are those of a grade of several, without hidden ones.
    """

    problem: str
    level: int | None
    name: str
    device: Device | None
    status: Status | None
    built: bool = False
    speedup: float | None = None
    reason: str | None = None
    reference_calls: str | None = None
    submission_calls: str | None = None
    l2: str | None = None
    host_bound: bool = False
    is_refused: bool = False
    benchmark_correct: bool | None = None
    benchmark_rule: BenchmarkRule = BenchmarkRule.KERNELBENCH
    cases: tuple[CaseSample, ...] = ()
    speedup_low: float | None = None
    speedup_high: float | None = None

    @property
    def correct(self) -> bool:
        """Whether the submission is correct."""
        return self.status is Status.CORRECT

    @property
    def mixes_kinds(self) -> bool:
        """Whether the speedup compares windows of one side with single calls of the other."""
        return self.reference_calls != self.submission_calls

    @property
    def speedup_text(self) -> str:
        """The speedup with the interval, and a remark about calls of two kinds; empty without a speedup."""
        return speedup_text(self.speedup, self.speedup_low, self.speedup_high, mixes_kinds=self.mixes_kinds)

    @property
    def measured(self) -> dict[str, str | None] | None:
        """How the speedup was measured; None for an untimed submission."""
        names = ("reference_calls", "submission_calls", "l2")
        return None if self.submission_calls is None else {name: getattr(self, name) for name in names}

    @property
    def graded_cases(self) -> dict[str, CaseSample]:
        """The cases that were not left out, by name."""
        return {case.name: case for case in self.cases if case.status is not None}

    @property
    def by_benchmark(self) -> "RunSample":
        """The sample with the verdict of the benchmark's rule; without an opinion, the same sample."""
        if self.benchmark_correct is None:
            return self
        refused = Status.WRONG_RESULT if self.correct else self.status
        status = Status.CORRECT if self.benchmark_correct else refused
        return self._replace(status=status, benchmark_correct=None)

    @property
    def status_text(self) -> str:
        """The status, `refused` or `missing`."""
        if self.status is None:
            return REFUSED if self.is_refused else MISSING
        return self.status.value


class Summary(NamedTuple):
    """Statistics of a group of samples.

    `fast` maps p to the share of samples that are correct and more than p times as fast as the reference; at 0, the
    share of correct samples. `pass_at` maps k to the mean over the `pass_at_problems` problems with at least k samples.
    `speedup` is the geometric mean over correct samples with a speedup, `unquoted` counts the correct samples without
    one. `speedup_or_1` is the geometric mean over all samples, where a failure or a missing speedup counts as 1: users
    would run the reference. Both are None without any quoted speedup. A device without a clock has no statistics of
    speed. `wrong_on_other_values` counts the samples that are correct on the problem's own values, and on no others.
    """

    samples: int
    problems: int
    statuses: dict[str, int]
    built: Estimate | None
    correct: Estimate | None
    fast: dict[float, Estimate | None]
    pass_at: dict[int, Estimate | None]
    pass_at_problems: dict[int, int]
    speedup: Estimate | None
    speedup_or_1: Estimate | None
    unquoted: int
    wrong_on_other_values: int
    measured: "Measured"


class Measured(NamedTuple):
    """Numbers of quoted speedups by kind of calls, and by state of the inputs in the L2 cache.

    `mixed` compares windows of a side with single calls of the other. `host_bound` counts the speedups with a
    host-bound side.
    """

    windows: int
    single: int
    mixed: int
    cold: int
    warm: int
    host_bound: int


def measured_as(samples: Sequence[RunSample]) -> Measured:
    """Count the correct samples with a speedup."""
    quoted = [sample for sample in samples if sample.correct and sample.speedup is not None]
    calls = Counter((sample.reference_calls, sample.submission_calls) for sample in quoted)
    inputs = Counter(sample.l2 for sample in quoted)
    of_windows, of_single = (calls[kind.value, kind.value] for kind in CallKind)
    of_known_kinds = sum(count for kinds, count in calls.items() if None not in kinds)
    return Measured(
        windows=of_windows,
        single=of_single,
        mixed=of_known_kinds - of_windows - of_single,
        cold=inputs[L2Rule.COLD.value],
        warm=inputs[L2Rule.WARM.value],
        host_bound=sum(sample.host_bound for sample in quoted),
    )


class WholeLevel(NamedTuple):
    """Shares of all `problems` of a KernelBench level; a problem without a sample counts as not correct.

    `tried` problems have samples. A problem with several samples counts with the mean over the samples. `fast` is as in
    `Summary`.
    """

    problems: int
    tried: int
    correct: Estimate | None
    fast: dict[float, Estimate | None]


class Section(NamedTuple):
    """Statistics of one device: total, by level and by problem. `whole_levels` has the levels of known size.

    `by_benchmark` has the verdicts of the benchmark's rule; None if no card has an opinion. The verdicts disagree on
    the samples `disputed`. Samples accepted by the benchmark's rule alone come first: never timed, and so never fast.
    """

    device: Device
    total: Summary
    levels: dict[int, Summary]
    problems: dict[str, Summary]
    whole_levels: dict[int, WholeLevel] = {}
    by_benchmark: "Section | None" = None
    disputed: Sequence[RunSample] = ()
    cases: Sequence[CaseSummary] = ()
    benchmark: str = ""


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Return the unbiased estimate of the probability that one of `k` samples is correct, given `correct` of `samples`.

    1 - C(n - c, k) / C(n, k): Chen et al., "Evaluating Large Language Models Trained on Code" (2021), equation 1.

    >>> pass_at_k(4, 1, 2)
    0.5

    Raises:
        ValueError: `k` is not between 1 and `samples`, or `correct` not between 0 and `samples`.
    """
    if not (1 <= k <= samples and 0 <= correct <= samples):
        raise ValueError(f"pass@{k} cannot be estimated from {correct} of {samples} samples")
    # Exact integers: only the quotient is rounded.
    return 1 - math.comb(samples - correct, k) / math.comb(samples, k)


def summarise(samples: Sequence[RunSample], *, timed: bool) -> Summary:
    """Return the statistics of one device's samples. `timed`: the device has a clock."""
    by_problem: dict[str, list[bool]] = defaultdict(list)
    for sample in samples:
        if sample.level is not None:
            by_problem[sample.problem].append(sample.correct)
    correct = [sample for sample in samples if sample.correct]
    speedups = [sample.speedup for sample in correct if sample.speedup is not None] if timed else []
    fast: dict[float, Estimate | None] = {
        p: share(sum(speedup > p for speedup in speedups), len(samples)) if timed else None for p in THRESHOLDS
    }
    fast[0.0] = share(len(correct), len(samples))
    most = max(map(len, by_problem.values()), default=0)
    pass_at, pass_at_problems = {}, {}
    for k in (k for k in PASS_AT if k <= most):
        estimates = [
            pass_at_k(len(verdicts), sum(verdicts), k) for verdicts in by_problem.values() if len(verdicts) >= k
        ]
        pass_at[k], pass_at_problems[k] = share(math.fsum(estimates), len(estimates)), len(estimates)
    return Summary(
        samples=len(samples),
        problems=len(by_problem),
        statuses=dict(Counter(sample.status_text for sample in samples)),
        built=share(sum(sample.built for sample in samples), len(samples)),
        correct=share(len(correct), len(samples)),
        fast=fast,
        pass_at=pass_at,
        pass_at_problems=pass_at_problems,
        speedup=geometric_mean(speedups),
        speedup_or_1=geometric_mean([*speedups, *[1.0] * (len(samples) - len(speedups))]) if speedups else None,
        unquoted=len(correct) - len(speedups) if timed else 0,
        wrong_on_other_values=sum(sample.reason == Code.WRONG_ON_OTHER_VALUES.value for sample in samples),
        measured=measured_as(samples if timed else ()),
    )


def sections(
    samples: Iterable[RunSample], run_device: Device, level_sizes: Mapping[int, int] | None = None
) -> list[Section]:
    """Return the statistics of each device.

    A submission without a card and a refused input count on every device: the device is unknown. `run_device` is
    the device of a run without any card, and `level_sizes` the number of problems in each level, where known.
    """
    by_device: dict[Device, list[RunSample]] = defaultdict(list)
    missing = []
    for sample in samples:
        if sample.device is None:
            missing.append(sample)
        else:
            by_device[sample.device].append(sample)
    if missing and not by_device:
        by_device[run_device] = []
    return [_section(device, [*group, *missing], level_sizes or {}) for device, group in sorted(by_device.items())]


def _section(device: Device, samples: list[RunSample], level_sizes: Mapping[int, int]) -> Section:
    levels: dict[int, list[RunSample]] = defaultdict(list)
    problems: dict[str, list[RunSample]] = defaultdict(list)
    for sample in samples:
        if sample.level is None:
            continue
        levels[sample.level].append(sample)
        problems[sample.problem].append(sample)
    has_opinion = any(sample.benchmark_correct is not None for sample in samples)
    by_benchmark = [sample.by_benchmark for sample in samples] if has_opinion else []
    return Section(
        device=device,
        total=summarise(samples, timed=device.timed),
        levels={level: summarise(levels[level], timed=device.timed) for level in sorted(levels)},
        problems={name: summarise(problems[name], timed=device.timed) for name in sorted(problems, key=natural)},
        whole_levels={
            level: _whole_level(level_sizes[level], samples, timed=device.timed)
            for level, samples in sorted(levels.items())
            if level in level_sizes
        },
        by_benchmark=_section(device, by_benchmark, level_sizes) if has_opinion else None,
        benchmark=_benchmark(samples),
        disputed=sorted(
            (sample for sample in samples if sample.by_benchmark.correct is not sample.correct),
            key=lambda sample: sample.correct,
        ),
        cases=case_summaries((sample.problem, sample.cases) for sample in samples),
    )


def _benchmark(samples: Sequence[RunSample]) -> str:
    """Return the benchmark whose rule has opinions; a general word for several benchmarks."""
    titles = {sample.benchmark_rule.label for sample in samples if sample.benchmark_correct is not None}
    return titles.pop() if len(titles) == 1 else "the benchmark"


def _whole_level(problems: int, samples: Sequence[RunSample], *, timed: bool) -> WholeLevel:
    by_problem: dict[str, list[RunSample]] = defaultdict(list)
    for sample in samples:
        by_problem[sample.problem].append(sample)
    problem_count = max(problems, len(by_problem))  # the number comes from a run folder, which may be anybody's

    def of_all(p: float) -> Estimate | None:
        means = [
            sum(sample.correct and (not p or (sample.speedup or 0.0) > p) for sample in group) / len(group)
            for group in by_problem.values()
        ]
        return share(math.fsum(means), problem_count)

    fast = {p: of_all(p) if timed or p == 0 else None for p in THRESHOLDS}
    return WholeLevel(problem_count, len(by_problem), fast[0.0], fast)
