"""Overhead of a call: the duration of calls without the model's own work, in a runner that never loaded a submission.

Subtracted from each call of both sides alike. The same runner provides the GPU's usual time to write the inputs: a call
with a longer write is void, because other work was running.
"""

import itertools
import time
from collections.abc import Iterable
from typing import NamedTuple

from evaluator.judge.clock.clock import ClockedCall
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.judge.trial.windows import SPOT_CALLS, SPOT_CHECKS, SpotRule, WindowHost, WindowRunner
from evaluator.records import Fault
from evaluator.timing.stats import interquartile_range, lower_quartile, median

_EMPTY_CALLS, _FEW_EMPTY_CALLS = 30, 15
_FEWEST_CALLS, _EMPTY_WINDOWS = 2, 2
_EMPTY_S = 0.05
"""Time limit of the empty calls. Beyond it, inputs are large, calls are long, and the overhead matters little."""
LAG_MS = 0.030
"""Additional time, over a runner without a submission, for a GPU to become idle.

Measured on an H200: at most 7 us if the work is over, at least 140 us otherwise, due to a context switch."""
_SLICE_MS = 1.0
"""Time slice of a context: on an H200, work of 1 ms is not interrupted, work of 3 ms is."""
_FORKED_CALLS = 5
_QUIET_PART = 0.10
_QUIET_MS = 0.020
"""Additional time for a quiet GPU to write the inputs: a tenth of the usual time, and the variation of event times."""


class Overhead(NamedTuple):
    """Duration of a call without the model's own work: subtracted from each call, with its spread.

    On a GPU also the usual time to write the inputs (`prepared_ms`), with limits for work waiting on one stream
    (`quiet_ms`) and on several (`forked_ms`); the limit on the time until the GPU is idle (`lag_ms`), and the host's
    time to queue the work.
    """

    taken_off_ms: float
    spread_ms: float
    prepared_ms: float | None
    quiet_ms: float | None
    forked_ms: float | None
    lag_ms: float | None
    host_ms: float | None
    spot: SpotRule | None = None
    """Time of a spot check's calls beyond calls in windows; None without windows."""
    window_host: WindowHost | None = None
    """Host time of windows without a forward; None without windows."""


def measured(trial_runner: TrialRunner, timeout_s: float) -> Overhead | Fault:
    """Measure calls without the model's own work, in a runner of the reference after one normal call."""
    first = trial_runner.run(0, fresh_seed(), timeout_s=timeout_s, quick=True)
    if first.fault is not None:
        return first.fault
    answers = _empty_calls(trial_runner, timeout_s)
    if isinstance(answers, Fault):
        return answers
    times_ms = [answer.elapsed_ms for answer in answers]
    prepared = [answer.prepared_ms for answer in answers if answer.prepared_ms is not None]
    if not prepared:
        return _host_overhead(times_ms)
    prepared_ms = median(prepared)
    quiet_ms = forked_ms = _quiet_limit_ms(prepared_ms)
    if prepared_ms > _SLICE_MS:
        forked = _empty_calls(trial_runner, timeout_s, forked=True)
        if isinstance(forked, Fault):
            return forked
        # The first call finds a stream without earlier waits.
        longer_ms = _median_of(answer.prepared_ms for answer in forked[1:])
        forked_ms = quiet_ms if longer_ms is None else _quiet_limit_ms(max(longer_ms, prepared_ms))
    lag_ms = _median_of(answer.lag_ms for answer in answers)
    spot_ms = _empty_spot_checks(trial_runner, timeout_s)
    if isinstance(spot_ms, Fault):
        return spot_ms
    window_host = _empty_windows(trial_runner, timeout_s)
    if isinstance(window_host, Fault):
        return window_host
    return Overhead(
        taken_off_ms=median(times_ms) - trial_runner.empty_ms,
        spread_ms=interquartile_range(times_ms),
        prepared_ms=prepared_ms,
        quiet_ms=quiet_ms,
        forked_ms=forked_ms,
        lag_ms=None if lag_ms is None else lag_ms + LAG_MS,
        host_ms=_median_of(answer.host_ms for answer in answers),
        spot=None if spot_ms is None else SpotRule(spot_ms),
        window_host=window_host,
    )


def _empty_spot_checks(trial_runner: TrialRunner, timeout_s: float) -> float | Fault | None:
    """Return the time of a spot check's call without a forward, a lower quartile; None without windows."""
    if trial_runner.window_calls == 1:
        return None
    window_runner, calls = WindowRunner(trial_runner), min(SPOT_CALLS, trial_runner.window_calls)
    times_ms: list[float] = []
    for spot_check in window_runner.time_empty_spot_checks(calls, SPOT_CHECKS, timeout_s=timeout_s):
        if isinstance(spot_check, Fault):
            return spot_check
        times_ms += spot_check[1:]
    return lower_quartile(times_ms)


def _empty_windows(trial_runner: TrialRunner, timeout_s: float) -> WindowHost | Fault | None:
    """Return the host time of windows without a forward, from the shortest and the longest; None without windows."""
    most = trial_runner.window_calls
    if most == 1:
        return None
    window_runner, least_ms = WindowRunner(trial_runner), dict[int, float]()
    for calls in (_FEWEST_CALLS, most):
        for host_ms in window_runner.time_empty_windows(calls, _EMPTY_WINDOWS, timeout_s=timeout_s):
            if isinstance(host_ms, Fault):
                return host_ms
            least_ms[calls] = min(host_ms, least_ms.get(calls, host_ms))
    call_ms = max(least_ms[most] - least_ms[_FEWEST_CALLS], 0.0) / max(most - _FEWEST_CALLS, 1)
    return WindowHost(fixed_ms=max(least_ms[_FEWEST_CALLS] - _FEWEST_CALLS * call_ms, 0.0), call_ms=call_ms)


def _host_overhead(times_ms: list[float]) -> Overhead:
    """Return the least duration as overhead: on busy cores, the median depends on the load.

    A larger overhead would be wrong for a call on idle cores. A submission that avoids part of the overhead, or works
    during the overhead, is quoted too fast by the whole overhead at most: see `clock_error_ms`.
    """
    least_ms = min(times_ms)
    spread_ms = max(interquartile_range(times_ms), median(times_ms) - least_ms)
    return Overhead(least_ms, spread_ms, None, None, None, None, None)


def _empty_calls(trial_runner: TrialRunner, timeout_s: float, *, forked: bool = False) -> list[ClockedCall] | Fault:
    answers: list[ClockedCall] = []
    started = time.monotonic()
    calls = trial_runner.run_empty(timeout_s=timeout_s, forked=forked)
    for answer in itertools.islice(calls, _FORKED_CALLS if forked else _EMPTY_CALLS):
        if isinstance(answer, Fault):
            return answer
        answers.append(answer)
        if len(answers) >= _FEW_EMPTY_CALLS and time.monotonic() - started > _EMPTY_S:
            break
    return answers


def _median_of(values_ms: Iterable[float | None]) -> float | None:
    """Return the median of the observed values; None without any."""
    observed_ms = [value_ms for value_ms in values_ms if value_ms is not None]
    return median(observed_ms) if observed_ms else None


def _quiet_limit_ms(prepared_ms: float) -> float:
    return prepared_ms * (1 + _QUIET_PART) + _QUIET_MS
