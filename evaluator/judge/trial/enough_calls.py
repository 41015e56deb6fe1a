"""Number of single calls of a side: enough for a precise median, and no more than the time is worth."""

import math
from collections.abc import Sequence

from evaluator.records import ClockKind
from evaluator.timing.stats import CLOCK_ERROR_MS, median_interval

MIN_CALLS, MAX_CALLS = 20, 100
FEW_CALLS = 8
"""Single calls before windows, which are quoted: the single calls only have to agree with the windows, to 30 us."""
SEALED_CALLS = 10
"""Least number on a GPU, where further calls add less than the checked calls before: one kernel in ten calls that is
wrong at random is found with 93 % in 15 checked and 10 timed calls, with 97.5 % in 15 and 20."""
REFERENCE_CALLS = 6
"""Least number for a half of the reference, before or after a submission: both are quoted as one side. The range of six
calls holds the median with 97 %."""
NARROW_WINDOWS = 0.01
"""Error of the median time of a call in windows, relative to it, above which a side makes more windows, at most twice
as many; or the spread between processes, if larger."""
_ENOUGH_S = 2.0
_ENOUGH_FOR_PRECISION_S = 8.0
"""Calls continue so long for the precision check of small outputs: on busy cores, 2 s are fewer than its 32 calls."""
_NARROW = 0.002
"""Relative width of the median's interval below which more calls add no information."""
_NARROW_AT_LAST = 2 * NARROW_WINDOWS
"""Relative width that is enough after `_ENOUGH_S`: an error as large, on either side, as that of enough windows.

Before, a width in proportion to the elapsed time is enough. The width falls as one over the root of the number of
calls, so a side that took t seconds and has the width w loses w / 2t in the next second, with long calls and with short
ones. Calls end where that is less than half of `_NARROW_AT_LAST` in `_ENOUGH_S`, 0.5 % in a second.
"""
_NARROW_TO_THE_CLOCK = 0.5
"""The narrow width as a part of the clock error, which adds at least twice as much on either side."""


def enough(
    times_ms: Sequence[float],
    at_least: int,
    elapsed_s: float,
    *,
    clock: ClockKind,
    spread_ms: float,
    lacking: bool,
) -> bool:
    """Return whether single calls of `times_ms`, made within `elapsed_s`, are enough for a side or half a side.

    `spread_ms` is the spread of empty calls. With `lacking`, the precision check needs more calls.
    """
    if len(times_ms) < at_least:
        return False
    if len(times_ms) >= MAX_CALLS or elapsed_s >= (_ENOUGH_FOR_PRECISION_S if lacking else _ENOUGH_S):
        return True
    if lacking:
        return False
    low, high = median_interval(times_ms)
    narrow = max(_NARROW, _NARROW_AT_LAST * elapsed_s / _ENOUGH_S)
    narrow_ms = max(narrow * low, _NARROW_TO_THE_CLOCK * (spread_ms + CLOCK_ERROR_MS[clock]))
    # A half is quoted with the other half; an interval narrows with the square root of the number of calls.
    return high - low <= narrow_ms * math.sqrt(MIN_CALLS / at_least)
