"""Error of single calls, beyond the scatter of their times."""

from evaluator.records import ClockKind

CLOCK_ERROR_MS = {ClockKind.HOST: 0.0, ClockKind.SEALED: 0.015}
"""Error of a clock beyond the spread of its empty calls.

A context switch empties the GPU's address translation and instruction caches, and adds up to 15 us to a kernel's time,
more to some kernels than to others (docs/measured.md). The host's clock has no comparable known error.
"""


def clock_error_ms(clock: ClockKind, *, overhead_ms: float, spread_ms: float) -> float:
    """Return the largest error of a time, for a clock whose empty calls take `overhead_ms`.

    The host clock subtracts the overhead from each call, but the runner can use this time as well. A submission that
    answers by its own code, or overlaps its work with the judge's, is quoted too low, by at most the overhead. Errors
    in the other direction are at most the spread of empty calls. The two errors exclude each other, so the larger one
    counts.
    """
    return max(overhead_ms, spread_ms) if clock is ClockKind.HOST else spread_ms + CLOCK_ERROR_MS[clock]
