"""How a side is measured, with a bench that answers from a list instead of a runner."""

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
from evaluator.judge.trial.timing_loop import side
from evaluator.judge.trial.trial import Trial
from evaluator.judge.trial.windows import SpotRule, WindowHost, WindowSide, WindowTrials
from evaluator.protocol.frames import Done
from evaluator.records import ClockKind, Clocks, Fault, Profile, Status, Windows
from evaluator.timing.quote import quote

AS_GIVEN = Profile.AS_GIVEN
HOST = Overhead(0.1, 0.01, None, None, None, None, None)


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch):
    """The loop accepts a wider interval as time passes: a pause of a busy machine must not count."""
    for module in (call_overhead, timing_loop):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 0.0))


class Script:
    """Answers call by call from `times_ms`, the last one again and again."""

    earlier_weights = ()
    window_calls = 1
    lacks_errors = False

    def __init__(self, times_ms, empty_ms=0.0, **seen):
        self.empty_ms = empty_ms
        self._times_ms = itertools.chain(times_ms, itertools.repeat(times_ms[-1]))
        self._seen = seen

    def run(self, index, seed, *, timeout_s, quick):
        return Trial(None, None, next(self._times_ms), copied=False, **self._seen)

    def run_empty(self, *, timeout_s, forked=False):
        for index in itertools.count():
            done = Done(index=index, outputs=None, gradients=None)
            yield ClockedCall(done, next(self._times_ms), **self._seen)


def test_on_a_gpu_the_overhead_is_a_median_less_what_the_empty_call_does_itself():
    empty = call_overhead.measured(Script([9.0, 0.3, 0.5, 0.4], empty_ms=0.1, prepared_ms=0.5), 1.0)
    assert empty.taken_off_ms == pytest.approx(0.4 - 0.1)
    assert empty.spread_ms == 0.0


def test_on_the_host_it_is_what_an_empty_call_takes_at_least():
    """A busy core makes most of them longer, and a call that comes when it is not has nothing to give for that."""
    empty = call_overhead.measured(Script([9.0, 0.3, 5.0, 5.5, 4.5]), 1.0)
    assert (empty.taken_off_ms, empty.quiet_ms, empty.lag_ms, empty.host_ms) == (0.3, None, None, None)
    assert empty.spread_ms == pytest.approx(4.5 - 0.3)
    script = Script([20.3])
    measured = side("submission", script, itertools.count(), empty, 1.0)
    assert measured.samples.median_ms == pytest.approx(20.0)
    assert measured.samples.overhead_iqr_ms == empty.spread_ms


def test_on_the_host_no_more_can_be_hidden_than_what_the_quoted_resolution_says():
    """A submission may answer without the runner's Python and work meanwhile; all of that is taken off all the same."""
    empty = call_overhead.measured(Script([0.3]), 1.0)
    assert (empty.taken_off_ms, empty.spread_ms) == (0.3, 0.0)
    reference = side("reference", Script([10.3]), itertools.count(), empty, 1.0).samples
    hidden = side("submission", Script([10.0]), itertools.count(), empty, 1.0).samples
    timing = quote(ClockKind.HOST, reference, hidden, reference).timing
    assert timing.resolution_ms == pytest.approx(0.3)
    assert timing.submission_median_ms + timing.resolution_ms == pytest.approx(10.0)
    assert timing.submission_high_ms > 9.95
    assert not timing.significant


def test_the_hosts_part_of_an_empty_call_is_measured_where_there_is_a_gpu():
    empty = call_overhead.measured(Script([0.3], host_ms=0.2, prepared_ms=1.0, lag_ms=0.005), 1.0)
    assert empty.host_ms == 0.2
    measured = side(
        "submission", Script([1.3], host_ms=0.9, prepared_ms=1.0, lag_ms=0.005), itertools.count(), empty, 1.0
    )
    assert measured.samples.host_ms == 0.9
    assert measured.samples.overhead_host_ms == 0.2


class Forking(Script):
    """Is interrupted while inputs are written, where streams wait for each other."""

    def run_empty(self, *, timeout_s, forked=False):
        for answer in super().run_empty(timeout_s=timeout_s):
            yield answer._replace(prepared_ms=4.2) if forked else answer


