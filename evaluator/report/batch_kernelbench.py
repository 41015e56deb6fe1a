"""Write a run as KernelBench's own analysis reads it: a file of results for each level, and one of reference times.

The form of `eval_results.json` (scripts/eval_from_generations.py of that benchmark): `{"<problem number>": [{sample_id,
compiled, correctness, metadata, runtime, runtime_stats}]}`; times are in ms, and -1 where there is none. It knows two
truth values, so what Warpgrade says stands in the metadata.

Its analysis divides by reference times from a file of their own (results/timing/*/*.json there: `{"level1":
{"19_ReLU.py": {mean, std, …}}}`), which are of somebody else's GPU at full size. So those of the run are written too.
A problem that is in the run and lacks one has -1 there: the analysis leaves out of its fast_p, the denominator as well,
what is not in that file, and never looks at the time of what is not correct.

A time that Warpgrade does not quote a speedup of is no time here either. The submission and its reference both have -1
then, whose ratio the analysis takes for a speedup of one: neither slower nor faster.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from evaluator.errors import UsageError
from evaluator.records import Scorecard, Status

_PROBLEM = re.compile(r"level(?P<level>[0-9]{1,6})/(?P<number>[0-9]{1,9})_.*")
_SAMPLE = re.compile(r"(?:.*sample_)?([0-9]{1,9})")
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
    """`results` has the `eval_results.json` of each level, `baseline` the reference's times, None where nothing is.

    `left_out` counts the submissions to problems that are none of that benchmark's, `unquoted` the correct ones that
    were timed and have no speedup.
    """

    results: dict[int, dict[str, list[Document]]]
    baseline: dict[str, dict[str, Document]] | None
    left_out: int
    unquoted: int


class _Kept(NamedTuple):
    """What is kept of a submission's card: a hundred thousand cards have no room at once."""

    entry: Document
    reference: Document
    correct: bool


def documents(submissions: Iterable[Graded]) -> Documents:
    """Make the document of each level, and that of the reference's times.

    Raises:
        UsageError: no problem is one of KernelBench's.
    """
    levels: dict[int, dict[int, dict[str, _Kept]]] = defaultdict(lambda: defaultdict(dict))
    files: dict[tuple[int, int], str] = {}
    left_out: dict[str, int] = {}
    unquoted = 0
    for each in submissions:
        found = _PROBLEM.fullmatch(each.problem)
        if found is None:
            left_out[each.problem] = left_out.get(each.problem, 0) + 1
            continue
        level, number = int(found["level"]), int(found["number"])
        kept = levels[level][number][each.name] = _Kept(
            _entry(each.card), _reference(each.card), _is_correct(each.card)
        )
        files[level, number] = f"{each.problem.partition('/')[2]}.py"
        unquoted += kept.correct and each.card is not None and each.card.timing is not None and not kept.reference
    if left_out and not levels:
        hint = "grade with --problems pointing to KernelBench's files"
        raise UsageError(f"{next(iter(left_out))} is not a KernelBench problem (level1/19_ReLU)", hint=hint)
    results: dict[int, dict[str, list[Document]]] = {}
    baseline: dict[str, dict[str, Document]] = {}
    for level, problems in sorted(levels.items()):
        results[level], times = {}, baseline.setdefault(f"level{level}", {})
        for number, named in sorted(problems.items()):
            samples = [(sample, named[name]) for name, sample in _numbered(named)]
            results[level][str(number)] = [{"sample_id": sample, **kept.entry} for sample, kept in samples]
            times[files[level, number]] = _beside([kept for _, kept in samples])
    timed = any(each is not _UNTIMED for times in baseline.values() for each in times.values())
    return Documents(results, baseline if timed else None, sum(left_out.values()), unquoted)


def _beside(samples: list[_Kept]) -> Document:
    """Give the reference's times of a problem. Of several samples the analysis takes the first, so its own stand there.

    Where the first is not correct they are never divided by, and another's will do.
    """
    if samples[0].correct:
        return samples[0].reference or _UNTIMED
    return next((kept.reference for kept in samples if kept.reference), _UNTIMED)


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
    correct = _is_correct(card)
    stats: Document = {}
    if card is not None and correct and card.timing is not None and card.timing.speedup is not None:
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


def _is_correct(card: Scorecard | None) -> bool:
    return card is not None and card.status is Status.CORRECT


def _reference(card: Scorecard | None) -> Document:
    """Reduce the reference's calls, before and after, to what that benchmark keeps of them; empty where unquoted."""
    if card is None or card.timing is None or card.timing.speedup is None:
        return {}
    return _stats(card, [*card.timing.reference_before.samples_ms, *card.timing.reference_after.samples_ms])


def _stats(card: Scorecard, times_ms: list[float]) -> Document:
    return {
        "mean": statistics.fmean(times_ms),
        "std": statistics.pstdev(times_ms),
        # A call that took no time which the clock could tell has none to be the least.
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
