"""How a side is measured, with trials that come from a list instead of a runner."""

import itertools
from types import SimpleNamespace

import pytest

from evaluator.devices.gpu import ClockLook
from evaluator.findings import Code, finding
from evaluator.judge.clock.clock import ClockedCall
from evaluator.judge.clock.gpu_monitor import ClockWatch
from evaluator.judge.trial import call_overhead, timing_loop
from evaluator.judge.trial.call_overhead import Overhead
from evaluator.judge.trial.enough_calls import MIN_CALLS, REFERENCE_CALLS, SEALED_CALLS
from evaluator.judge.trial.trial import Trial
from evaluator.judge.trial.windows import SpotRule, WindowHost, WindowSide, WindowTrials
from evaluator.protocol.frames import Done
from evaluator.records import ClockKind, Clocks, Fault, Profile, Status, Windows
from evaluator.timing.quote import quote

HOST = Overhead(0.1, 0.01, None, None, None, None, None)


@pytest.fixture(autouse=True)
def passing(monkeypatch):
    """Let no time pass, or `passing(s)` with each look at the clock: a busy machine must not count."""

    def passes(step_s):
        clock = itertools.count()
        for module in (call_overhead, timing_loop):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(clock) * step_s))

    passes(0.0)
    return passes


class Script:
    """Answers call by call from `times_ms`, the last one again and again.

    `change` makes another trial of that of a call with this index. `lacks` are the calls that the precision check asks
    for, `lacks_errors_for` those that it needs errors of. Streams wait for each other while `forked` inputs are written
    for that long.
    """

    earlier_weights = ()

    def __init__(
        self,
        times_ms,
        empty_ms=0.0,
        *,
        change=lambda index, trial: trial,
        lacks=0,
        lacks_errors_for=-1,
        forked_ms=None,
        window_calls=1,
        **seen,
    ):
        self.empty_ms, self.window_calls = empty_ms, window_calls
        self._times_ms = itertools.chain(times_ms, itertools.repeat(times_ms[-1]))
        self._change, self._lacks, self._lacks_errors_for, self._forked_ms = change, lacks, lacks_errors_for, forked_ms
        self._seen = seen
        self.asked, self.quick, self.empty_calls = [], [], 0

    @property
    def lacks_calls(self):
        return len(self.asked) < self._lacks + 1

    @property
    def lacks_errors(self):
        return len(self.asked) <= self._lacks_errors_for

    def has_own_values(self, seed):
        return True

    def run(self, index, seed, *, timeout_s, quick=False, **_):
        self.asked.append(index)
        self.quick.append(quick)
        return self._change(index, Trial(None, None, next(self._times_ms), copied=False, **self._seen))

    def run_empty(self, *, timeout_s, forked=False):
        for index in itertools.count():
            self.empty_calls += 1
            done = Done(index=index, outputs=None, gradients=None)
            answer = ClockedCall(done, next(self._times_ms), **self._seen)
            yield answer._replace(prepared_ms=self._forked_ms) if forked and self._forked_ms else answer


def side(script, empty=HOST, name="submission", **how):
    return timing_loop.side(name, script, itertools.count(), empty, 1.0, **how)


def samples(script, empty=HOST, **how):
    return side(script, empty, **how).samples


def calls(script, empty=HOST, **how):
    """Return the number of quoted calls."""
    return len(samples(script, empty, **how).samples_ms)


def overhead(times_ms=(0.3,), empty_ms=0.0, **seen):
    return call_overhead.measured(Script(times_ms, empty_ms, **seen), 1.0)


def test_on_a_gpu_the_overhead_is_a_median_less_what_the_empty_call_does_itself():
    empty = overhead([9.0, 0.3, 0.5, 0.4], empty_ms=0.1, prepared_ms=0.5)
    assert empty.taken_off_ms == pytest.approx(0.4 - 0.1)
    assert empty.spread_ms == 0.0


def test_on_the_host_it_is_what_an_empty_call_takes_at_least():
    """A busy core makes most of them longer, and a call that comes when it is not has nothing to give for that."""
    empty = overhead([9.0, 0.3, 5.0, 5.5, 4.5])
    assert (empty.taken_off_ms, empty.quiet_ms, empty.lag_ms, empty.host_ms) == (0.3, None, None, None)
    assert empty.spread_ms == pytest.approx(4.5 - 0.3)
    found = samples(Script([20.3]), empty)
    assert found.median_ms == pytest.approx(20.0)
    assert found.overhead_iqr_ms == empty.spread_ms