class Copying(Script):
    """Copies its outputs in the calls of these numbers; every third has other values, in the eighth streams wait."""

    def __init__(self, copied):
        super().__init__([1.3], prepared_ms=3.0)
        self._copied = copied

    def run(self, index, seed, *, timeout_s, quick):
        trial = super().run(index, seed, timeout_s=timeout_s, quick=quick)
        profile = Profile.LARGE if index % 3 == 2 else AS_GIVEN
        prepared_ms = 4.2 if index == 7 else 3.0
        return trial._replace(copied=index in self._copied, profile=profile, prepared_ms=prepared_ms)


@pytest.mark.parametrize(("copied", "told"), [((), False), ((0, 2, 5, 7), False), ((4,), True)])
def test_that_outputs_were_copied_is_told_of_calls_that_are_quoted(copied, told):
    """The first call is not, nor are those with other values or on a GPU that was not quiet, where most were."""
    empty = call_overhead.measured(Forking([0.3], prepared_ms=3.0), 1.0)
    assert side("submission", Copying(copied), itertools.count(), empty, 1.0).samples.outputs_copied is told


@pytest.mark.parametrize(("prepared_ms", "forked_ms"), [(0.5, 0.57), (3.0, 4.64)])
def test_what_waits_on_several_streams_may_take_longer_where_a_slice_of_the_gpus_time_is_over(prepared_ms, forked_ms):
    empty = call_overhead.measured(Forking([0.3], prepared_ms=prepared_ms), 1.0)
    assert empty.quiet_ms == pytest.approx(prepared_ms * 1.1 + 0.02)
    assert empty.forked_ms == pytest.approx(forked_ms)


@pytest.mark.parametrize(
    ("prepared_ms", "void_calls", "unwatched_ms"), [(3.05, 0, 0.0), (4.2, 0, 1.2), (4.7, 101, None)]
)
def test_time_that_streams_had_before_a_call_is_told_and_more_makes_it_void(prepared_ms, void_calls, unwatched_ms):
    empty = call_overhead.measured(Forking([0.3], prepared_ms=3.0), 1.0)
    measured = side("submission", Script([1.3], prepared_ms=prepared_ms), itertools.count(), empty, 1.0)
    if unwatched_ms is None:
        assert measured.failed.fault.finding.code == Code.NOT_QUIET.value
        assert f"in {void_calls} of {void_calls} calls" in measured.failed.fault.finding.message
    else:
        assert measured.samples.void_calls == void_calls
        assert measured.samples.unwatched_ms == pytest.approx(unwatched_ms)


class Turning(Script):
    """Has every call prepared in the time that is next in a list, again and again."""

    def __init__(self, times_ms, prepared_ms):
        super().__init__(times_ms)
        self._prepared_ms = itertools.cycle(prepared_ms)

    def run(self, index, seed, *, timeout_s, quick):
        return super().run(index, seed, timeout_s=timeout_s, quick=quick)._replace(prepared_ms=next(self._prepared_ms))


def test_calls_during_which_streams_had_the_gpu_count_only_where_most_are_such():
    empty = call_overhead.measured(Forking([0.3], prepared_ms=3.0), 1.0)
    mostly_quiet = side("submission", Turning([1.3], [3.0, 3.0, 4.2]), itertools.count(), empty, 1.0).samples
    assert (len(mostly_quiet.samples_ms), mostly_quiet.unwatched_ms) == (SEALED_CALLS, 0.0)
    assert mostly_quiet.void_calls in (4, 5)
    mostly_not = side("submission", Turning([1.3], [3.0, 4.2, 4.3]), itertools.count(), empty, 1.0).samples
    assert mostly_not.void_calls == 0
    assert mostly_not.unwatched_ms == pytest.approx(1.3)


def test_what_never_is_quiet_is_not_waited_for_for_ever(monkeypatch):
    empty = call_overhead.measured(Script([0.3], prepared_ms=0.5), 1.0)
    passing = itertools.count()
    monkeypatch.setattr("evaluator.judge.trial.timing_loop.time.monotonic", lambda: next(passing) * 0.5)
    measured = side("submission", Script([1.3], prepared_ms=0.9), itertools.count(), empty, 1.0)
    assert 20 < int(measured.failed.fault.finding.message.split(" in ")[-1].split()[0]) < 50


def test_a_side_whose_work_goes_on_has_samples_all_the_same():
    empty = call_overhead.measured(Script([0.3], prepared_ms=0.5, lag_ms=0.005), 1.0)
    measured = side("submission", Script([1.3], prepared_ms=0.5, lag_ms=0.2), itertools.count(), empty, 1.0)
    assert measured.failed.fault.finding.code == Code.WORK_AFTER_DONE.value
    assert len(measured.samples.samples_ms) == SEALED_CALLS


