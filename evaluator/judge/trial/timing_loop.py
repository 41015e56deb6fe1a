"""Time one side: its first call apart, then verified calls on fresh inputs until there are enough.

What a call takes without the model's own work is measured in a runner that never loaded a submission, and taken off
both sides alike. So is how long a GPU takes to write the inputs: a call during which that took longer is void, because
something else was at work, and is made again.
"""

import itertools
import math
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from evaluator.findings import Code, finding
from evaluator.judge.clock.clock import ClockedCall
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.trial.retry import retried
from evaluator.judge.trial.trial_runner import Trial, TrialRunner
from evaluator.records import ClockKind, Fault, Profile, Samples, Status, seed_text
from evaluator.timing.quote import CLOCK_ERROR_MS
from evaluator.timing.stats import interquartile_range, median, median_interval, outliers

MIN_CALLS = 20
REFERENCE_CALLS = MIN_CALLS // 2
"""The reference is one side in two halves, before and after a submission, and both are quoted together."""
_MAX_CALLS = 100
_ENOUGH_S = 2.0
_NEVER_QUIET_S = 20.0
_NARROW = 0.002
"""Where the interval of the median is this narrow, relative to it, more calls tell nothing new."""
_NARROW_TO_THE_CLOCK = 0.5
"""And where it is this narrow, relative to how far the clock wanders: at least twice that is added on either side."""
_EMPTY_CALLS, _FEW_EMPTY_CALLS = 30, 15
_EMPTY_S = 0.15
"""Where inputs are so large that this time is over, so are calls, and what an empty one takes matters little."""
_LAG_MS = 0.030
"""How much longer than in a clean runner a GPU may take to come to rest.

Seen on an H200: at most 7 us where the work is over, at least 140 us where it is not: the GPU then changes contexts."""
_SLICE_MS = 1.0
"""A GPU gives each context a slice of its time: on an H200 what takes 1 ms is not interrupted, what takes 3 ms is."""
_FORKED_CALLS = 5
_QUIET_PART = 0.10
_QUIET_MS = 0.020
"""How much longer than usual a GPU may take to write the inputs: a tenth, and what an event's time wanders by."""

DISTURBED = frozenset((Code.NOT_QUIET.value, Code.WORK_AFTER_DONE.value))
"""What somebody else at work on the GPU looks like too: nobody is refused for it who was not seen so `TRIES` times."""
TRIES = 3


class Overhead(NamedTuple):
    """What a call takes without the model's own work: what is taken off each call, and how far that spreads.

    On a GPU also how long its preparation takes, and may take where work waits on one stream (`quiet_ms`) or on several
    (`forked_ms`), how long its end may take, and how long the host takes to queue it.
    """

    taken_off_ms: float
    spread_ms: float
    prepared_ms: float | None
    quiet_ms: float | None
    forked_ms: float | None
    lag_ms: float | None
    host_ms: float | None


class Side(NamedTuple):
    """A side's samples, and the trial that ended it if one was not a pass. There may be both (T306)."""

    samples: Samples | None
    failed: Trial | None


def overhead(trial_runner: TrialRunner, timeout_s: float) -> Overhead | Fault:
    """Measure calls without the model's own work, in a runner of the reference that has answered once."""
    first = trial_runner.run(0, fresh_seed(), timeout_s=timeout_s, quick=True)
    if first.fault is not None:
        return first.fault
    answers = _empty_calls(trial_runner, timeout_s)
    if isinstance(answers, Fault):
        return answers
    times_ms = [answer.elapsed_ms for answer in answers]
    prepared = [answer.prepared_ms for answer in answers if answer.prepared_ms is not None]
    if not prepared:
        return _on_the_host(times_ms)
    prepared_ms = median(prepared)
    quiet_ms = forked_ms = _quiet(prepared_ms)
    if prepared_ms > _SLICE_MS:
        forked = _empty_calls(trial_runner, timeout_s, forked=True)
        if isinstance(forked, Fault):
            return forked
        # The first one finds a stream that nothing has waited on yet.
        longer_ms = _median_of(answer.prepared_ms for answer in forked[1:])
        forked_ms = quiet_ms if longer_ms is None else _quiet(max(longer_ms, prepared_ms))
    lag_ms = _median_of(answer.lag_ms for answer in answers)
    return Overhead(
        taken_off_ms=median(times_ms) - trial_runner.empty_ms,
        spread_ms=interquartile_range(times_ms),
        prepared_ms=prepared_ms,
        quiet_ms=quiet_ms,
        forked_ms=forked_ms,
        lag_ms=None if lag_ms is None else lag_ms + _LAG_MS,
        host_ms=_median_of(answer.host_ms for answer in answers),
    )