def test_on_the_host_no_more_can_be_hidden_than_what_the_quoted_resolution_says():
    """A submission may answer without the runner's Python and work meanwhile; all of that is taken off all the same."""
    empty = overhead()
    assert (empty.taken_off_ms, empty.spread_ms) == (0.3, 0.0)
    reference, hidden = samples(Script([10.3]), empty, name="reference"), samples(Script([10.0]), empty)
    timing = quote(ClockKind.HOST, reference, hidden, reference).timing
    assert timing.resolution_ms == pytest.approx(0.3)
    assert timing.submission_median_ms + timing.resolution_ms == pytest.approx(10.0)
    assert timing.submission_high_ms > 9.95
    assert not timing.significant


def test_the_hosts_part_of_an_empty_call_is_measured_where_there_is_a_gpu():
    empty = overhead(host_ms=0.2, prepared_ms=1.0, lag_ms=0.005)
    found = samples(Script([1.3], host_ms=0.9, prepared_ms=1.0, lag_ms=0.005), empty)
    assert (empty.host_ms, found.host_ms, found.overhead_host_ms) == (0.2, 0.9, 0.2)


@pytest.mark.parametrize(("copied", "told"), [((), False), ((0, 2, 5, 7), False), ((4,), True)])
def test_that_outputs_were_copied_is_told_of_calls_that_are_quoted(copied, told):
    """The first call is not, nor are those with other values or on a GPU that was not quiet, where most were."""

    def change(index, trial):
        """Every third call has other values, and in the eighth streams wait."""
        profile = Profile.LARGE if index % 3 == 2 else Profile.AS_GIVEN
        return trial._replace(copied=index in copied, profile=profile, prepared_ms=4.2 if index == 7 else 3.0)

    empty = overhead(prepared_ms=3.0, forked_ms=4.2)
    assert samples(Script([1.3], change=change, prepared_ms=3.0), empty).outputs_copied is told


@pytest.mark.parametrize(("prepared_ms", "forked_ms"), [(0.5, 0.57), (3.0, 4.64)])
def test_what_waits_on_several_streams_may_take_longer_where_a_slice_of_the_gpus_time_is_over(prepared_ms, forked_ms):
    empty = overhead(prepared_ms=prepared_ms, forked_ms=4.2)
    assert empty.quiet_ms == pytest.approx(prepared_ms * 1.1 + 0.02)
    assert empty.forked_ms == pytest.approx(forked_ms)


@pytest.mark.parametrize(
    ("prepared_ms", "quoted", "void_calls", "unwatched_ms"),
    [
        ([3.05], SEALED_CALLS, (0,), 0.0),
        ([4.2], SEALED_CALLS, (0,), 1.2),
        # Calls during which streams had the GPU count only where most are such.
        ([3.0, 3.0, 4.2], SEALED_CALLS, (4, 5), 0.0),
        ([3.0, 4.2, 4.3], SEALED_CALLS, (0,), 1.3),
    ],
)
def test_time_that_streams_had_before_a_call_is_told(prepared_ms, quoted, void_calls, unwatched_ms):
    turns = itertools.cycle(prepared_ms)
    script = Script([1.3], change=lambda _, trial: trial._replace(prepared_ms=next(turns)))
    found = samples(script, overhead(prepared_ms=3.0, forked_ms=4.2))
    assert len(found.samples_ms) >= quoted
    assert found.void_calls in void_calls
    assert found.unwatched_ms == pytest.approx(unwatched_ms)


def test_more_time_than_that_makes_a_call_void():
    failed = side(Script([1.3], prepared_ms=4.7), overhead(prepared_ms=3.0, forked_ms=4.2)).failed
    assert failed.fault.finding.code == Code.NOT_QUIET.value
    assert "in 101 of 101 calls" in failed.fault.finding.message


def test_what_never_is_quiet_is_not_waited_for_for_ever(passing):
    empty = overhead(prepared_ms=0.5)
    passing(0.5)
    failed = side(Script([1.3], prepared_ms=0.9), empty).failed
    assert 20 < int(failed.fault.finding.message.split(" in ")[-1].split()[0]) < 50


def test_a_side_whose_work_goes_on_has_samples_all_the_same():
    measured = side(Script([1.3], prepared_ms=0.5, lag_ms=0.2), overhead(prepared_ms=0.5, lag_ms=0.005))
    assert measured.failed.fault.finding.code == Code.WORK_AFTER_DONE.value
    assert len(measured.samples.samples_ms) == SEALED_CALLS


def test_the_first_call_stands_apart_and_the_overhead_is_taken_off():
    found = samples(Script([5.1, 1.1]))
    assert found.first_call_ms == pytest.approx(5.0)
    assert found.samples_ms == pytest.approx([1.0] * MIN_CALLS)
    assert len(found.seeds) == MIN_CALLS + 1
    assert (found.outliers, found.overhead_host_ms) == (0, None)


