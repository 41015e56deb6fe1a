"""Timing loop of one side: a first call, then verified calls on fresh inputs until the median is precise enough.

A call is void and repeated if writing the inputs took the GPU longer than in a runner of the reference
(`call_overhead`).
"""

import itertools
import math
import time
from collections.abc import Iterator
from typing import NamedTuple

from evaluator.findings import Code, finding
from evaluator.judge.clock.gpu_monitor import NO_WATCH, ClockWatch
from evaluator.judge.trial.call_overhead import LAG_MS, Overhead
from evaluator.judge.trial.enough_calls import FEW_CALLS, MAX_CALLS, MIN_CALLS, SEALED_CALLS, enough
from evaluator.judge.trial.retry import SEARCH_S, retried
from evaluator.judge.trial.trial import Trial
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.judge.trial.windows import TakenOff, WindowRunner, WindowSide, longest_window, own_values, windows_of
from evaluator.records import ClockKind, Fault, Profile, Samples, Status, Windows, seed_text
from evaluator.timing.stats import interquartile_range, median, outliers

_NEVER_QUIET_S = 20.0
_CLEARLY_SLOWER = 5.0
"""Ratio of the submission's time to the reference's, above which a wide interval of the speedup is enough."""
_PROBE_CALLS = 3
"""Calls of a drift probe, after a first one that is no sample."""
TRIES = 3
"""Tries with a disturbed clock (`Trait.DISTURBED_CLOCK`) after which a submission is refused."""


class TimedSide(NamedTuple):
    """Samples of a side, and the trial that ended the side if not a pass. T306 comes with both."""

    samples: Samples | None
    failed: Trial | None