def test_the_first_call_stands_apart_and_the_overhead_is_taken_off():
    samples = side("submission", Script([5.1, 1.1]), itertools.count(), HOST, 1.0).samples
    assert samples.first_call_ms == pytest.approx(5.0)
    assert samples.samples_ms == pytest.approx([1.0] * MIN_CALLS)
    assert len(samples.seeds) == MIN_CALLS + 1
    assert (samples.outliers, samples.overhead_host_ms) == (0, None)


@pytest.mark.parametrize(("lacks", "calls"), [(0, MIN_CALLS), (15, MIN_CALLS), (33, 33), (1000, 100)])
def test_single_numbers_are_looked_at_closely_in_as_many_calls_as_it_takes(lacks, calls):
    class Lacking(Script):
        quick = ()

        @property
        def lacks_calls(self):
            return len(self.quick) < lacks + 1

        def run(self, index, seed, *, timeout_s, quick):
            self.quick += (quick,)
            return super().run(index, seed, timeout_s=timeout_s, quick=quick)

    trial_runner = Lacking([1.1])
    samples = side("submission", trial_runner, itertools.count(), HOST, 1.0, closely=True).samples
    assert len(samples.samples_ms) == calls
    assert trial_runner.quick == tuple(number == 0 or number > lacks for number in range(calls + 1))
    assert len(side("reference_before", Lacking([1.1]), itertools.count(), HOST, 1.0).samples.samples_ms) == MIN_CALLS


@pytest.mark.parametrize(("call_s", "calls"), [(0.01, 33), (0.2, 33), (0.5, MIN_CALLS)])
def test_single_numbers_have_their_calls_on_busy_cores_too(monkeypatch, call_s, calls):
    class Lacking(Script):
        lacks_calls = property(lambda self: self.asked < 33)
        asked = -1

        def run(self, index, seed, *, timeout_s, quick):
            self.asked += 1
            return super().run(index, seed, timeout_s=timeout_s, quick=quick)

    passing = itertools.count()
    monkeypatch.setattr("evaluator.judge.trial.timing_loop.time.monotonic", lambda: next(passing) * call_s)
    samples = side("submission", Lacking([1.1]), itertools.count(), HOST, 1.0, closely=True).samples
    assert len(samples.samples_ms) == calls


def test_a_half_of_the_reference_has_fewer_calls():
    at_least = REFERENCE_CALLS
    samples = side("reference_before", Script([5.1, 1.1]), itertools.count(), HOST, 1.0, at_least=at_least).samples
    assert samples.samples_ms == pytest.approx([1.0] * REFERENCE_CALLS)
    wide = HOST._replace(spread_ms=0.0)
    script = Script([1.1, *([1.1, 1.11] * 60)])
    assert len(side("reference_before", script, itertools.count(), wide, 1.0, at_least=at_least).samples.seeds) == 101


def test_a_half_need_not_be_known_as_well_as_a_whole():
    quiet = HOST._replace(spread_ms=0.0)

    def calls(at_least):
        script = Script([1.1, *([1.1, 1.1025] * 60)])
        return len(
            side("reference_before", script, itertools.count(), quiet, 1.0, at_least=at_least).samples.samples_ms
        )

    assert (calls(REFERENCE_CALLS), calls(MIN_CALLS)) == (REFERENCE_CALLS, 100)


def test_fewer_empty_calls_are_made_where_they_take_long(monkeypatch):
    passing = itertools.count()
    monkeypatch.setattr("evaluator.judge.trial.call_overhead.time.monotonic", lambda: next(passing) / 5)

    def made():
        empty = Script([*range(100)])
        call_overhead.measured(empty, 1.0)
        return next(empty._times_ms) - 1

    assert made() == 15
    monkeypatch.setattr("evaluator.judge.trial.call_overhead.time.monotonic", lambda: 0.0)
    assert made() == 30


def test_outliers_are_counted_and_kept():
    samples = side("submission", Script([1.1, 1.1, 9.1, 1.1, 8.1, 1.1]), itertools.count(), HOST, 1.0).samples
    assert samples.outliers == 2
    assert max(samples.samples_ms) == pytest.approx(9.0)
    assert samples.median_ms == pytest.approx(1.0)


