"""Windows of a side, with a runner that answers from rules instead of a GPU."""

import itertools
import statistics
from types import SimpleNamespace

import pytest

from evaluator.findings import Code, finding
from evaluator.judge.clock.gpu_monitor import ClockWatch
from evaluator.judge.trial import windows
from evaluator.judge.trial.trial import Trial
from evaluator.judge.trial.windows import (
    SpotRule,
    SpotTrials,
    TakenOff,
    WindowHost,
    WindowRunner,
    WindowTrials,
    windows_of,
)
from evaluator.records import Fault, Status, Windows

SINGLE_MS = [0.3005, 0.3000, 0.3010, 0.3005, 0.3005]
TAKEN_OFF = TakenOff(empty_ms=0.2955, spread_ms=0.001)
"""An empty call; a call takes 0.005 ms."""
RULE = SpotRule(constant_ms=0.01)
WRONG = Fault(Status.WRONG_RESULT, finding(Code.WRONG_VALUES, "wrong"))


class Rules:
    """A runner whose windows take an empty call and `call_ms` for each call."""

    def __init__(self, call_ms=0.005, spot_ms=0.005, most=32, queues=lambda calls: True, wrong=None, spot_fault=None):
        self.call_ms, self.spot_ms, self.window_calls = call_ms, spot_ms, most
        self.queues, self.wrong, self.spot_fault = queues, wrong, spot_fault
        self.asked: list[int] = []

    def has_own_values(self, seed):
        return seed % 3 != 0

    def run(self, index, seeds, *, timeout_s):
        self.asked.append(len(seeds))
        assert all(seed % 3 for seed in seeds)
        fault = WRONG if len(self.asked) == self.wrong else None
        trials = [Trial(None, fault, 0.0, copied=False)]
        elapsed_ms = TAKEN_OFF.empty_ms + len(seeds) * (self.call_ms + 1e-9)  # No rounding makes a window faster.
        host_ms = 0.1 + len(seeds) * 0.013
        return WindowTrials(trials, fault, elapsed_ms, self.queues(len(self.asked)), host_ms)

    def spot_check(self, index, seeds, *, timeout_s):
        self.asked.append(-len(seeds))
        spot_ms = self.spot_ms.pop(0) if isinstance(self.spot_ms, list) else self.spot_ms
        return SpotTrials([], self.spot_fault, [0.4, *[0.01 + spot_ms] * (len(seeds) - 1)])


@pytest.fixture
def side(monkeypatch):
    monkeypatch.setattr(windows, "WindowRunner", lambda rules: rules)

    def made(rules, *, single_ms=SINGLE_MS, trusted=False, half=False, spot=RULE, **how):
        seeds, how = itertools.count(1), {"trusted": trusted, "half": half, "spot": spot} | how
        return windows_of(rules, seeds, 20, single_ms, TAKEN_OFF, 1.0, **how)

    return made


def test_a_call_takes_what_a_window_takes_longer_than_an_empty_call(side):
    rules = Rules()
    windows = side(rules).windows
    assert windows.call_ms == pytest.approx([0.005] * 3)
    assert all(24 < calls <= 32 for calls in windows.calls)
    assert windows.single_ms == pytest.approx([each - TAKEN_OFF.empty_ms for each in SINGLE_MS])
    assert 0 < windows.clock_error_ms < 0.0001
    assert windows.spot_ms == pytest.approx([0.005] * 15)
    assert not windows.shared_work


@pytest.mark.parametrize(("call_ms", "shared"), [(0.005, False), (0.0044, False), (0.0043, True), (0.002, True)])
def test_windows_that_are_faster_than_calls_alone_allow_are_not_quoted(side, call_ms, shared):
    windows = side(Rules(call_ms=call_ms)).windows
    assert windows.shared_work is shared
    quoted = windows.single_ms if shared else [call_ms]
    assert statistics.median(windows.call_ms) == pytest.approx(statistics.median(quoted))


@pytest.mark.parametrize(
    ("spot_ms", "shared"),
    [
        ([0.009, 0.005], False),  # The lower quartile of all calls counts: not the first check,
        ([0.009, 0.007, 0.006, 0.007], True),  # and not the fastest.
    ],
)
def test_the_calls_of_all_spot_checks_count_where_one_seems_slow(side, spot_ms, shared):
    rules = Rules(spot_ms=list(spot_ms))
    found = side(rules)
    assert found.windows.shared_work is shared
    assert found.windows.spot_ms == pytest.approx([each for each in spot_ms for _ in range(15)])
    assert [asked for asked in rules.asked if asked < 0] == [-16] * len(spot_ms)
    assert len(found.seeds) == sum(abs(asked) for asked in rules.asked)