def side(
    name: str,
    trial_runner: TrialRunner,
    seeds: Iterator[int],
    empty: Overhead,
    timeout_s: float,
    *,
    at_least: int = MIN_CALLS,
    closely: bool = False,
    trusted: bool = False,
    spot_checks: bool = True,
    watch: ClockWatch = NO_WATCH,
    index: int = 0,
    first_call_ms: float | None = None,
    usual_ms: float = math.inf,
) -> TimedSide:
    """Time at least `at_least` calls, or a few (`_fewest`), until there are enough (`enough_calls`).

    Every output is verified, including void calls, and calls with other input distributions, which are not quoted. With
    `closely`, calls continue until small outputs have enough samples for the precision check (`precision_sampler`).
    Windows follow where the clock has windows, on a GPU with `spot_checks`. With `at_least` below `MIN_CALLS`, the side
    is a half of the reference. `trusted` code is the reference or a baseline. `watch` looks at the GPU's clock after
    some of the calls. The runner has made `index` calls before, the first of `first_call_ms`; the side's own first call
    is no sample either way. `usual_ms` is the time of a single call of the reference.
    """
    used: list[int] = []
    quiet: list[Trial] = []
    waited: list[Trial] = []
    void = others = 0
    first_ms: float | None = None
    started = time.monotonic()
    lacking = False
    while not enough(
        _times_ms(good := _quoted_calls(quiet, waited)),
        _fewest(good, at_least, trial_runner, empty, usual_ms),
        time.monotonic() - started,
        clock=ClockKind.HOST if empty.quiet_ms is None else ClockKind.SEALED,
        spread_ms=empty.spread_ms,
        lacking=lacking,
    ):
        seed = next(seeds)
        trial = trial_runner.run(index + len(used), seed, timeout_s=timeout_s, quick=not lacking)
        lacking = closely and trial_runner.lacks_calls
        if trial.fault is not None:
            search_s = math.inf if empty.quiet_ms is None else SEARCH_S
            unscheduled = itertools.repeat(None)
            fault, _ = retried(trial_runner, trial, index + len(used), seed, unscheduled, timeout_s, search_s=search_s)
            return TimedSide(None, trial._replace(fault=fault))
        used.append(seed)
        watch.look_at(len(used))
        if first_ms is None:
            started = time.monotonic()  # The first call may compile.
            first_ms = max((first_call_ms or trial.elapsed_ms) - empty.taken_off_ms, 0.0)
        elif trial.profile is not Profile.AS_GIVEN:
            others += 1
        elif not _prepared_longer(trial, empty.quiet_ms):
            quiet.append(trial)
        elif not _prepared_longer(trial, empty.forked_ms):
            waited.append(trial)
        else:
            void += 1
        if void > MAX_CALLS or (void > MIN_CALLS and time.monotonic() - started > _NEVER_QUIET_S):
            return TimedSide(None, _never_quiet(trial, name, void + len(waited), len(quiet)))
    void += len(quiet) + len(waited) - len(good)
    times_ms = [max(trial.elapsed_ms - empty.taken_off_ms, 0.0) for trial in good]
    hosts_ms = [trial.host_ms for trial in good if trial.host_ms is not None]
    late = _work_after_done(good, empty)
    waits = _waits_for_gpu(good)
    windows: Windows | None = None
    if late is None and not waits and not any(trial.copied for trial in good):
        in_windows = _in_windows(
            trial_runner,
            seeds,
            index + len(used),
            good,
            empty,
            timeout_s,
            trusted=trusted,
            half=at_least < MIN_CALLS,
            spot_checks=spot_checks,
            watch=watch,
        )
        if in_windows.failed is not None:
            return TimedSide(None, in_windows.failed)
        windows = in_windows.windows
        used += in_windows.seeds
    samples = Samples(
        side=name,
        seeds=[seed_text(seed) for seed in used],
        samples_ms=times_ms,
        overhead_ms=empty.taken_off_ms,
        overhead_iqr_ms=empty.spread_ms,
        median_ms=median(times_ms),
        iqr_ms=interquartile_range(times_ms),
        first_call_ms=first_ms or 0.0,
        host_ms=median(hosts_ms) if hosts_ms else None,
        void_calls=void,
        other_calls=others,
        outputs_copied=any(trial.copied for trial in good),
        outliers=len(outliers(times_ms)),
        overhead_host_ms=empty.host_ms,
        unwatched_ms=_unwatched_ms(good, empty),
        windows=windows,
        waits_for_gpu=waits,
        clocks=watch.clocks(),
    )
    return TimedSide(samples, None if late is None else good[-1]._replace(fault=late))


def probe(
    trial_runner: TrialRunner, seeds: Iterator[int], empty: Overhead, windows: Windows | None, timeout_s: float
) -> float | None:
    """Return the time of a call in a runner of the reference, in ms: the median of a few, or that in a window.

    `windows` are those of the measurement that the probe is compared with. None if a call fails or was not queued.
    """
    times_ms: list[float] = []
    for index in range(1 + (_PROBE_CALLS if windows is None else 0)):
        trial = trial_runner.run(index, next(seeds), timeout_s=timeout_s, quick=True)
        if trial.fault is not None:
            return None
        times_ms.append(max(trial.elapsed_ms - empty.taken_off_ms, 0.0))
    if windows is None:
        return median(times_ms[1:])
    calls = max(windows.calls)
    window = WindowRunner(trial_runner).run(len(times_ms), own_values(trial_runner, seeds, calls), timeout_s=timeout_s)
    if window.fault is not None or not window.was_queued:
        return None
    return (window.elapsed_ms - empty.taken_off_ms) / calls


def _in_windows(
    trial_runner: TrialRunner,
    seeds: Iterator[int],
    index: int,
    good: list[Trial],
    empty: Overhead,
    timeout_s: float,
    *,
    trusted: bool,
    half: bool,
    spot_checks: bool,
    watch: ClockWatch,
) -> WindowSide:
    """Time the windows of a side after its single calls, if the clock has windows."""
    times_ms = _times_ms(good)
    if empty.spot is None:
        return WindowSide(None, None, [])
    return windows_of(
        trial_runner,
        seeds,
        index,
        times_ms,
        TakenOff(empty.taken_off_ms, empty.spread_ms),
        timeout_s,
        trusted=trusted,
        half=half,
        spot=empty.spot if spot_checks else None,
        empty_host=empty.window_host,
        watch=watch,
    )