def _on_the_host(times_ms: list[float]) -> Overhead:
    """Take off what a call takes at least: where the cores are busy the usual one takes as much as they happen to be.

    More than that must not go off a call that came when they were not. A submission that does without a part of it, or
    works during it, is quoted with less than it took, by no more than all of it: see `quote.clock_error_ms`.
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
    """Give the median of those that were seen; None where none was."""
    seen_ms = [value_ms for value_ms in values_ms if value_ms is not None]
    return median(seen_ms) if seen_ms else None


def _quiet(prepared_ms: float) -> float:
    return prepared_ms * (1 + _QUIET_PART) + _QUIET_MS


def side(
    name: str,
    trial_runner: TrialRunner,
    seeds: Iterator[int],
    empty: Overhead,
    timeout_s: float,
    *,
    at_least: int = MIN_CALLS,
    closely: bool = False,
) -> Side:
    """Time calls until there are `at_least` and the median is known well enough, for at most two seconds or a hundred.

    Every output is verified, of void calls too, and of those with other values than the problem's own, which are not
    quoted. With `closely`, there are to be as many as it takes to look at single numbers closely (`precision_sampler`),
    too.
    """
    used: list[int] = []
    quiet: list[Trial] = []
    waited: list[Trial] = []
    void = others = 0
    first_ms: float | None = None
    started = time.monotonic()
    lacking = False
    while not _enough(good := _of_a_kind(quiet, waited), at_least, time.monotonic() - started, empty, lacking=lacking):
        seed = next(seeds)
        trial = trial_runner.run(len(used), seed, timeout_s=timeout_s, quick=not lacking)
        lacking = closely and trial_runner.lacks_calls
        if trial.fault is not None:
            fault, _ = retried(trial_runner, trial, len(used), seed, itertools.repeat(None), timeout_s)
            return Side(None, trial._replace(fault=fault))
        used.append(seed)
        if first_ms is None:
            first_ms = max(trial.elapsed_ms - empty.taken_off_ms, 0.0)
        elif trial.profile is not Profile.AS_GIVEN:
            others += 1
        elif not _longer(trial, empty.quiet_ms):
            quiet.append(trial)
        elif not _longer(trial, empty.forked_ms):
            waited.append(trial)
        else:
            void += 1
        if void > _MAX_CALLS or (void > MIN_CALLS and time.monotonic() - started > _NEVER_QUIET_S):
            return Side(None, _never_quiet(trial, name, void + len(waited), len(quiet)))
    void += len(quiet) + len(waited) - len(good)
    times_ms = [max(trial.elapsed_ms - empty.taken_off_ms, 0.0) for trial in good]
    hosts_ms = [trial.host_ms for trial in good if trial.host_ms is not None]
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
    )
    late = _goes_on(good, empty)
    return Side(samples, None if late is None else good[-1]._replace(fault=late))


def _enough(good: list[Trial], at_least: int, elapsed_s: float, empty: Overhead, *, lacking: bool) -> bool:
    if len(good) < at_least:
        return False
    if len(good) >= _MAX_CALLS or elapsed_s >= _ENOUGH_S:
        return True
    if lacking:
        return False
    low, high = median_interval([trial.elapsed_ms for trial in good])
    clock = ClockKind.HOST if empty.quiet_ms is None else ClockKind.SEALED
    narrow_ms = max(_NARROW * low, _NARROW_TO_THE_CLOCK * (empty.spread_ms + CLOCK_ERROR_MS[clock]))
    # A half is quoted with the other one, and an interval narrows with the square root of the calls behind it.
    return high - low <= narrow_ms * math.sqrt(MIN_CALLS / at_least)


def _of_a_kind(quiet: list[Trial], waited: list[Trial]) -> list[Trial]:
    """Choose the calls that count: those of a quiet GPU, or all where most calls' streams had it for a while.

    A side is of one kind or the other. What had the GPU in the fewer calls is not what its streams always do.
    """
    return [*quiet, *waited] if len(waited) > len(quiet) else quiet


def _longer(trial: Trial, limit_ms: float | None) -> bool:
    return trial.prepared_ms is not None and limit_ms is not None and trial.prepared_ms > limit_ms


def _unwatched_ms(good: list[Trial], empty: Overhead) -> float:
    """Say for how long, while inputs were written, the GPU was the runner's; 0 where a quiet GPU takes as long.

    It turns to a context whose streams wait for each other when a slice of its time is over, and nobody sees whether
    they do but wait.
    """
    taken_ms = max((trial.prepared_ms for trial in good if trial.prepared_ms is not None), default=None)
    if taken_ms is None or empty.prepared_ms is None or empty.quiet_ms is None or taken_ms <= empty.quiet_ms:
        return 0.0
    return taken_ms - empty.prepared_ms


def _goes_on(good: list[Trial], empty: Overhead) -> Fault | None:
    """Refuse a side whose GPU is still at work after its calls said that they were over."""
    lags_ms = [trial.lag_ms for trial in good if trial.lag_ms is not None]
    if empty.lag_ms is None or not lags_ms or median(lags_ms) <= empty.lag_ms:
        return None
    excess_us = (median(lags_ms) - empty.lag_ms + _LAG_MS) * 1e3
    message = f"the GPU stayed busy for {excess_us:.0f} us after a call reported its end"
    return Fault(Status.REJECTED, finding(Code.WORK_AFTER_DONE, message))


def _never_quiet(trial: Trial, name: str, void: int, good: int) -> Trial:
    """Refuse a side during whose calls something else was nearly always at work on the GPU.

    The reference was quiet on the same GPU a moment ago, so in a submission's runner it is the submission.
    """
    message = f"in {void} of {void + good} calls other work kept the GPU busy before the inputs arrived"
    return trial._replace(fault=Fault(Status.REJECTED, finding(Code.NOT_QUIET, f"{name}: {message}")))
