"""Windows and spot checks: several calls between a start and an end of the sealed clock, for calls of microseconds.

Every call has fresh inputs, and every output is compared. A single call is measured to about 15 us: two changes of
context, and the costs of cold instructions in a first call, differ from kernel to kernel. Both occur once in a window.
The time of a call is a window of n calls less an empty call in a runner of the reference, divided by n. A submission's
process cannot lengthen an empty call: all time of the submission counts.

The calls of a window are queued before the inputs exist, and all inputs are revealed together. A submission could share
work between calls. A submission therefore also makes a spot check (`clock/spot_check.py`): calls of a spot check cannot
share anything. Windows that disagree with single calls or spot checks are not quoted (`timing/agreement.py`).
"""

import math
import secrets
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from msgspec.structs import replace

from evaluator.devices.memory import MAX_SPOT_CALLS
from evaluator.findings import Code, finding
from evaluator.judge.clock.clock import ClockedCall
from evaluator.judge.clock.gpu_monitor import NO_WATCH, ClockWatch
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.tensors.pytree import LaidOut
from evaluator.judge.trial.enough_calls import NARROW_WINDOWS
from evaluator.judge.trial.trial import Trial
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.records import ClockKind, Fault, Status, Windows
from evaluator.timing.agreement import disagreement, excess_ms, raised, usual_ms
from evaluator.timing.stats import lower_quartile, median, median_interval, process_spread_ms


class WindowTrials(NamedTuple):
    """Trials of a window's calls up to the first failure, and the times of the whole window."""

    trials: list[Trial]
    fault: Fault | None
    elapsed_ms: float
    was_queued: bool
    host_ms: float = 0.0


class SpotTrials(NamedTuple):
    """Trials of a spot check's calls up to the first failure, and the time of each call, in ms."""

    trials: list[Trial]
    fault: Fault | None
    times_ms: list[float]


class WindowRunner:
    """Makes windows in the runner of a `TrialRunner` that has answered a call before."""

    def __init__(self, trial_runner: TrialRunner) -> None:
        """Make windows of up to `TrialRunner.window_calls` calls."""
        self._trial_runner = trial_runner
        self._call_driver = trial_runner.call_driver

    def run(self, index: int, seeds: Sequence[int], *, timeout_s: float) -> WindowTrials:
        """Make one call for each seed, one behind the other, with the problem's own values; compare every output.

        The index of the first call is `index`.
        """
        plans = self._trial_runner.plans(index, seeds)
        placed, answer = self._call_driver.ask_window(index, plans, timeout_s=timeout_s)
        if isinstance(answer, Fault):
            return WindowTrials([], answer, 0.0, was_queued=False)
        trials = self._compared(index, plans, placed, answer.calls)
        return WindowTrials(trials, _fault(trials), answer.elapsed_ms, answer.was_queued, answer.host_ms)

    def spot_check(self, index: int, seeds: Sequence[int], *, timeout_s: float) -> SpotTrials:
        """Make calls as in a window, but release each call, and its weights, after the digest of the call before."""
        plans, weights = self._spot_plans(index, seeds)
        placed, answer = self._call_driver.ask_spot_check(index, plans, weights, timeout_s=timeout_s)
        if isinstance(answer, Fault):
            return SpotTrials([], answer, [])
        trials = self._compared(index, plans, placed, answer.calls, own_weights=True)
        fault = _fault(trials)
        if fault is None and answer.mismatch is not None:
            message = f"the outputs of call {index + answer.mismatch} changed after the call had ended"
            fault = Fault(Status.REJECTED, finding(Code.WORK_AFTER_DONE, message))
        return SpotTrials(trials, fault, answer.times_ms)

    def time_empty_spot_checks(self, calls: int, count: int, *, timeout_s: float) -> Iterator[list[float] | Fault]:
        """Yield the times of the calls of `count` spot checks without a forward, in ms. All have the same inputs."""
        plans, weights = self._spot_plans(1, [fresh_seed() for _ in range(calls)])
        for _ in range(count):
            _, answer = self._call_driver.ask_spot_check(1, plans, weights, timeout_s=timeout_s, empty=True)
            yield answer if isinstance(answer, Fault) else answer.times_ms

    def _spot_plans(self, index: int, seeds: Sequence[int]) -> tuple[list[CallPlan], list[dict[str, torch.Tensor]]]:
        """Return the plans of calls that each have their own weights, and these weights."""
        plans: list[CallPlan] = []
        weights: list[dict[str, torch.Tensor]] = []
        for seed in seeds:
            plans += self._trial_runner.plans(index, [seed])
            weights.append(self._call_driver.staged_weights())
        return plans, weights

    def time_empty_windows(self, calls: int, count: int, *, timeout_s: float) -> Iterator[float | Fault]:
        """Yield the time of the runner's host for each of `count` windows without a forward, in ms."""
        plans = self._trial_runner.plans(1, [fresh_seed() for _ in range(calls)])
        for _ in range(count):
            _, answer = self._call_driver.ask_window(1, plans, timeout_s=timeout_s, empty=True)
            yield answer if isinstance(answer, Fault) else answer.host_ms

    def _compared(
        self,
        index: int,
        plans: list[CallPlan],
        placed: LaidOut,
        calls: Sequence[ClockedCall],
        *,
        own_weights: bool = False,
    ) -> list[Trial]:
        """Compare calls up to the first failure. The inputs of all calls are compared with the first."""
        trials: list[Trial] = []
        for number, call in enumerate(calls):
            if own_weights:
                self._trial_runner.set_weights(plans[number].seed)
            inputs = LaidOut([], []) if trials else placed
            trials.append(self._trial_runner.compared(index + number, plans[number], inputs, call))
            plans[number].forget()
            if trials[-1].fault is not None:
                break
        return trials


