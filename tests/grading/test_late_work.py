"""Work after `done` on the host: the judge compares the output of a stopped runner, and no later message.

How long after `done` a runner is stopped depends on the machine, so nothing here goes by the clock. The submission
leaves a process behind that waits for a signal. The signal is given when the judge's clock has stopped: in the shared
memory of the inputs, which only that process reads just then.
"""

import time

import pytest

from evaluator.findings import Code
from evaluator.judge.answer import answer_judge
from evaluator.judge.clock.host_clock import HostClock
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.records import Status
from tests.grading.harness import module

SIGNAL, WRITTEN = 12345.0, 54321.0

WRITE_LATE = (
    "import os, threading, time",
    "def write(x, y, right):",
    f"    while x.view(-1)[0] != {SIGNAL}: time.sleep(0.001)",
    "    y.copy_(right)",
    f"    x.view(-1)[0] = {WRITTEN}",
)
BEGIN = ("right = torch.relu(x)", "y = torch.empty_like(x)")
LEFT = {
    "a thread": module(
        *WRITE_LATE,
        forward=[*BEGIN, "threading.Thread(target=write, args=(x, y, right), daemon=True).start()", "return y"],
    ),
    "a process": module(
        *WRITE_LATE,
        forward=[*BEGIN, "if os.fork() == 0:", "    write(x, y, right)", "    os._exit(0)", "return y"],
    ),
}
HONEST = module(
    "import threading",
    forward=[
        *BEGIN,
        "worker = threading.Thread(target=y.copy_, args=(right,))",
        "worker.start()",
        "worker.join()",
        "return y",
    ],
)


@pytest.fixture
def signalled(monkeypatch):
    """Give the signal after the first call; say whether an answer came within the time given."""
    answers = []

    def install(at_most_s):
        original = HostClock.call

        def call(self, frame, write, outline, **limits):
            answer = original(self, frame, write, outline, **limits)
            if not answers:
                ((_, _, x),) = write.__self__.pairs
                x.view(-1)[0] = SIGNAL
                until_s = time.monotonic() + at_most_s
                while x.view(-1)[0] != WRITTEN and time.monotonic() < until_s:
                    time.sleep(0.001)
                answers.append(x.view(-1)[0].item() == WRITTEN)
                write()  # the input as it was, for the judge looks whether it was changed
            return answer

        monkeypatch.setattr(HostClock, "call", call)
        return answers

    return install


@pytest.mark.parametrize("source", LEFT.values(), ids=LEFT)
def test_what_is_written_after_done_is_not_compared(judged, signalled, source):
    answers = signalled(at_most_s=0.5)
    outcome = judged(source)
    assert answers == [False]
    assert outcome.status is Status.WRONG_RESULT
    assert not outcome.checks[0].ok


@pytest.mark.parametrize("source", LEFT.values(), ids=LEFT)
def test_it_would_be_if_the_runner_were_not_stopped(judged, signalled, source, monkeypatch):
    """Else the test above would show nothing."""
    monkeypatch.setattr(RunnerClient, "stop", lambda self: None)
    monkeypatch.setattr(answer_judge, "late_on_host", lambda *_: None)
    answers = signalled(at_most_s=60.0)
    outcome = judged(source)
    assert answers == [True]
    assert outcome.checks[0].ok


LATE = module(
    "import threading, time",
    "def finish(x, y, right, first):",
    f"    while x.view(-1)[0] != {SIGNAL}: time.sleep(0.001)",
    "    y[first:] = right[first:]",
    f"    x.view(-1)[0] = {WRITTEN}",
    forward=[
        "right = torch.relu(x)",
        "y = torch.empty_like(x)",
        "first = len(x) * 7 // 8",
        "y[:first] = right[:first]",
        "worker = threading.Thread(target=finish, args=(x, y, right, first))",
        "worker.start()",
        "return y",
    ],
)
AT_ONCE = LATE.replace(f"    while x.view(-1)[0] != {SIGNAL}: time.sleep(0.001)\n", "")
AT_ONCE = AT_ONCE.replace(f"    x.view(-1)[0] = {WRITTEN}\n", "").replace("return y", "worker.join(); return y")


@pytest.fixture
def signalled_before_the_stop(monkeypatch):
    """Give the signal between `done` and the stop of each call, and stop the runner when the rest is written."""
    call, stop = HostClock.call, RunnerClient.stop
    inputs = []

    def called(self, frame, write, outline, **limits):
        inputs[:] = [x for _, _, x in write.__self__.pairs]
        try:
            return call(self, frame, write, outline, **limits)
        finally:
            inputs.clear()

    def stopped(self):
        if "def finish" in self._source:  # and not a runner of the reference
            for first in (x.view(-1)[:1] for x in inputs):
                value = first.item()
                first.fill_(SIGNAL)
                wait_for_value(first, WRITTEN)
                first.fill_(value)
        return stop(self)

    monkeypatch.setattr(HostClock, "call", called)
    monkeypatch.setattr(RunnerClient, "stop", stopped)


def wait_for_value(tensor, value):
    until_s = time.monotonic() + 60.0
    while tensor != value:
        assert time.monotonic() < until_s
        time.sleep(0.001)


@pytest.mark.usefixtures("signalled_before_the_stop")
def test_what_is_finished_between_done_and_the_stop_is_seen(judged):
    """A runner that is stopped so late has all of its answer there; without a look on `done` it was right."""
    outcome = judged(LATE)
    assert (outcome.status, outcome.reason.code) == (Status.WRONG_RESULT, Code.LATE_OUTPUT.value)


@pytest.mark.usefixtures("signalled_before_the_stop")
def test_it_would_be_right_without_a_look_on_done(judged, monkeypatch):
    """Else the test above would show nothing."""
    monkeypatch.setattr(answer_judge, "late_on_host", lambda *_: None)
    assert judged(LATE).checks[0].ok


def test_what_a_thread_finished_before_done_is_right(judged):
    assert judged(AT_ONCE).status is Status.CORRECT


def test_a_thread_that_is_waited_for_is_as_good_as_any(judged, signalled):
    answers = signalled(at_most_s=0.1)
    assert judged(HONEST).status is Status.CORRECT
    assert answers == [False]
