"""Windows of a side on the host, with a runner that answers from rules."""

import itertools

import pytest

from evaluator.findings import Code, finding
from evaluator.judge.trial import host_window_loop
from evaluator.judge.trial.host_window_loop import Handshake, handshake, host_windows_of
from evaluator.judge.trial.trial_runner import Trial
from evaluator.judge.trial.window_runner import ReleasedTrials
from evaluator.records import Fault, Status

EMPTY = Handshake(call_ms=0.008, error_ms=0.0005)
SINGLE_MS = [0.1, 0.3]
WRONG = Fault(Status.WRONG_RESULT, finding(Code.WRONG_VALUES, "wrong"))


class Rules:
    """A runner whose released calls take 8 us and `call_ms`, and an interruption."""

    releases_calls = True

    def __init__(self, call_ms=0.005, most=16, wrong=None, watched=True, disturbed=lambda window: False):
        self.call_ms, self.wrong, self.watched, self.disturbed = call_ms, wrong, watched, disturbed
        self.window_calls = most
        self.asked: list[int] = []
        self.bare: list[bool] = []

    def has_own_values(self, seed):
        return seed % 3 != 0

    def times_ms(self, calls, extra_ms):
        if self.disturbed(len(self.asked) + len(self.bare)):
            return []
        return [3.0, *[0.008 + extra_ms] * (calls - 2)]

    def run_released(self, index, seeds, *, timeout_s):
        self.asked.append(len(seeds))
        assert all(seed % 3 for seed in seeds)
        fault = WRONG if len(self.asked) == self.wrong else None
        trials = [Trial(None, fault, 0.0, copied=False)]
        return ReleasedTrials(trials, fault, self.times_ms(len(seeds), self.call_ms), self.watched)

    def time_empty_released(self, calls, *, bare, timeout_s):
        self.bare.append(bare)
        return self.times_ms(calls, -0.001 if bare else 0.0)


@pytest.fixture
def side(monkeypatch):
    monkeypatch.setattr(host_window_loop, "WindowRunner", lambda rules: rules)

    def made(rules, *, single_ms=SINGLE_MS, single_error_ms=0.2):
        numbers = itertools.count(1)
        return host_windows_of(rules, numbers, 20, single_ms, EMPTY, 1.0, single_error_ms=single_error_ms)

    return made


def test_a_call_takes_the_median_of_a_window_less_the_handshake(side):
    rules = Rules()
    windows = side(rules).windows
    assert windows.call_ms == pytest.approx([0.005] * 6)
    assert (windows.clock_error_ms, windows.single_ms) == (EMPTY.error_ms, SINGLE_MS)
    assert all(12 < calls <= 16 for calls in windows.calls)
    assert len(rules.asked) == 1 + len(windows.calls)  # The first window is cold.


@pytest.mark.parametrize(("single_error_ms", "shared"), [(0.194, True), (0.196, False)])
def test_windows_faster_than_single_calls_by_more_than_their_error_shared_work(side, single_error_ms, shared):
    windows = side(Rules(), single_error_ms=single_error_ms).windows
    assert windows.shared_work is shared
    assert (windows.call_ms == SINGLE_MS) is shared


def test_a_time_below_the_handshakes_is_zero(side):
    assert side(Rules(call_ms=-0.002)).windows.call_ms == [0.0] * 12


@pytest.mark.parametrize(
    ("rules", "single_ms", "asked"),
    [(Rules(most=2), SINGLE_MS, 0), (Rules(), [2.1, 3.0], 0), (Rules(watched=False), SINGLE_MS, 1)],
    ids=["too few calls", "long calls", "not watched"],
)
def test_there_are_no_windows(side, rules, single_ms, asked):
    found = side(rules, single_ms=single_ms)
    assert (found.windows, found.failed, len(rules.asked)) == (None, None, asked)


def test_a_busy_machine_has_no_windows(side):
    rules = Rules(disturbed=lambda window: True)
    found = side(rules)
    assert (found.windows, found.failed, len(rules.asked)) == (None, None, 2)
    assert len(found.seeds) == sum(rules.asked)


@pytest.mark.parametrize(("aborted", "has_windows"), [((6,), True), ((4, 6), False)])
def test_windows_are_set_aside_after_the_second_that_is_aborted(side, aborted, has_windows):
    rules = Rules(disturbed=lambda window: window in aborted)
    found = side(rules)
    assert (found.windows is not None) is has_windows
    assert found.failed is None
    assert len(rules.asked) == (8 if has_windows else 6)


def test_a_wrong_output_ends_the_side(side):
    found = side(Rules(wrong=3))
    assert found.windows is None
    assert found.failed.fault is WRONG


def test_the_handshake_has_what_code_of_its_own_could_save_as_its_error(side):
    found = handshake(Rules(), 1.0)
    assert found.call_ms == pytest.approx(0.008)
    assert found.error_ms == pytest.approx(0.001)


def test_there_is_no_handshake_without_windows_or_on_a_busy_machine(side):
    assert handshake(Rules(most=1), 1.0) is None
    assert handshake(Rules(disturbed=lambda window: True), 1.0) is None


@pytest.mark.parametrize(("window_s", "windows", "found"), [(0.3, 7, True), (1.1, 2, False)])
def test_empty_windows_with_large_inputs_take_no_longer_than_those_of_a_side(
    side, monkeypatch, window_s, windows, found
):
    rules = Rules()
    monkeypatch.setattr(host_window_loop.time, "monotonic", lambda: window_s * len(rules.bare))
    assert (handshake(rules, 1.0) is not None) is found
    assert len(rules.bare) == windows