def test_calls_with_other_values_are_checked_and_not_quoted():
    class Mixed(Script):
        def run(self, index, seed, *, timeout_s, quick):
            other = seed % 5 == 4
            return Trial(None, None, 99.0 if other else 1.1, copied=False, profile=Profile.LARGE if other else AS_GIVEN)

    samples = side("submission", Mixed([1.1]), itertools.count(), HOST, 1.0).samples
    assert samples.samples_ms == pytest.approx([1.0] * MIN_CALLS)
    assert samples.other_calls == 5
    assert len(samples.seeds) == MIN_CALLS + 1 + 5


def test_what_is_wrong_once_and_right_again_differs_between_calls():
    wrong = Fault(Status.WRONG_RESULT, finding(Code.WRONG_VALUES, "output: 1 of 9 values differ"))

    class Racing(Script):
        def run(self, index, seed, *, timeout_s, schedule=None, quick=False, explain=True, **_):
            self.calls = getattr(self, "calls", 0) + 1
            return Trial(None, wrong if self.calls == 3 else None, 1.1, copied=False)

    failed = side("submission", Racing([1.1]), itertools.count(), HOST, 1.0).failed
    assert failed.fault.status is Status.WRONG_RESULT
    assert failed.fault.finding.code == Code.DIFFERS.value
    assert "identical calls differ" in failed.fault.finding.message


def test_what_stays_wrong_is_wrong():
    wrong = Fault(Status.WRONG_RESULT, finding(Code.WRONG_VALUES, "output: 1 of 9 values differ"))

    class Wrong(Script):
        def run(self, index, seed, *, timeout_s, schedule=None, quick=False, explain=True, **_):
            return Trial(None, wrong, 1.1, copied=False)

    assert side("submission", Wrong([1.1]), itertools.count(), HOST, 1.0).failed.fault == wrong


def calls_until_enough(step_ms, empty):
    """How many calls a side takes whose times alternate by that much."""
    seen = {} if empty.quiet_ms is None else {"prepared_ms": 0.5, "lag_ms": 0.0, "host_ms": 0.1}
    script = Script([1.1, *([1.1, 1.1 + step_ms] * 60)], **seen)
    return len(side("submission", script, itertools.count(), empty, 1.0).samples.samples_ms)


def test_more_calls_are_made_where_they_tell_more():
    quiet = HOST._replace(spread_ms=0.0)
    assert calls_until_enough(0.0005, quiet) == MIN_CALLS  # less than a 500th of the median
    assert calls_until_enough(0.01, quiet) == 100


def test_no_calls_are_made_for_what_the_clock_cannot_tell():
    assert calls_until_enough(0.01, HOST._replace(spread_ms=0.2)) == MIN_CALLS
    assert calls_until_enough(0.09, HOST._replace(spread_ms=0.2)) == MIN_CALLS
    assert calls_until_enough(0.11, HOST._replace(spread_ms=0.2)) == 100
    sealed = HOST._replace(spread_ms=0.001, quiet_ms=1.0, lag_ms=0.01, host_ms=0.1)
    assert calls_until_enough(0.007, sealed) == SEALED_CALLS  # 15 us of error stand in every interval
    assert calls_until_enough(0.012, sealed) == 100


def test_a_forward_that_waits_for_the_gpu_is_not_timed_in_windows(monkeypatch):
    monkeypatch.setattr(timing_loop, "windows_of", lambda *_, **__: pytest.fail("a window was made"))
    empty = call_overhead.measured(Script([0.3], prepared_ms=0.5, host_ms=0.1), 1.0)._replace(spot=SpotRule(0.01))
    waiting = side("submission", Script([1.3], prepared_ms=0.5, host_ms=None), itertools.count(), empty, 1.0)
    assert waiting.samples.waits_for_gpu
    assert (waiting.samples.host_ms, waiting.samples.windows) == (None, None)
    on_the_host = side("submission", Script([1.3]), itertools.count(), HOST, 1.0)
    assert not on_the_host.samples.waits_for_gpu


class Windowed(Script):
    """Has windows of up to `window_calls` calls; the host needs 0.2 ms, and 0.003 ms for each call, or 1 ms more."""

    def __init__(self, window_calls, more_ms=(0.0,)):
        super().__init__([0.3], prepared_ms=0.5, host_ms=0.1)
        self.window_calls, self.asked, self._more_ms = window_calls, [], itertools.cycle(more_ms)

    def time_empty_windows(self, calls, count, *, timeout_s):
        self.asked.append(calls)
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
    ("call_ms", "seen", "window_calls", "at_least", "calls"),
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
def test_a_side_with_windows_makes_few_single_calls(monkeypatch, call_ms, seen, window_calls, at_least, calls):
    monkeypatch.setattr(timing_loop, "windows_of", lambda *_, **__: WindowSide(None, None, []))
    empty = call_overhead.measured(Script([0.3], prepared_ms=0.5, host_ms=0.1), 1.0)._replace(spot=SpotRule(0.01))

    class Short(Script):
        def run(self, index, seed, *, timeout_s, quick):
            return super().run(index, seed, timeout_s=timeout_s, quick=quick)._replace(**seen)

    script = Short([0.3 + call_ms], prepared_ms=0.5, host_ms=0.1)
    script.window_calls = window_calls
    samples = side("submission", script, itertools.count(), empty, 1.0, at_least=at_least).samples
    assert len(samples.samples_ms) == calls