@pytest.mark.parametrize(("lacks", "quoted"), [(0, MIN_CALLS), (15, MIN_CALLS), (33, 33), (1000, 100)])
def test_single_numbers_are_looked_at_closely_in_as_many_calls_as_it_takes(lacks, quoted):
    script = Script([1.1], lacks=lacks)
    assert calls(script, closely=True) == quoted
    assert script.quick == [number == 0 or number > lacks for number in range(quoted + 1)]
    assert calls(Script([1.1], lacks=lacks), name="reference_before") == MIN_CALLS


@pytest.mark.parametrize(("look_s", "made"), [(0.2, 15), (0.0, 30)])
def test_fewer_empty_calls_are_made_where_they_take_long(passing, look_s, made):
    passing(look_s)
    script = Script([*range(100)])
    call_overhead.measured(script, 1.0)
    assert script.empty_calls == made


def test_outliers_are_counted_and_kept():
    found = samples(Script([1.1, 1.1, 9.1, 1.1, 8.1, 1.1]))
    assert found.outliers == 2
    assert max(found.samples_ms) == pytest.approx(9.0)
    assert found.median_ms == pytest.approx(1.0)


def test_calls_with_other_values_are_checked_and_not_quoted():
    def change(index, trial):
        return trial._replace(elapsed_ms=99.0, profile=Profile.LARGE) if index % 5 == 4 else trial

    found = samples(Script([1.1], change=change))
    assert found.samples_ms == pytest.approx([1.0] * MIN_CALLS)
    assert found.other_calls == 5
    assert len(found.seeds) == MIN_CALLS + 1 + 5


WRONG = Fault(Status.WRONG_RESULT, finding(Code.WRONG_VALUES, "output: 1 of 9 values differ"))


@pytest.mark.parametrize("is_race", [False, True])
def test_what_is_wrong_once_and_right_again_differs_between_calls(is_race):
    script = Script([1.1], change=lambda _, trial: trial._replace(fault=WRONG if is_wrong() else None))

    def is_wrong():
        return len(script.asked) == 3 if is_race else True

    fault = side(script).failed.fault
    assert fault.status is Status.WRONG_RESULT
    assert fault.finding.code == (Code.DIFFERS if is_race else Code.WRONG_VALUES).value
    assert ("identical calls differ" in fault.finding.message) is is_race


def on_gpu():
    """Return an overhead of a GPU that has windows."""
    return overhead(prepared_ms=0.5, host_ms=0.1)._replace(spot=SpotRule(0.01))


def test_a_forward_that_waits_for_the_gpu_is_not_timed_in_windows(monkeypatch):
    monkeypatch.setattr(timing_loop, "windows_of", lambda *_, **__: pytest.fail("a window was made"))
    waiting = samples(Script([1.3], prepared_ms=0.5, host_ms=None), on_gpu())
    assert (waiting.waits_for_gpu, waiting.host_ms, waiting.windows) == (True, None, None)
    assert not samples(Script([1.3])).waits_for_gpu


class Windowed(Script):
    """Has windows of up to `window_calls` calls; the host needs 0.2 ms, and 0.003 ms for each call, or 1 ms more."""

    def __init__(self, window_calls, more_ms):
        super().__init__([0.3], window_calls=window_calls, prepared_ms=0.5, host_ms=0.1)
        self._more_ms = itertools.cycle(more_ms)

    def time_empty_windows(self, calls, count, *, timeout_s):
        return (0.2 + 0.003 * calls + next(self._more_ms) for _ in range(count))

    def time_empty_spot_checks(self, calls, count, *, timeout_s):
        return [[0.4, *[0.01] * (calls - 1)]] * count


@pytest.mark.parametrize(
    ("window_calls", "more_ms", "host"),
    [
        (32, (0.0,), WindowHost(0.2, 0.003)),
        (32, (1.0, 0.0), WindowHost(0.2, 0.003)),  # A busy host makes some longer.
        (32, (0.0, 1.0), WindowHost(0.2, 0.003)),
        (2, (0.0,), WindowHost(0.206, 0.0)),
        (1, (0.0,), None),
    ],
)
def test_what_the_host_does_beside_forward_is_measured_in_empty_windows(monkeypatch, window_calls, more_ms, host):
    monkeypatch.setattr(call_overhead, "WindowRunner", lambda script: script)
    found = call_overhead.measured(Windowed(window_calls, more_ms), 1.0).window_host
    assert found == (None if host is None else pytest.approx(host))