def _fault(trials: Sequence[Trial]) -> Fault | None:
    return next((trial.fault for trial in trials if trial.fault is not None), None)


_FEW_WINDOWS = 3
"""Windows that are enough if they lie within twice the spread between processes: the spread makes most of an interval,
and more windows would hardly narrow it."""
_WINDOWS, _HALFS_WINDOWS = 6, 5
"""Windows of a side, and of a half of the reference, if they scatter more."""
_SPREAD = 4
"""Windows have between three quarters of the largest number of calls and all; of three or four calls, a call may be
missing."""
_LONGEST_MS = 4.0
"""Time of all calls of a window."""
_SHORTEST_CALL_MS = 0.002
_EVENT_STEP_MS = 32e-6
"""Times between two events are multiples of the step (measured on an H200). Scatter of windows is in their times."""
SPOT_CALLS = MAX_SPOT_CALLS
SPOT_CHECKS = 4
"""Calls of microseconds scatter by 1 to 2 us in a spot check. The lower quartile of a check's 15 calls has a standard
deviation of 0.4 us from check to check (57 published kernels below 12 us on H200s). The lower quartile of four checks
has 0.3 us from process to process."""
_LONG_CALL_MS = 0.1
"""The scatter of a spot check is below `agreement.SPOT_MARGIN` of a longer call."""


class SpotRule(NamedTuple):
    """Measurements in runners of the reference, for the spot checks of a submission.

    `constant_ms` is the time of a call without a forward, a lower quartile.
    """

    constant_ms: float
    reference: Windows | None = None

    def beside(self, windows: Windows | None) -> "SpotRule":
        """Return the rule with the reference's `windows`."""
        return self._replace(reference=windows)


class WindowHost(NamedTuple):
    """Host time of the runner for a window without forwards: `fixed_ms`, and `call_ms` for each call."""

    fixed_ms: float
    call_ms: float

    def of_forward_ms(self, window_ms: float, calls: int) -> float:
        """Return the host time of a forward in a window that took the host `window_ms`."""
        return max((window_ms - self.fixed_ms) / calls - self.call_ms, 0.0)


class TakenOff(NamedTuple):
    """Time and spread of an empty call in a runner of the reference. The runner never loaded a submission."""

    empty_ms: float
    spread_ms: float


class WindowSide(NamedTuple):
    """Windows of a side, None if the side has no windows; the failed trial, if any; and the seeds of all calls."""

    windows: Windows | None
    failed: Trial | None
    seeds: list[int]


