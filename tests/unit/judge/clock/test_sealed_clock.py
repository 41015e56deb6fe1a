"""Conversation and queue of the sealed clock, with a GPU on the host."""

import pytest

from evaluator.findings import Code, finding
from evaluator.judge.clock import sealed_clock
from evaluator.protocol.frames import Done, Queued, Scalar, WindowDone
from evaluator.records import Fault, Status
from tests.unit.judge.clock.host_gpu import ask, ask_window

QUEUED = Queued(index=3)


def done(token=77, index=3):
    return Done(index=index, token=token, outputs=Scalar(value=None))


def dones(*tokens):
    return WindowDone(calls=[done(token) for token in tokens])


def refused(answer):
    """Return the fault for an answer of this type out of place."""
    message = f"the runner sent an unexpected {type(answer).__name__}"
    return Fault(Status.REJECTED, finding(Code.MALFORMED_FRAME, message))


def test_a_call_is_asked_for_while_the_hold_stands_and_has_the_clocks_times(clock_of):
    clock, order, _ = clock_of(QUEUED, done())
    answer = ask(clock)
    assert (answer.done, answer.elapsed_ms, answer.prepared_ms) == (done(), 1.0, 1.0)
    assert answer.host_ms >= 0
    assert answer.lag_ms is not None
    assert order.index("asked for 1") < order.index("held")


@pytest.mark.parametrize(
    "frames",
    [
        # Answers that could be sent before the question was read.
        (QUEUED, done(token=76)),
        (QUEUED, done(token=0)),
        (QUEUED, done(index=2)),
        (done(),),  # before the word that all is queued
        (Queued(index=2), done()),
    ],
)
def test_another_answer_ends_the_runner(clock_of, frames):
    clock, order, _ = clock_of(*frames)
    assert ask(clock) == refused(frames[-1] if frames[0] == QUEUED else frames[0])
    assert order[-1] == "ended"


@pytest.mark.parametrize("was_queued", [True, False])
def test_work_that_is_not_queued_when_the_hold_ends_has_no_host_time(clock_of, was_queued):
    clock, _, _ = clock_of(QUEUED, done(), was_queued=was_queued)
    assert (ask(clock).host_ms is None) is not was_queued


def test_a_question_with_a_seed_that_matters_is_asked_when_the_gate_is_open(clock_of):
    clock, order, _ = clock_of(QUEUED, done())
    assert ask(clock, asks_late=True).done == done()
    assert order[-1] == "asked for 1"
    assert "held" not in order


def test_a_gate_that_never_opens_ends_the_runner_and_asks_nothing(clock_of):
    clock, order, _ = clock_of(opens=False)
    assert ask(clock, asks_late=True).finding.code == Code.NOT_QUIET.value
    assert order[-1] == "ended"
    assert "asked for 1" not in order


@pytest.mark.parametrize("was_queued", [True, False])
def test_all_calls_of_a_window_are_asked_for_while_the_hold_stands(clock_of, was_queued):
    clock, order, _ = clock_of(QUEUED, dones(77, 78, 79), was_queued=was_queued)
    window = ask_window(clock, 77, 78, 79)
    assert [call.done.token for call in window.calls] == [77, 78, 79]
    assert (window.elapsed_ms, window.was_queued) == (1.0, was_queued)
    assert order[-2:] == ["asked for 3", "held"]


@pytest.mark.parametrize("answer", [dones(77, 78), dones(77, 79, 78), dones(77, 78, 79, 80), done()])
def test_an_answer_to_other_calls_than_the_windows_ends_the_runner(clock_of, answer):
    clock, order, _ = clock_of(QUEUED, answer)
    assert ask_window(clock, 77, 78, 79) == refused(answer)
    assert order[-1] == "ended"


def test_the_host_time_of_a_window_ends_when_all_calls_are_queued(clock_of, monkeypatch):
    clock, _, _ = clock_of(QUEUED, dones(77, 78, 79))
    ticks = iter(range(0, 1_000_000_000, 1_500_000))
    monkeypatch.setattr(sealed_clock.time, "perf_counter_ns", lambda: next(ticks))
    assert ask_window(clock, 77, 78, 79).host_ms == 1.5