def _fewest(good: list[Trial], at_least: int, trial_runner: TrialRunner, empty: Overhead, usual_ms: float) -> int:
    """Return the least number of single calls: few before windows, or of a clear loser; `at_least` on a CPU.

    Windows are no samples for the precision check, which may need the errors of `at_least` calls.
    """
    few = FEW_CALLS if at_least >= MIN_CALLS else FEW_CALLS // 2
    if len(good) < few or trial_runner.lacks_errors:
        return at_least
    call_ms = median(_times_ms(good)) - empty.taken_off_ms
    if call_ms > _CLEARLY_SLOWER * usual_ms:
        return few
    alone = at_least if empty.quiet_ms is None else min(at_least, SEALED_CALLS)
    if empty.spot is None or _waits_for_gpu(good) or any(trial.copied for trial in good):
        return alone
    return few if longest_window(trial_runner, call_ms) > 1 else alone


def _quoted_calls(quiet: list[Trial], waited: list[Trial]) -> list[Trial]:
    """Return the calls to quote: calls on a quiet GPU, or all calls if most had waiting streams.

    Waiting streams take time slices while inputs are written. An effect in a minority of calls is not the usual
    behavior of the side's streams; the calls are dropped.
    """
    return [*quiet, *waited] if len(waited) > len(quiet) else quiet


def _times_ms(trials: list[Trial]) -> list[float]:
    return [trial.elapsed_ms for trial in trials]


def _prepared_longer(trial: Trial, limit_ms: float | None) -> bool:
    return trial.prepared_ms is not None and limit_ms is not None and trial.prepared_ms > limit_ms


def _waits_for_gpu(good: list[Trial]) -> bool:
    """Return whether most calls of a side on a GPU could not be queued before the inputs were revealed."""
    return 2 * sum(trial.prepared_ms is not None and trial.host_ms is None for trial in good) > len(good)


def _unwatched_ms(good: list[Trial], empty: Overhead) -> float:
    """Return for how long the runner had the GPU while inputs were written; 0 if the duration is that of a quiet GPU.

    The GPU switches to a context with waiting streams at the end of a time slice. The judge cannot see whether the
    streams only wait.
    """
    taken_ms = max((trial.prepared_ms for trial in good if trial.prepared_ms is not None), default=None)
    if taken_ms is None or empty.prepared_ms is None or empty.quiet_ms is None or taken_ms <= empty.quiet_ms:
        return 0.0
    return taken_ms - empty.prepared_ms


def _work_after_done(good: list[Trial], empty: Overhead) -> Fault | None:
    """Return a fault if the GPU is still busy after the reported end of the calls."""
    lags_ms = [trial.lag_ms for trial in good if trial.lag_ms is not None]
    if empty.lag_ms is None or not lags_ms or median(lags_ms) <= empty.lag_ms:
        return None
    excess_us = (median(lags_ms) - empty.lag_ms + LAG_MS) * 1e3
    message = f"the GPU stayed busy for {excess_us:.0f} us after a call reported its end"
    return Fault(Status.REJECTED, finding(Code.WORK_AFTER_DONE, message))


def _never_quiet(trial: Trial, name: str, void: int, good: int) -> Trial:
    """Return a failed trial for a side with other work on the GPU in nearly all calls.

    The reference was quiet on the same GPU shortly before, so the work in a submission's runner is the submission's.
    """
    message = f"in {void} of {void + good} calls other work kept the GPU busy before the inputs arrived"
    return trial._replace(fault=Fault(Status.REJECTED, finding(Code.NOT_QUIET, f"{name}: {message}")))
