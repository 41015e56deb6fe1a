"""Errors of a time beyond the scatter of the samples: of the clock, and from one process to another."""

import math

from evaluator.records import ClockKind

CLOCK_ERROR_MS = {ClockKind.HOST: 0.0, ClockKind.SEALED: 0.015}
"""Error of a clock beyond the spread of its empty calls.

A context switch empties the GPU's address translation and instruction caches, and adds up to 15 us to a kernel's time,
more to some kernels than to others (docs/measured.md). The host's clock has no comparable known error.
"""
_SPREAD_MS = 0.0001
_SPREAD = 0.0003
"""Standard deviation of a median time from one process to another: a constant part, and a part of the time.

Estimated from 195 processes of 39 references, 2.6 to 390 us, on an H100: `python -m benchmarks.timing.process_spread`,
by maximum likelihood, says 0.105 us (0.085 to 0.125) and 0.03 % (0 to 0.14 %). The cause must be in the process: the
same process repeats its median to 0.03 us below 20 us when it is timed again, between sides of other processes. No call
above 390 us is in the data; there the scatter of samples and the clock's error decide. A grade cannot measure the
spread: the reference has two processes, and the submission one. So the spread is a pooled estimate from earlier
measurements (JCGM 100:2008, 4.2.4), and enters the interval as a normal error of each process.

The reference's two processes may differ by more: a cluster bootstrap (`bootstrap.py`) adds their own difference. Part
of the spread is thus counted twice. Alone, the spread would miss disturbances between both halves; the difference of
two processes alone has a single degree of freedom, and is often small by chance."""


def clock_error_ms(clock: ClockKind, *, overhead_ms: float, spread_ms: float) -> float:
    """Return the largest error of a time, for a clock whose empty calls take `overhead_ms`.

    The host clock subtracts the overhead from each call, but the runner can use this time as well. A submission that
    answers by its own code, or overlaps its work with the judge's, is quoted too low, by at most the overhead. Errors
    in the other direction are at most the spread of empty calls. The two errors exclude each other, so the larger one
    counts.
    """
    return max(overhead_ms, spread_ms) if clock is ClockKind.HOST else spread_ms + CLOCK_ERROR_MS[clock]


def process_spread_ms(clock: ClockKind, time_ms: float) -> float:
    """Return the standard deviation of a median of `time_ms` between processes, in ms. None is known for the host."""
    match clock:
        case ClockKind.SEALED:
            return math.hypot(_SPREAD_MS, _SPREAD * time_ms)
        case ClockKind.HOST:
            return 0.0
