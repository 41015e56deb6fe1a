"""Write a run as KernelBench's `eval_results.json`, which its own analysis reads: a file for each level.

Its form (scripts/eval_from_generations.py of that benchmark): `{"<problem number>": [{sample_id, compiled, correctness,
metadata, runtime, runtime_stats}]}`; times are in ms, and -1 where there is none. It knows two truth values, so what
Warpgrade says stands in the metadata.
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
_WORD = 300


class Graded(NamedTuple):
    """One submission of a run; `card` is None where it has none."""

    problem: str
    name: str
    card: Scorecard | None


def documents(submissions: Iterable[Graded]) -> dict[int, dict[str, list[dict[str, Any]]]]:
    """Make the document of each level.

    Raises:
        UsageError: a problem is none of KernelBench's.
    """
    levels: dict[int, dict[int, dict[str, Graded]]] = defaultdict(lambda: defaultdict(dict))
    for each in submissions:
        found = _PROBLEM.fullmatch(each.problem)
        if found is None:
            hint = "grade with --problems at that benchmark's files"
            raise UsageError(f"{each.problem} is no problem of KernelBench's (level1/19_ReLU)", hint=hint)
        levels[int(found["level"])][int(found["number"])][each.name] = each
    return {
        level: {
            str(number): [_entry(sample, named[name]) for name, sample in _numbered(named)]
            for number, named in sorted(problems.items())
        }
        for level, problems in sorted(levels.items())
    }


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


def _entry(sample: int, graded: Graded) -> dict[str, Any]:
    card = graded.card
    correct = card is not None and card.status is Status.CORRECT
    stats = _stats(card) if card is not None and correct else {}
    return {
        "sample_id": sample,
        "compiled": correct or (card is not None and card.build is not None and card.build.ok),
        "correctness": correct,
        "metadata": {} if card is None else _metadata(card),
        "runtime": stats.get("mean", _NO_TIME),
        "runtime_stats": stats,
    }


def _stats(card: Scorecard) -> dict[str, Any]:
    if card.timing is None:
        return {}
    times_ms = card.timing.submission.samples_ms
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


def _metadata(card: Scorecard) -> dict[str, Any]:
    passed = sum(check.ok for check in card.checks)
    found: dict[str, Any] = {
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