def test_slow_calls_of_a_spot_check_do_not_count(side):
    class Scattering(Rules):
        def spot_check(self, index, seeds, *, timeout_s):
            found = super().spot_check(index, seeds, timeout_s=timeout_s)
            return found._replace(times_ms=[each + (0.0, 0.004)[n % 3 > 0] for n, each in enumerate(found.times_ms)])

    rules = Scattering()
    assert not side(rules).windows.shared_work
    assert [asked for asked in rules.asked if asked < 0] == [-16]


@pytest.mark.parametrize(("wrong", "compared"), [(None, [7, 8, 9]), (8, [7, 8])])
def test_every_call_of_a_window_is_compared_up_to_the_first_that_fails(wrong, compared):
    """Of either side: a pause of half a millisecond a call makes the next window's calls longer or shorter."""
    asked = []

    def compare(index, *_):
        asked.append(index)
        return Trial(None, WRONG if index == wrong else None, 0.0, copied=False)

    answer = SimpleNamespace(calls=["a", "b", "c"], elapsed_ms=0.3, was_queued=True, host_ms=0.1)
    plan = SimpleNamespace(forget=lambda: None)
    driver = SimpleNamespace(ask_window=lambda *_, timeout_s: (None, answer))
    trial_runner = SimpleNamespace(call_driver=driver, plans=lambda *_: [plan] * 3, compared=compare)
    window = WindowRunner(trial_runner).run(7, [1, 2, 3], timeout_s=1.0)
    assert asked == compared
    assert window.fault is (None if wrong is None else WRONG)


@pytest.mark.parametrize(("call_ms", "checks"), [(0.005, 4), (0.15, 1)])
def test_the_reference_has_spot_checks_and_shares_no_work(side, call_ms, checks):
    rules = Rules(call_ms=call_ms, spot_ms=call_ms + 0.004)
    windows = side(rules, trusted=True, half=True).windows
    assert [asked > 0 for asked in rules.asked] == [True] * 3 + [False] * checks
    assert windows.spot_ms == pytest.approx([call_ms + 0.004] * 15 * checks)
    assert not windows.shared_work


def of_reference(call_ms, spot_ms):
    """The rule beside a reference whose single calls take 5 us longer than calls in windows."""
    return SpotRule(0.01).beside(
        Windows(
            calls=[32] * 6,
            window_ms=[31 * call_ms] * 6,
            clock_error_ms=0.0,
            single_ms=[call_ms + 0.005] * 20,
            spot_ms=[spot_ms] * 60,
        )
    )


def test_the_references_own_excess_is_allowed_up_to_a_limit(side):
    assert SpotRule(0.01).beside(None).reference is None
    for spot_ms, shared in [(0.0052, False), (0.0055, True)]:
        found = side(Rules(call_ms=0.0040, spot_ms=spot_ms), spot=of_reference(0.0040, 0.0048))
        assert found.windows.shared_work is shared
    # Of an excess of 20 us at most 1 us and 5 % of the call count.
    for spot_ms, shared in [(0.0055, False), (0.0058, False), (0.0060, True)]:
        found = side(Rules(call_ms=0.0040, spot_ms=spot_ms), spot=of_reference(0.0040, 0.0240))
        assert found.windows.shared_work is shared


def test_a_reference_that_is_faster_with_warm_inputs_shows_what_a_submission_gains(side):
    """On an H200, a relu that shared its launches took 2.05 us in windows, 2.9 us in spot checks; the reference 2.5."""
    rule = of_reference(0.0033, 0.0025)
    for call_ms, spot_ms, shared in [(0.00205, 0.0029, True), (0.00205, 0.0019, True), (0.0033, 0.0028, False)]:
        assert side(Rules(call_ms=call_ms, spot_ms=spot_ms), spot=rule).windows.shared_work is shared
    # Of a reference that gains 20 us from warm inputs, at most 1 us counts.
    for spot_ms, shared in [(0.0025, False), (0.0027, True)]:
        found = side(Rules(call_ms=0.0030, spot_ms=spot_ms), spot=of_reference(0.0230, 0.0030))
        assert found.windows.shared_work is shared


def test_windows_beside_slow_single_calls_are_not_quoted(side):
    """A submission that delays its single calls by 200 us loses its windows, which would have lost nothing."""
    delayed = [each + 0.2 for each in SINGLE_MS]
    windows = side(Rules(), single_ms=delayed, spot=of_reference(0.005, 0.005)).windows
    assert windows.shared_work
    assert windows.call_ms == windows.single_ms
    assert windows.measured_ms == pytest.approx([0.005] * len(windows.calls))