def windows_of(
    trial_runner: TrialRunner,
    seeds: Iterator[int],
    index: int,
    single_ms: list[float],
    taken_off: TakenOff,
    timeout_s: float,
    *,
    trusted: bool,
    half: bool,
    spot: SpotRule | None,
    empty_host: WindowHost | None = None,
    watch: ClockWatch = NO_WATCH,
) -> WindowSide:
    """Time windows after the single calls of `single_ms`, with the empty call of `taken_off`.

    Every output is compared, of `trusted` code as well: the time for the comparison passes between two windows, and a
    call behind a longer pause takes longer or shorter. `trusted` code needs fewer spot checks. A `half` of a side has
    fewer windows, and is quoted with the other half. With `spot`, a spot check follows. `empty_host` is subtracted from
    the host's time. `watch` looks at the GPU's clock after each window.
    """
    runner = WindowRunner(trial_runner)
    single_ms = [max(elapsed_ms - taken_off.empty_ms, 0.0) for elapsed_ms in single_ms]
    call_ms = median(single_ms)
    most = longest_window(trial_runner, call_ms)
    warms_up = True
    used: list[int] = []
    calls: list[int] = []
    window_ms: list[float] = []
    hosts_ms: list[float] = []
    while most > 1 and not enough(calls, window_ms, half=half):
        count = most - secrets.randbelow(max(most // _SPREAD, 2 if most > 2 else 1))
        window_seeds = own_values(trial_runner, seeds, count)
        window = runner.run(index + len(used), window_seeds, timeout_s=timeout_s)
        used += window_seeds
        watch.look()
        if window.fault is not None:
            return WindowSide(None, failed_trial(window.trials, window.fault), used)
        if not window.was_queued:  # A kernel's first launch, a slow host, or a forward that waits for the GPU.
            most, calls, window_ms, hosts_ms = most if warms_up else most // 2, [], [], []
            warms_up = False
            continue
        calls.append(count)
        window_ms.append((window.elapsed_ms - taken_off.empty_ms) * (count - 1) / count)
        hosts_ms += [] if empty_host is None else [empty_host.of_forward_ms(window.host_ms, count)]
    if not calls:
        return WindowSide(None, None, used)
    windows = Windows(
        calls=calls,
        window_ms=window_ms,
        clock_error_ms=(taken_off.spread_ms + _EVENT_STEP_MS) / min(calls),
        single_ms=single_ms,
        host_ms=median(hosts_ms) if hosts_ms else None,
    )
    if spot is None:
        return WindowSide(windows, None, used)
    return _spot_checked(trial_runner, seeds, index + len(used), windows, used, timeout_s, spot, trusted=trusted)


def _spot_checked(
    trial_runner: TrialRunner,
    seeds: Iterator[int],
    index: int,
    windows: Windows,
    used: list[int],
    timeout_s: float,
    rule: SpotRule,
    *,
    trusted: bool,
) -> WindowSide:
    """Return the windows with the calls of all spot checks.

    Windows that are no faster than the first check's calls, and are not raised, need no more checks; nor does a long
    call of trusted code. A spot check has no more calls than the longest window: the GPU's queue holds a limited number
    of launches, and a call queued late would include the host's time.
    """
    spot_ms: list[float] = []
    for _ in range(SPOT_CHECKS):
        check_seeds = own_values(trial_runner, seeds, min(SPOT_CALLS, max(windows.calls)))
        checked = WindowRunner(trial_runner).spot_check(index, check_seeds, timeout_s=timeout_s)
        used, index = [*used, *check_seeds], index + len(check_seeds)
        if checked.fault is not None:
            return WindowSide(None, failed_trial(checked.trials, checked.fault), used)
        # The first call finds cold instructions.
        spot_ms += [max(time_ms - rule.constant_ms, 0.0) for time_ms in checked.times_ms[1:]]
        windows = replace(windows, spot_ms=spot_ms)
        if not _needs_more(windows, rule.reference, trusted=trusted):
            break
    if trusted:
        return WindowSide(windows, None, used)
    added_ms, error_ms = raised(windows, rule.reference)
    windows = replace(windows, raised_ms=added_ms, clock_error_ms=windows.clock_error_ms + error_ms)
    return WindowSide(replace(windows, shared_work=disagreement(windows, rule.reference) is not None), None, used)


def _needs_more(windows: Windows, reference: Windows | None, *, trusted: bool) -> bool:
    call_ms = median(windows.measured_ms)
    if trusted:
        return call_ms < _LONG_CALL_MS
    is_fast = call_ms < usual_ms(lower_quartile(windows.spot_ms), excess_ms(reference))
    return is_fast or raised(windows, reference).added_ms > 0


def longest_window(trial_runner: TrialRunner, call_ms: float) -> int:
    """Return the largest number of calls of `call_ms` in a window; 1 or less without windows."""
    return min(trial_runner.window_calls, int(_LONGEST_MS / max(call_ms, _SHORTEST_CALL_MS)))


def enough(calls: list[int], window_ms: list[float], *, half: bool = False) -> bool:
    """Return whether the median of the windows is known to the spread between processes, or to 1 %.

    The `half` of a side may scatter more: the error of both halves together is smaller by the square root of two.
    Windows that scatter are at most twice as many.
    """
    if len(calls) < _FEW_WINDOWS:
        return False
    call_ms = [each_ms / (count - 1) for each_ms, count in zip(window_ms, calls, strict=True)]
    usual_ms, (low_ms, high_ms) = median(call_ms), median_interval(call_ms)
    spread_ms = process_spread_ms(ClockKind.SEALED, usual_ms)
    if high_ms - low_ms <= 2 * spread_ms:
        return True
    fewest = _HALFS_WINDOWS if half else _WINDOWS
    narrow_ms = max(NARROW_WINDOWS * usual_ms, spread_ms) * (math.sqrt(2) if half else 1.0)
    is_narrow = len(calls) >= fewest and high_ms - low_ms <= 2 * narrow_ms
    return is_narrow or len(calls) >= 2 * fewest


def own_values(trial_runner: TrialRunner, seeds: Iterator[int], count: int) -> list[int]:
    """Return `count` of `seeds`, for calls with the problem's own input values."""
    chosen: list[int] = []
    while len(chosen) < count:
        seed = next(seeds)
        chosen += [seed] if trial_runner.has_own_values(seed) else []
    return chosen


def failed_trial(trials: list[Trial], fault: Fault) -> Trial:
    """Return the trial that failed; a window can also fail as a whole."""
    last = trials[-1] if trials else Trial(None, None, 0.0, copied=False)
    return last if last.fault is fault else last._replace(fault=fault)
