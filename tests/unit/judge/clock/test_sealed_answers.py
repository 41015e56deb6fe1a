"""Which answers the sealed clock takes for those to its question. Without a GPU: the conversation alone."""

import msgspec
import pytest
import torch

from evaluator.findings import Code, finding
from evaluator.judge.clock import sealed_clock
from evaluator.judge.clock.clock import ClockedCall
from evaluator.judge.clock.clock_kernels import Sampling
from evaluator.judge.clock.sealed_clock import SealedClock
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.protocol.frames import Call, DictItems, Done, Items, Queued, Scalar, WindowDone
from evaluator.records import Fault, Status

QUESTION = Call(
    index=3,
    token=77,
    random_seed=0,
    ticket=5,
    empty=False,
    forked=False,
    schedule=None,
    args=Items(is_tuple=False, items=[]),
    kwargs=DictItems(keys=[], items=[]),
    output_gradients=None,
)


def refused(answer):
    """Return the fault for an answer of this type out of place."""
    return Fault(Status.REJECTED, finding(Code.MALFORMED_FRAME, f"the runner sent an unexpected {answer.__name__}"))


class Conversation:
    """A session whose runner says these frames, one after the other."""

    def __init__(self, *frames):
        self._frames = list(frames)

    def answered(self, within_s):
        return True

    def answer(self, stage, timeout_s):
        return self._frames.pop(0)


def heard(*frames):
    clock = object.__new__(SealedClock)
    clock._session = Conversation(*frames)
    clock._let_go = lambda: None
    clock._watch_the_end = lambda: 0.005
    return clock._converse(QUESTION, 1.0, 1.0)


def test_an_answer_that_holds_the_questions_token_is_one():
    done = Done(index=3, token=77, outputs=Scalar(value=None))
    answer, _, lag_ms = heard(Queued(index=3), done)
    assert (answer, lag_ms) == (done, 0.005)


@pytest.mark.parametrize("changes", [{"token": 76}, {"token": 0}, {"index": 2}])
def test_one_that_could_be_sent_before_the_question_was_read_is_none(changes):
    done = Done(**{"index": 3, "token": 77, "outputs": Scalar(value=None)} | changes)
    assert heard(Queued(index=3), done) == refused(Done)


def test_an_answer_before_the_word_that_all_is_queued_is_none():
    assert heard(Done(index=3, token=77, outputs=Scalar(value=None))) == refused(Done)
    assert heard(Queued(index=2), Done(index=3, token=77, outputs=Scalar(value=None))) == refused(Queued)


class Event:
    def elapsed_time(self, other):
        return 1.0


@pytest.fixture
def clock(monkeypatch):
    """A clock without a GPU that says in which order it does what."""
    monkeypatch.setattr(sealed_clock.driver, "reset_persisting_l2", lambda: None)
    monkeypatch.setattr(sealed_clock.torch.cuda, "synchronize", lambda: None)
    full = torch.full

    def on_the_host(*sizes, device, **rest):
        return full(*sizes, **rest)

    monkeypatch.setattr(sealed_clock.torch, "full", on_the_host)
    made = object.__new__(SealedClock)
    done = Done(index=3, token=77, outputs=Scalar(value=None))
    made._session = Conversation(Queued(index=3), done)
    made.order = []
    made._session.send = lambda *_: made.order.append("asked")
    made._session.answered = lambda _: made.order.append("is queued") or True
    made._queue = lambda *_, tells_when_open: made.order.append(f"queued, {tells_when_open=}")
    made._let_go = lambda: made.order.append("let go")
    made._opened = lambda: made.order.append("open") or True
    made._watch_the_end = lambda: None
    made._settled = lambda: True
    made._sampling, made._ticket, made._events = Sampling({}, "cpu"), 4, [Event()] * 4
    return made


def in_window(clock, *answers, was_queued=True):
    """Make a window of three calls; the runner's answers to the calls are `answers`."""
    clock._session = RunnerClient.__new__(RunnerClient)
    clock._session.__dict__["answer"] = Conversation(Queued(index=3), *answers).answer
    clock._session.__dict__["send"] = lambda frame, *_: clock.order.append(f"asked for {len(frame.calls)}")
    clock._session.__dict__["answered"] = lambda _: was_queued
    clock._abandon = lambda: clock.order.append("ended")
    frames = [msgspec.structs.replace(QUESTION, token=token) for token in (77, 78, 79)]
    return clock.window(frames, lambda: None, {}, timeout_s=1.0)


def dones(*tokens):
    return WindowDone(calls=[Done(index=3, token=token, outputs=Scalar(value=None)) for token in tokens])


@pytest.mark.parametrize("was_queued", [True, False])
def test_all_calls_of_a_window_are_asked_for_while_the_hold_stands(clock, was_queued):
    window = in_window(clock, dones(77, 78, 79), was_queued=was_queued)
    assert [call.done.token for call in window.calls] == [77, 78, 79]
    assert (window.elapsed_ms, window.was_queued) == (1.0, was_queued)
    assert clock.order == ["queued, tells_when_open=False", "asked for 3", "let go"]


@pytest.mark.parametrize(
    "answer", [dones(77, 78), dones(77, 79, 78), dones(77, 78, 79, 80), dones(77, 78, 79).calls[0]]
)
def test_an_answer_to_other_calls_ends_the_runner(clock, answer):
    assert in_window(clock, answer) == refused(type(answer))
    assert clock.order[-1] == "ended"


def asked(clock, *, asks_late):
    return clock.call(QUESTION, lambda: None, {}, timeout_s=1.0, queued_timeout_s=1.0, asks_late=asks_late)


def test_a_question_without_a_secret_is_asked_while_the_hold_stands(clock):
    assert isinstance(asked(clock, asks_late=False), ClockedCall)
    assert clock.order == ["queued, tells_when_open=False", "asked", "is queued", "let go"]


def test_a_question_with_a_seed_that_matters_is_asked_when_the_gate_is_open(clock):
    assert isinstance(asked(clock, asks_late=True), ClockedCall)
    assert clock.order == ["queued, tells_when_open=True", "open", "asked"]


def test_a_gate_that_never_opens_ends_the_runner_and_asks_nothing(clock):
    clock._opened = lambda: False
    clock._abandon = lambda: clock.order.append("ended")
    assert asked(clock, asks_late=True).finding.code == Code.NOT_QUIET.value
    assert clock.order == ["queued, tells_when_open=True", "ended"]


def test_work_that_is_not_queued_when_the_hold_ends_has_no_host_time(clock):
    assert asked(clock, asks_late=False).host_ms >= 0
    clock._session = Conversation(Queued(index=3), Done(index=3, token=77, outputs=Scalar(value=None)))
    clock._session.send = lambda *_: None
    clock._session.answered = lambda _: False
    assert asked(clock, asks_late=False).host_ms is None


def test_the_host_time_of_a_window_ends_when_all_calls_are_queued(clock, monkeypatch):
    ticks = iter(range(0, 1_000_000_000, 1_500_000))
    monkeypatch.setattr(sealed_clock.time, "perf_counter_ns", lambda: next(ticks))
    assert in_window(clock, dones(77, 78, 79)).host_ms == 1.5