@pytest.mark.parametrize(
    ("call_ms", "seen", "window_calls", "at_least", "quoted"),
    [
        (0.005, {}, 32, MIN_CALLS, 8),
        (0.005, {}, 32, REFERENCE_CALLS, 4),
        (1.9, {}, 32, MIN_CALLS, 8),
        (2.1, {}, 32, MIN_CALLS, SEALED_CALLS),
        (0.005, {}, 1, MIN_CALLS, SEALED_CALLS),
        (0.005, {"host_ms": None}, 32, MIN_CALLS, SEALED_CALLS),  # waits for the GPU
        (0.005, {"copied": True}, 32, MIN_CALLS, SEALED_CALLS),
    ],
)
def test_a_side_with_windows_makes_few_single_calls(monkeypatch, call_ms, seen, window_calls, at_least, quoted):
    monkeypatch.setattr(timing_loop, "windows_of", lambda *_, **__: WindowSide(None, None, []))
    script = Script(
        [0.3 + call_ms],
        change=lambda _, trial: trial._replace(**seen),
        window_calls=window_calls,
        prepared_ms=0.5,
        host_ms=0.1,
    )
    assert calls(script, on_gpu(), at_least=at_least) == quoted


@pytest.mark.parametrize(
    ("usual_ms", "errors", "times_ms", "quoted"),
    [
        (0.9, -1, [5.1], 8),
        (1.1, -1, [5.1], MIN_CALLS),
        (0.0, -1, [5.1], 8),
        (0.5, -1, [5.1, *[5.1, 7.1] * 200], 100),  # It scatters.
        # Single calls continue while the precision check has too few errors.
        (0.5, 15, [5.1], 15),
        (0.5, 30, [5.1], MIN_CALLS),
    ],
)
def test_a_clear_loser_makes_few_single_calls(usual_ms, errors, times_ms, quoted):
    assert calls(Script(times_ms, lacks_errors_for=errors), usual_ms=usual_ms) == quoted


def test_the_clocks_of_a_side_are_looked_at_between_calls_and_passed_on_to_windows(monkeypatch):
    passed = []
    monkeypatch.setattr(
        timing_loop, "windows_of", lambda *_, watch, **__: passed.append(watch) or WindowSide(None, None, [])
    )
    watch = ClockWatch(lambda: ClockLook(1980, 40, ()), start_c=39)
    found = samples(Script([1.3], prepared_ms=0.5, host_ms=0.1), on_gpu(), watch=watch)
    assert found.clocks == Clocks(sm_mhz=[1980] * (len(found.seeds) // 5), start_c=39)
    assert len(found.clocks.sm_mhz) == 2
    assert passed == [watch]


def test_a_side_goes_on_in_the_runner_of_earlier_calls():
    """Its calls are numbered on, its first call is no sample, and the card has the runner's own first call."""
    script = Script([9.0, 1.1])
    found = samples(script, index=13, first_call_ms=5.1)
    assert script.asked == list(range(13, 13 + MIN_CALLS + 1))
    assert found.first_call_ms == pytest.approx(5.0)
    assert max(found.samples_ms) == pytest.approx(1.0)


BROKEN = Fault(Status.RUNTIME_ERROR, finding(Code.FORWARD_FAILED, "it broke"))
HALF = Windows(calls=[8, 6], window_ms=[0.7, 0.5], clock_error_ms=0.0, single_ms=[1.0])


@pytest.mark.parametrize(
    ("window", "probe_ms"),
    [
        (None, 1.9),
        (WindowTrials([], None, 0.9, was_queued=True), 0.1),
        (WindowTrials([], None, 0.9, was_queued=False), None),
        (WindowTrials([], BROKEN, 0.9, was_queued=True), None),
    ],
    ids=["single calls", "a window", "a window that was not queued", "a window that failed"],
)
def test_a_probe_is_a_few_calls_or_a_window_less_the_overhead(monkeypatch, window, probe_ms):
    def run(index, seeds, *, timeout_s):
        assert (index, len(seeds)) == (1, 8)
        return window

    monkeypatch.setattr(timing_loop, "WindowRunner", lambda _: SimpleNamespace(run=run))
    half = None if window is None else HALF
    measured_ms = timing_loop.probe(Script([9.0, 1.0, 3.0, 2.0]), itertools.count(), HOST, half, 1.0)
    assert measured_ms == (None if probe_ms is None else pytest.approx(probe_ms))


def test_a_probe_of_a_reference_that_fails_measures_nothing():
    broken = Script([1.0], change=lambda index, trial: trial._replace(fault=BROKEN if index == 2 else None))
    assert timing_loop.probe(broken, itertools.count(), HOST, None, 1.0) is None
