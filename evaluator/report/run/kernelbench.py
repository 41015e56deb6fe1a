"""Export of a run in the format of KernelBench's analysis: results of each level, and reference times.

The format of `eval_results.json` comes from KernelBench's scripts/eval_from_generations.py: `{"<problem number>":
[{sample_id, compiled, correctness, metadata, runtime, runtime_stats}]}`, with times in ms and -1 for a missing time.
The format has two truth values only, so the metadata contain Warpgrade's verdict.

The analysis divides by reference times from KernelBench's own files (results/timing/*/*.json: `{"level1":
{"19_ReLU.py": {mean, std, …}}}`), measured on another GPU at full size. The export therefore includes the run's own
reference times. A problem of the run without a reference time has -1: the analysis drops problems that the file lacks
from fast_p, denominator included, and ignores the times of samples that are not correct.

A time without a quoted speedup is exported as -1 for both submission and reference. The analysis reads their ratio as a
speedup of 1: neither slower nor faster.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from evaluator.errors import UsageError
from evaluator.records import CallKind, Scorecard, Status
from evaluator.report.card.measurement import measurement

_PROBLEM = re.compile(r"level(?P<level>[0-9]{1,6})/(?P<number>[0-9]{1,9})_.*")
_SAMPLE = re.compile(r"(?:.*sample_)?([0-9]{1,9})")
_NO_TIME = -1.0
_UNTIMED = {"mean": _NO_TIME}
_WORD = 300


Document = dict[str, Any]


class GradedSample(NamedTuple):
    """One submission of a run; `card` is None without a card."""

    problem: str
    name: str
    card: Scorecard | None


class Documents(NamedTuple):
    """Exported documents: `results` by level, and `baseline` with the reference's times, None without any time.

    `left_out` counts submissions to problems that are not KernelBench's, `unquoted` the timed correct ones without a
    speedup.
    """

    results: dict[int, dict[str, list[Document]]]
    baseline: dict[str, dict[str, Document]] | None
    left_out: int
    unquoted: int


class _SampleEntry(NamedTuple):
    """Part of a submission's card kept in memory: a hundred thousand whole cards would not fit."""

    entry: Document
    reference: Document
    correct: bool


def documents(submissions: Iterable[GradedSample]) -> Documents:
    """Return the documents of all levels and of the reference times.

    Raises:
        UsageError: no problem is one of KernelBench's.
    """
    levels: dict[int, dict[int, dict[str, _SampleEntry]]] = defaultdict(lambda: defaultdict(dict))
    files: dict[tuple[int, int], str] = {}
    left_out: dict[str, int] = {}
    unquoted = 0
    for graded in submissions:
        match = _PROBLEM.fullmatch(graded.problem)
        if match is None:
            left_out[graded.problem] = left_out.get(graded.problem, 0) + 1
            continue
        level, number = int(match["level"]), int(match["number"])
        sample = levels[level][number][graded.name] = _SampleEntry(
            _entry(graded.card), _reference(graded.card), _is_correct(graded.card)
        )
        files[level, number] = f"{graded.problem.partition('/')[2]}.py"
        unquoted += (
            sample.correct and graded.card is not None and graded.card.timing is not None and not sample.reference
        )
    if left_out and not levels:
        hint = "grade with --problems pointing to KernelBench's files"
        raise UsageError(f"{next(iter(left_out))} is not a KernelBench problem (level1/19_ReLU)", hint=hint)
    results: dict[int, dict[str, list[Document]]] = {}
    baseline: dict[str, dict[str, Document]] = {}
    for level, problems in sorted(levels.items()):
        results[level], times = {}, baseline.setdefault(f"level{level}", {})
        for number, by_name in sorted(problems.items()):
            samples = [(sample_id, by_name[name]) for name, sample_id in _numbered(by_name)]
            results[level][str(number)] = [{"sample_id": sample_id, **sample.entry} for sample_id, sample in samples]
            times[files[level, number]] = _reference_times([sample for _, sample in samples])
    timed = any(entry is not _UNTIMED for times in baseline.values() for entry in times.values())
    return Documents(results, baseline if timed else None, sum(left_out.values()), unquoted)


def _reference_times(samples: list[_SampleEntry]) -> Document:
    """Return the reference's times of a problem. The analysis uses the first sample, so its reference times come first.

    If the first sample is not correct, the analysis never divides by the times, and any sample's reference will do.
    """
    if samples[0].correct:
        return samples[0].reference or _UNTIMED
    return next((sample.reference for sample in samples if sample.reference), _UNTIMED)


def _numbered(names: Iterable[str]) -> list[tuple[str, int]]:
    """Assign a unique number to each sample: the number in its name if unique, otherwise the next free one."""
    names_by_number: dict[int, str] = {}
    for name in sorted(names):
        match = _SAMPLE.fullmatch(name)
        if match is not None:
            names_by_number.setdefault(int(match[1]), name)
    free = (number for number in range(10**9) if number not in names_by_number)
    numbers = {name: number for number, name in names_by_number.items()}
    numbers |= {name: next(free) for name in sorted(names) if name not in numbers}
    return sorted(numbers.items(), key=lambda item: item[1])


def _entry(card: Scorecard | None) -> Document:
    correct = _is_correct(card)
    stats: Document = {}
    if card is not None and correct and card.timing is not None and card.timing.speedup is not None:
        side = card.timing.submission
        # KernelBench has no intervals, so unwatched time of single calls counts as the submission's.
        unwatched_ms = side.unwatched_ms if side.kind is CallKind.SINGLE else 0.0
        stats = _stats(card, [sample_ms + unwatched_ms for sample_ms in side.samples_ms])
    return {
        "compiled": correct or (card is not None and card.build is not None and card.build.ok),
        "correctness": correct,
        "metadata": {} if card is None else _metadata(card),
        "runtime": stats.get("mean", _NO_TIME),
        "runtime_stats": stats,
    }


def _is_correct(card: Scorecard | None) -> bool:
    return card is not None and card.status is Status.CORRECT


def _reference(card: Scorecard | None) -> Document:
    """Return the statistics of the reference's calls, before and after; empty without a quoted speedup."""
    if card is None or card.timing is None or card.timing.speedup is None:
        return {}
    return _stats(card, [*card.timing.reference_before.samples_ms, *card.timing.reference_after.samples_ms])


def _stats(card: Scorecard, times_ms: list[float]) -> Document:
    return {
        "mean": statistics.fmean(times_ms),
        "std": statistics.pstdev(times_ms),
        # A call below the clock's resolution has no minimum.
        **({"min": min(times_ms)} if min(times_ms) > 0 else {}),
        "max": max(times_ms),
        "num_trials": len(times_ms),
        "hardware": card.device.name,
        "device": card.device.kind.value,
    }


_WHY = {
    Status.WRONG_RESULT: "correctness_issue",
    Status.RUNTIME_ERROR: "runtime_error",
    Status.BUILD_ERROR: "compilation_error",
}


def _metadata(card: Scorecard) -> Document:
    passed = sum(check.ok for check in card.checks)
    metadata: Document = {
        "hardware": card.device.name,
        "device": card.device.kind.value,
        "correctness_trials": f"({passed} / {len(card.checks)})",
        "warpgrade_status": card.status.value,
    }
    if card.reason is not None:
        key = _WHY.get(card.status, "other_error")
        metadata |= {key: card.reason.message[:_WORD], f"{key}_name": card.reason.code}
    if card.timing is not None and card.timing.speedup is not None:
        metadata["warpgrade_speedup"] = card.timing.speedup
        metadata["warpgrade_measured"] = measurement(card)
    return metadata
