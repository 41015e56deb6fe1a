"""Agreement of a submission's windows with its single calls and spot checks, beside the reference's. Pure.

Windows are the closest measurement of a short call. But calls of a window can share work, and the inputs of later calls
can be read early. Neither is possible in single calls and spot checks. A submission's code runs in the runner's
process: it can lengthen single calls, and leave out a part of a spot check's constant. So no rule shortens a quoted
time.
"""

from collections.abc import Sequence
from typing import NamedTuple

from evaluator.records import Windows
from evaluator.timing.stats import lower_quartile, median, median_error

SPOT_MARGIN_MS = 0.0005
SPOT_MARGIN = 0.03
"""Difference of honest calls beyond the reference's own (`usual_ms`)."""
_MOST_EXCESS_MS, _LEAST_EXCESS_MS = 0.001, -0.001
_MOST_EXCESS = 0.05
"""Limits of the reference's own difference: a reference of many kernels must not cover a submission of one, and gains
more from warm inputs. On an H200, the references of 57 published kernels below 12 us differ by -1.3 to 1.5 us, and one
of several kernels by -4.4 us (docs/measured.md)."""
_FASTEST_SPOT, _FASTEST_SPOT_MS = 0.75, -0.002
"""Least time of an honest call in a spot check, as a part of its time in windows, and a constant. Warm inputs save up
to a fifth of 44 us (cumsum on an H200), 4.4 us of a call below 12 us, and a third of 2.3 us."""
_COLD_MS, _COLD = 0.030, 0.25
"""Time of a single call beyond a call of a window, and beyond the reference's own. Cold instructions cost up to 15 us
for one kernel. A program of more kernels than the reference takes longer in windows too."""
_WARM, _WARM_MS = 0.10, 0.001
"""Least part of a call, and least time, by which spot checks show a smaller speedup than windows."""
_SPOT_ERROR_MS = 0.0006
"""Two standard deviations of the lower quartile of four spot checks, from one process to the next."""


class Raise(NamedTuple):
    """Time to add to each call of a submission's windows, and the largest error of the sum by spot checks."""

    added_ms: float
    error_ms: float


def disagreement(windows: Windows, reference: Windows | None) -> str | None:
    """Return the other measurement, in words, if the windows of a submission disagree with it; None if all agree.

    Three rules apply, each beside the `reference`, which has other kernels: a call of a window takes no less than a
    spot check allows; a spot check is not much faster than the windows, because its constant was then not spent; and a
    single call takes no longer than cold instructions explain.
    """
    if not windows.spot_ms:
        return None
    call_ms, alone_ms = median(windows.measured_ms), lower_quartile(windows.spot_ms)
    warm = min(_ratio(reference), 1.0)
    if shares_work(windows.measured_ms, windows.spot_ms, excess_ms(reference)):
        return beside_spot_checks(windows, reference)
    if alone_ms < _FASTEST_SPOT * warm * call_ms + _FASTEST_SPOT_MS:
        return f"an implausible {beside_spot_checks(windows, reference)}"
    cold_ms = 0.0 if reference is None else median(reference.single_ms) - median(reference.measured_ms)
    if median(windows.single_ms) - call_ms > max(cold_ms, 0.0) + _COLD_MS + _COLD * call_ms:
        return beside_single_calls(windows, reference)
    return None


def beside_spot_checks(windows: Windows, reference: Windows | None) -> str:
    """Return the time in spot checks in words, with both times of the reference."""
    text = f"{_microseconds(lower_quartile(windows.spot_ms))} when each call is released after the one before"
    if reference is None or not reference.spot_ms:
        return text
    return f"{text} ({_both(reference, lower_quartile(reference.spot_ms))})"


def beside_single_calls(windows: Windows, reference: Windows | None) -> str:
    """Return the time of a single call in words, with both times of the reference."""
    text = f"{_microseconds(median(windows.single_ms))} as a single call"
    return text if reference is None else f"{text} ({_both(reference, median(reference.single_ms))})"


def _both(reference: Windows, other_ms: float) -> str:
    return f"the reference: {_microseconds(median(reference.measured_ms))} and {_microseconds(other_ms)}"


def _microseconds(value_ms: float) -> str:
    return f"{value_ms * 1e3:.3g} us"


def excess_ms(reference: Windows | None) -> float:
    """Return the time of the reference in spot checks beyond its windows; 0 without.

    Kernels of masks and digests run between the calls, and inputs are warm, so the excess of a call of microseconds is
    often negative.
    """
    if reference is None or not reference.spot_ms:
        return 0.0
    return lower_quartile(reference.spot_ms) - median(reference.measured_ms)


def shares_work(call_ms: Sequence[float], spot_ms: Sequence[float], excess_ms: float = 0.0) -> bool:
    """Return whether calls of windows are faster than calls that cannot share work.

    At most a part of the reference's `excess_ms` counts.

    >>> shares_work([0.0037], [0.0050]), shares_work([0.0037], [0.0050], 0.0009)
    (True, False)
    >>> shares_work([0.0037], [0.0037], -0.0009)
    True
    """
    if not spot_ms:
        return False
    alone_ms = lower_quartile(spot_ms)
    return median(call_ms) < usual_ms(alone_ms, excess_ms) - SPOT_MARGIN * alone_ms - SPOT_MARGIN_MS


def usual_ms(alone_ms: float, excess_ms: float) -> float:
    """Return the time in windows of an honest call that takes `alone_ms` in spot checks."""
    most_ms = _MOST_EXCESS * alone_ms + _MOST_EXCESS_MS
    return alone_ms - min(max(excess_ms, _LEAST_EXCESS_MS), most_ms)


def raised(windows: Windows, reference: Windows | None) -> Raise:
    """Return what makes the speedup by windows that by spot checks, if the latter is clearly smaller.

    All inputs of a spot check are warm in L2, on both sides. In windows, a submission can warm the inputs of later
    calls, and the reference's are cold.
    """
    nothing = Raise(0.0, 0.0)
    if reference is None or not reference.spot_ms or not windows.spot_ms:
        return nothing
    alone_ms, usual_alone_ms = lower_quartile(windows.spot_ms), lower_quartile(reference.spot_ms)
    if min(alone_ms, usual_alone_ms) <= 0:
        return nothing
    call_ms, warm_ms = median(windows.measured_ms), alone_ms * median(reference.measured_ms) / usual_alone_ms
    if warm_ms - call_ms <= max(_WARM * warm_ms, _WARM_MS):
        return nothing
    of_spots = (median_error(side.spot_ms) + _SPOT_ERROR_MS for side in (windows, reference))
    error = sum(error_ms / time_ms for error_ms, time_ms in zip(of_spots, (alone_ms, usual_alone_ms), strict=True))
    return Raise(warm_ms - call_ms, error * warm_ms)


def _ratio(reference: Windows | None) -> float:
    """Return the reference's time in spot checks as a part of that in windows; 1 without."""
    if reference is None or not reference.spot_ms or median(reference.measured_ms) <= 0:
        return 1.0
    return lower_quartile(reference.spot_ms) / median(reference.measured_ms)