@pytest.mark.parametrize(("call_ms", "spot_ms", "quoted_ms"), [(0.044, 0.034, 0.044), (0.034, 0.033, 0.04271)])
def test_calls_that_only_windows_show_to_be_faster_are_raised(side, call_ms, spot_ms, quoted_ms):
    single_ms = [TAKEN_OFF.empty_ms + 0.045] * 20
    rules = Rules(call_ms=call_ms, spot_ms=spot_ms)
    windows = side(rules, single_ms=single_ms, spot=of_reference(0.044, 0.034)).windows
    assert statistics.median(windows.call_ms) == pytest.approx(quoted_ms, abs=1e-5)
    assert not windows.shared_work
    was_raised = quoted_ms > call_ms
    assert (windows.clock_error_ms > 0.001) is was_raised
    assert [asked < 0 for asked in rules.asked].count(True) == (4 if was_raised else 1)


def test_a_spot_check_has_no_more_calls_than_the_longest_window(side):
    rules = Rules(queues=lambda n: n > 3)
    windows = side(rules).windows
    assert max(windows.calls) <= 8
    assert [asked for asked in rules.asked if asked < 0] == [-max(windows.calls)]


@pytest.mark.parametrize(
    ("call_ms", "most", "calls"), [(0.1, 32, 32), (0.5, 32, 8), (1.5, 32, 2), (3.0, 32, 0), (0.1, 1, 0)]
)
def test_a_window_is_a_few_milliseconds_long(side, call_ms, most, calls):
    rules = Rules(call_ms=call_ms, spot_ms=call_ms, most=most)
    found = side(rules, single_ms=[TAKEN_OFF.empty_ms + call_ms + jitter for jitter in (0.0, 1e-4, 2e-4)]).windows
    if not calls:
        assert found is None
        assert rules.asked == []
    else:
        assert max(rules.asked) <= calls
        assert max(found.calls) > calls // 2


def test_a_runner_that_does_not_queue_gets_shorter_windows_then_none(side):
    first, few, never = Rules(queues=lambda n: n > 1), Rules(queues=lambda n: n > 3), Rules(queues=lambda n: False)
    assert max(side(first).windows.calls) > 24
    assert max(side(few).windows.calls) <= 8
    assert side(never).windows is None
    assert never.asked[-1] == 2


def test_a_wrong_answer_in_a_window_fails_the_side(side):
    found = side(Rules(wrong=3))
    assert (found.windows, found.failed.fault) == (None, WRONG)
    assert len(found.seeds) > 60
    late = Fault(Status.REJECTED, finding(Code.WORK_AFTER_DONE, "late"))
    found = side(Rules(spot_fault=late))
    assert (found.windows, found.failed.fault) == (None, late)


@pytest.mark.parametrize(
    ("empty_host", "host_ms"), [(None, None), (WindowHost(0.1, 0.002), 0.011), (WindowHost(0.1, 0.02), 0.0)]
)
def test_the_hosts_time_of_a_call_is_that_of_the_window_less_that_of_an_empty_one(side, empty_host, host_ms):
    found = side(Rules(), empty_host=empty_host).windows.host_ms
    assert found == (None if host_ms is None else pytest.approx(host_ms))


def test_the_error_of_windows_is_the_spread_of_empty_calls_and_a_step_of_the_events(side):
    windows = side(Rules(), single_ms=[0.3, 0.301] * 10).windows
    assert windows.clock_error_ms * min(windows.calls) == pytest.approx(TAKEN_OFF.spread_ms + 32e-6)


@pytest.mark.parametrize(
    ("call_ms", "scatter", "half", "count"),
    [
        (0.05, 0.002, False, 3),  # 0.2 % is the spread between processes.
        (0.05, 0.008, False, 6),
        (0.05, 0.008, True, 5),
        (0.05, 0.02, False, 12),
        (0.05, 0.02, True, 10),
        (0.005, 0.015, False, 3),  # 2 % is the spread between processes.
        (0.005, 0.04, False, 12),
        (0.005, 0.04, True, 10),
    ],
)
def test_windows_that_scatter_are_more(side, call_ms, scatter, half, count):
    class Scattering(Rules):
        def run(self, index, seeds, *, timeout_s):
            window = super().run(index, seeds, timeout_s=timeout_s)
            part = 1 + scatter * (1 if len(self.asked) % 2 else -1)
            return window._replace(elapsed_ms=TAKEN_OFF.empty_ms + (window.elapsed_ms - TAKEN_OFF.empty_ms) * part)

    assert len(side(Scattering(call_ms), half=half, spot=None).windows.calls) == count


def test_the_clock_of_the_gpu_is_looked_at_after_each_window(side):
    looks = []
    rules = Rules(queues=lambda calls: calls > 1)
    watch = ClockWatch(lambda: looks.append(len(rules.asked)))
    side(rules, trusted=True, half=True, spot=None, watch=watch)
    assert looks == [1, 2, 3, 4]
