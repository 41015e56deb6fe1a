"""Differences between processes of one program, beyond the scatter within each. Their cause is not known."""

import math

from evaluator.records import ClockKind

_SPREAD_MS = 0.00007
_SPREAD = 0.0015
"""Standard deviation of a median time from one process to another: a constant part, and a part of the time.

Measured on an H200: in 196 grades of 40 references against themselves, from 2.2 us to 2.7 ms, 95 % of the intervals
hold the ratio 1 with the spread, and 79 % without (docs/evidence/windows.md, A program against itself). A grade cannot
measure the spread: the reference has two processes, and the submission one."""


def process_spread_ms(clock: ClockKind, time_ms: float) -> float:
    """Return the standard deviation of a median of `time_ms` between processes, in ms. None is known for the host."""
    match clock:
        case ClockKind.SEALED:
            return math.hypot(_SPREAD_MS, _SPREAD * time_ms)
        case ClockKind.HOST:
            return 0.0
