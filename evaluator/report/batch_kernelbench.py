"""Write a run as KernelBench's own analysis reads it: a file of results for each level, and one of reference times.

The form of `eval_results.json` (scripts/eval_from_generations.py of that benchmark): `{"<problem number>": [{sample_id,
compiled, correctness, metadata, runtime, runtime_stats}]}`; times are in ms, and -1 where there is none. It knows two
truth values, so what Warpgrade says stands in the metadata.

Its analysis divides by reference times from a file of their own (results/timing/*/*.json there: `{"level1":
{"19_ReLU.py": {mean, std, …}}}`), which are of somebody else's GPU at full size. So those of the run are written too.
A problem that is in the run and lacks one has -1 there: the analysis leaves out of its fast_p, the denominator as well,
what is not in that file, and never looks at the time of what is not correct.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from evaluator.errors import UsageError
from evaluator.records import Scorecard, Status

_PROBLEM = re.compile(r"level(?P<level>\d+)/(?P<number>\d+)_.*")
_SAMPLE = re.compile(r"(?:.*sample_)?(\d+)")
_NO_TIME = -1.0
_UNTIMED = {"mean": _NO_TIME}
_WORD = 300


Document = dict[str, Any]


class Graded(NamedTuple):
    """One submission of a run; `card` is None where it has none."""

    problem: str
    name: str
    card: Scorecard | None


class Documents(NamedTuple):
    """`results` has the `eval_results.json` of each level, `baseline` the reference's times, None where nothing is."""

    results: dict[int, dict[str, list[Document]]]
    baseline: dict[str, dict[str, Document]] | None


class _Kept(NamedTuple):
    """What is kept of a submission's card: a hundred thousand cards have no room at once."""

    entry: Document
    reference: Document


def documents(submissions: Iterable[Graded]) -> Documents:
    """Make the document of each level, and that of the reference's times.

    Raises:
        UsageError: a problem is none of KernelBench's.
    """
    levels: dict[int, dict[int, dict[str, _Kept]]] = defaultdict(lambda: defaultdict(dict))
    files: dict[tuple[int, int], str] = {}
    for each in submissions:
        found = _PROBLEM.fullmatch(each.problem)
        if found is None:
            hint = "grade with --problems at that benchmark's files"
            raise UsageError(f"{each.problem} is no problem of KernelBench's (level1/19_ReLU)", hint=hint)
        level, number = int(found["level"]), int(found["number"])
        levels[level][number][each.name] = _Kept(_entry(each.card), _reference(each.card))
        files[level, number] = f"{each.problem.partition('/')[2]}.py"
    results: dict[int, dict[str, list[Document]]] = {}
    baseline: dict[str, dict[str, Document]] = {}
    for level, problems in sorted(levels.items()):
        results[level], times = {}, baseline.setdefault(f"level{level}", {})
        for number, named in sorted(problems.items()):
            samples = [(sample, named[name]) for name, sample in _numbered(named)]
            results[level][str(number)] = [{"sample_id": sample, **kept.entry} for sample, kept in samples]
            # Of several samples their analysis takes the first, so its own reference stands with it where it has one.
            times[files[level, number]] = next((kept.reference for _, kept in samples if kept.reference), _UNTIMED)
    timed = any(each is not _UNTIMED for times in baseline.values() for each in times.values())
    return Documents(results, baseline if timed else None)


def _numbered(names: Iterable[str]) -> list[tuple[str, int]]:
    """Give each sample a number of its own: the one in its name, where no other has it, else the next that is free."""
    taken: dict[int, str] = {}
    for name in sorted(names):
        found = _SAMPLE.fullmatch(name)
        if found is not None:
            taken.setdefault(int(found[1]), name)
    free = (number for number in range(10**9) if number not in taken)
    numbers = {name: number for number, name in taken.items()}
    numbers |= {name: next(free) for name in sorted(names) if name not in numbers}
    return sorted(numbers.items(), key=lambda item: item[1])


def _entry(card: Scorecard | None) -> Document:
    correct = card is not None and card.status is Status.CORRECT
    stats: Document = {}
    if card is not None and correct and card.timing is not None:
        side = card.timing.submission
        # That benchmark knows no interval, so what nobody watched counts as the submission's own time.
        stats = _stats(card, [each + side.unwatched_ms for each in side.samples_ms])
    return {
        "compiled": correct or (card is not None and card.build is not None and card.build.ok),
        "correctness": correct,
        "metadata": {} if card is None else _metadata(card),
        "runtime": stats.get("mean", _NO_TIME),
        "runtime_stats": stats,
    }


def _reference(card: Scorecard | None) -> Document:
    """Reduce the reference's calls, before and after, to what that benchmark keeps of them; empty without any."""
    if card is None or card.timing is None:
        return {}
    return _stats(card, [*card.timing.reference_before.samples_ms, *card.timing.reference_after.samples_ms])


def _stats(card: Scorecard, times_ms: list[float]) -> Document:
    return {
        "mean": statistics.fmean(times_ms),
        "std": statistics.pstdev(times_ms),
        "min": min(times_ms),
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
    found: Document = {
        "hardware": card.device.name,
        "device": card.device.kind.value,
        "correctness_trials": f"({passed} / {len(card.checks)})",
        "warpgrade_status": card.status.value,
    }
    if card.reason is not None:
        key = _WHY.get(card.status, "other_error")
        found |= {key: card.reason.message[:_WORD], f"{key}_name": card.reason.code}
    if card.timing is not None and card.timing.speedup is not None:
        found["warpgrade_speedup"] = card.timing.speedup
    return found
