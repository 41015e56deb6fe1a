"""Time one side: its first call apart, then verified calls on fresh inputs until there are enough.

The judge's clock runs from letting the runner go until it is stopped again. What a call takes without the model's own
work is measured in a runner that never loaded a submission, and taken off both sides alike.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

from evaluator.judge.session import Fault
from evaluator.judge.trial import Bench, Trial, fresh_seed
from evaluator.records import Samples, seed_text
from evaluator.timing.stats import interquartile_range, median

MIN_CALLS = 20
_MAX_CALLS = 100
_ENOUGH_S = 2.0
_EMPTY_CALLS = 50


class Overhead(NamedTuple):
    """What a call takes without the model's own work."""

    median_ms: float
    iqr_ms: float


class Side(NamedTuple):
    """A side's samples, and the trial that ended it if one was not a pass."""

    samples: Samples | None
    failed: Trial | None


def overhead(bench: Bench, timeout_s: float) -> Overhead | Fault:
    """Measure calls without the model's own work, in a runner of the reference that has answered once."""
    first = bench.run(0, fresh_seed(), timeout_s=timeout_s)
    if first.fault is not None:
        return first.fault
    times_ms = []
    for index in range(_EMPTY_CALLS):
        elapsed_ms = bench.run_empty(index, timeout_s=timeout_s)
        if isinstance(elapsed_ms, Fault):
            return elapsed_ms
        times_ms.append(elapsed_ms)
    return Overhead(median(times_ms), interquartile_range(times_ms))


def side(name: str, bench: Bench, seeds: Iterator[int], empty: Overhead, timeout_s: float) -> Side:
    """Time calls until there are `MIN_CALLS` and two seconds of them, or a hundred. Every output is verified."""
    used: list[int] = []
    times_ms: list[float] = []
    copied = False
    started = time.monotonic()
    while len(times_ms) <= MIN_CALLS or (len(times_ms) <= _MAX_CALLS and time.monotonic() - started < _ENOUGH_S):
        seed = next(seeds)
        trial = bench.run(len(times_ms), seed, timeout_s=timeout_s)
        if trial.fault is not None:
            return Side(None, trial)
        used.append(seed)
        copied |= trial.copied
        times_ms.append(max(trial.elapsed_ms - empty.median_ms, 0.0))
    first_ms, rest_ms = times_ms[0], times_ms[1:]
    samples = Samples(
        side=name,
        seeds=[seed_text(seed) for seed in used],
        samples_ms=rest_ms,
        overhead_ms=empty.median_ms,
        overhead_iqr_ms=empty.iqr_ms,
        median_ms=median(rest_ms),
        iqr_ms=interquartile_range(rest_ms),
        first_call_ms=first_ms,
        outputs_copied=copied,
    )
    return Side(samples, None)
