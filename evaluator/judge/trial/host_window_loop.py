"""Windows of one side on the host: calls that the judge releases one at a time, for functions below two milliseconds.

A single call on the host includes the thaw and the stop of the runner, some 0.5 ms that vary. A released call includes
a handshake of microseconds. The time of a call is the median of a window, less the median of the same handshakes
without a forward.
"""

import secrets
import time
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.judge.trial.window_loop import WindowSide, enough, failed_trial, own_values
from evaluator.judge.trial.window_runner import WindowRunner
from evaluator.records import Fault, Windows
from evaluator.timing.stats import interquartile_range, median

_LONGEST_CALL_MS = 2.0
"""Longer calls are known well enough as single calls; the judge's core spins for so long."""
_SPREAD = 4
"""Windows have between three quarters of the largest number of calls and all; of few calls, one may be missing."""
_FEWEST_CALLS = 3
_FEWEST_WINDOWS = 3
_LONGEST_S = 2.0
"""Limit on all windows of a side, and on the empty ones. On a busy machine most windows are disturbed, and waiting does
not help; the inputs of empty windows are written whether the reference is short or not."""
_MOST_DISTURBED = 2
"""Disturbed windows after which a side has none: the times of a disturbed window are lost, and a submission that sleeps
in calls with slow inputs could choose which ones."""
_COLD_WINDOWS = 1
"""First window of a runner, without a time: its calls touch new memory."""
_EMPTY_WINDOWS, _EMPTY_OF_BARE = 9, 3
"""Windows without a forward; every third is bare."""


class Handshake(NamedTuple):
    """Time of a released call without a forward, and the largest error of a time less this one.

    The time is the fastest window's: on busy cores the median depends on the load. A submission with the runner's code
    replaced can leave out Python, and the mapping of unread inputs. A bare call has neither, and the difference between
    an empty and a bare call limits the saved time. Errors in the other direction are within the spread of empty
    windows, and the larger error counts.
    """

    call_ms: float
    error_ms: float


def handshake(trial_runner: TrialRunner, timeout_s: float) -> Handshake | Fault | None:
    """Time released calls without a forward in a runner of the reference; None without, or if disturbed or slow."""
    if not trial_runner.releases_calls or (most := trial_runner.window_calls) < _FEWEST_CALLS:
        return None
    runner = WindowRunner(trial_runner)
    medians_ms: dict[bool, list[float]] = {False: [], True: []}
    disturbed = 0
    started = time.monotonic()
    for number in range(_COLD_WINDOWS + _EMPTY_WINDOWS):
        if time.monotonic() - started > _LONGEST_S:
            break
        bare = number % _EMPTY_OF_BARE == 0
        found = runner.time_empty_released(most, bare=bare, timeout_s=timeout_s)
        if isinstance(found, Fault):
            return found
        disturbed += not found
        if disturbed == _MOST_DISTURBED:
            return None
        medians_ms[bare] += [median(found)] if found and number >= _COLD_WINDOWS else []
    if not medians_ms[False] or not medians_ms[True]:
        return None
    call_ms = min(medians_ms[False])
    spread_ms = max(median(medians_ms[False]) - call_ms, interquartile_range(medians_ms[False]))
    return Handshake(call_ms, max(call_ms - min(medians_ms[True]), spread_ms))


def host_windows_of(
    trial_runner: TrialRunner,
    seeds: Iterator[int],
    index: int,
    single_ms: list[float],
    empty: Handshake,
    timeout_s: float,
    *,
    single_error_ms: float,
) -> WindowSide:
    """Time windows after the single calls, which took `single_ms`. Every output is compared, on both sides.

    The runner is stopped meanwhile, and its caches cool down: both sides must be stopped for as long.
    There are no windows if outputs are not watched, or if too many windows are disturbed. Windows that are faster than
    single calls by more than `single_error_ms` shared work, somehow.
    """
    runner, most = WindowRunner(trial_runner), trial_runner.window_calls
    used: list[int] = []
    calls: list[int] = []
    window_ms: list[float] = []
    cold = _COLD_WINDOWS
    started = time.monotonic()
    disturbed = 0
    while most >= _FEWEST_CALLS and min(single_ms) < _LONGEST_CALL_MS and not enough(calls, window_ms):
        if time.monotonic() - started > _LONGEST_S:
            break
        count = most - secrets.randbelow(max(most // _SPREAD, 2))
        given = own_values(trial_runner, seeds, count)
        window = runner.run_released(index + len(used), given, timeout_s=timeout_s)
        used += given
        if window.fault is not None:
            return WindowSide(None, failed_trial(window.trials, window.fault), used)
        if not window.was_watched:
            return WindowSide(None, None, used)
        disturbed += not window.times_ms
        if disturbed == _MOST_DISTURBED:
            return WindowSide(None, None, used)
        cold -= 1
        if window.times_ms and cold < 0:
            calls.append(count)
            window_ms.append((median(window.times_ms) - empty.call_ms) * (count - 1))
    if len(calls) < _FEWEST_WINDOWS:
        return WindowSide(None, None, used)
    windows = Windows(calls=calls, window_ms=window_ms, clock_error_ms=empty.error_ms, single_ms=single_ms)
    shared_work = median(windows.call_ms) < median(single_ms) - single_error_ms
    return WindowSide(replace(windows, shared_work=shared_work), None, used)