@pytest.mark.parametrize(("missing", "calls"), [(0, 8), (15, 15), (30, MIN_CALLS)])
def test_single_calls_continue_while_the_precision_check_has_too_few_errors(missing, calls):
    class Lacking(Script):
        made = 0

        @property
        def lacks_errors(self):
            return self.made <= missing

        def run(self, *args, **how):
            self.made += 1
            return super().run(*args, **how)

    samples = side("submission", Lacking([5.1]), itertools.count(), HOST, 1.0, usual_ms=0.5).samples
    assert len(samples.samples_ms) == calls


@pytest.mark.parametrize(("usual_ms", "calls"), [(0.9, 8), (1.1, MIN_CALLS), (0.0, 8)])
def test_a_clear_loser_makes_few_single_calls(usual_ms, calls):
    samples = side("submission", Script([5.1]), itertools.count(), HOST, 1.0, usual_ms=usual_ms).samples
    assert len(samples.samples_ms) == calls


def test_a_clear_loser_that_scatters_makes_more(monkeypatch):
    monkeypatch.setattr("evaluator.judge.trial.timing_loop.time.monotonic", lambda: 0.0)
    script = Script([5.1, *[5.1, 7.1] * 200])
    assert len(side("submission", script, itertools.count(), HOST, 1.0, usual_ms=0.5).samples.samples_ms) > 20


def test_the_clocks_of_a_side_are_looked_at_between_calls_and_passed_on_to_windows(monkeypatch):
    passed = []
    monkeypatch.setattr(
        timing_loop, "windows_of", lambda *_, watch, **__: passed.append(watch) or WindowSide(None, None, [])
    )
    empty = call_overhead.measured(Script([0.3], prepared_ms=0.5, host_ms=0.1), 1.0)._replace(spot=SpotRule(0.01))
    watch = ClockWatch(lambda: ClockLook(1980, 40, ()), start_c=39)
    script = Script([1.3], prepared_ms=0.5, host_ms=0.1)
    samples = side("submission", script, itertools.count(), empty, 1.0, watch=watch).samples
    assert samples.clocks == Clocks(sm_mhz=[1980] * (len(samples.seeds) // 5), start_c=39)
    assert len(samples.clocks.sm_mhz) == 2
    assert passed == [watch]


def test_a_side_goes_on_in_the_runner_of_earlier_calls():
    """Its calls are numbered on, its first call is no sample, and the card has the runner's own first call."""
    indices = []

    class Numbered(Script):
        def run(self, index, seed, **options):
            indices.append(index)
            return super().run(index, seed, **options)

    measured = side("submission", Numbered([9.0, 1.1]), itertools.count(), HOST, 1.0, index=13, first_call_ms=5.1)
    assert indices == list(range(13, 13 + MIN_CALLS + 1))
    assert measured.samples.first_call_ms == pytest.approx(5.0)
    assert max(measured.samples.samples_ms) == pytest.approx(1.0)


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
    class Windowing:
        def __init__(self, trial_runner):
            pass

        def run(self, index, seeds, *, timeout_s):
            assert (index, len(seeds)) == (1, 8)
            return window

    monkeypatch.setattr(timing_loop, "WindowRunner", Windowing)
    script = Script([9.0, 1.0, 3.0, 2.0])
    script.has_own_values = lambda _: True
    measured_ms = timing_loop.probe(script, itertools.count(), HOST, None if window is None else HALF, 1.0)
    assert measured_ms == (None if probe_ms is None else pytest.approx(probe_ms))


def test_a_probe_of_a_reference_that_fails_measures_nothing():
    class Broken(Script):
        def run(self, index, seed, **_):
            return Trial(None, BROKEN if index == 2 else None, 1.0, copied=False)

    assert timing_loop.probe(Broken([1.0]), itertools.count(), HOST, None, 1.0) is None
