"""What a runner that does not play along leads to, told from a puppet's answers."""

import contextlib
import functools
import socket
import threading
from types import SimpleNamespace

import pytest

from evaluator.compile.builder import BuildResult
from evaluator.deadline import Deadline
from evaluator.findings import Code, finding
from evaluator.judge.runners import runner_client
from evaluator.judge.runners.build_service import BuildBudget, BuildService
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.judge.runners.runner_faults import Stage
from evaluator.protocol.frames import (
    BuildRequest,
    Channel,
    Closed,
    DeadlinePassed,
    Done,
    Items,
    Load,
    Loaded,
    Raised,
    Scalar,
    ToRunner,
)
from evaluator.records import BuildUnit, Status
from evaluator.sandbox.confined_process import ExitInfo
from evaluator.sandbox.time_limit import CpuTime


class Runner:
    """A runner that freezes as it is told to, and whose other end of the socket is `hostile`."""

    def __init__(self, *, stops=()):
        self.socket, self.hostile = socket.socketpair()
        self.did = []
        self._stops = iter(stops)

    def freeze(self):
        self.did.append("freeze")
        return next(self._stops, False)

    def thaw(self):
        self.did.append("thaw")

    def kill(self):
        self.socket.close()
        self.hostile.close()


def test_a_runner_that_stops_at_last_is_right():
    runner = Runner(stops=[False, False, True])
    with RunnerClient(runner, None) as talk:
        assert talk.stop() is None
        assert talk.stop() is None
    assert runner.did == ["freeze", "thaw", "freeze", "thaw", "freeze"]


def test_a_runner_that_never_stops_is_at_fault_and_not_this_machine(monkeypatch):
    monkeypatch.setattr(runner_client, "_STOP_S", 0.05)
    runner = Runner()
    with RunnerClient(runner, None) as talk:
        fault = talk.stop()
    assert (fault.status, fault.finding.code) == (Status.RUNTIME_ERROR, Code.NOT_STOPPED.value)
    assert runner.did[-1] == "freeze"  # It is not let go of once more.


def test_a_farewell_waits_for_the_runners_output_and_not_for_its_exit(monkeypatch):
    """The exit takes a tenth of a second on a GPU, and the kill that follows needs none."""
    monkeypatch.setattr(runner_client, "_FAREWELL_S", 60.0)
    runner, did = Runner(), []
    runner.poll_exit = lambda: None

    def flush():
        did.append(runner.hostile.recv(1))
        runner.hostile.shutdown(socket.SHUT_RDWR)

    flushing = threading.Thread(target=flush)
    flushing.start()
    RunnerClient(runner, None).farewell()
    flushing.join()
    assert did == [b""]
    runner.kill()


@pytest.mark.parametrize("is_dead", [True, False])
def test_a_farewell_to_a_killed_runner_reads_no_closed_socket(monkeypatch, is_dead):
    """The clock of a GPU kills a runner whose call failed; another thread may kill a runner during the farewell."""
    runner, waits, readable = Runner(), [], Channel.readable

    def after_the_kill(channel, within_s):
        waits.append(within_s)
        runner.socket.close()
        return readable(channel, within_s)

    monkeypatch.setattr(Channel, "readable", after_the_kill)
    killed = ExitInfo(exit_code=None, signal="SIGKILL", out_of_memory=False, by_judge=True)
    runner.poll_exit = lambda: killed if is_dead else None
    RunnerClient(runner, None).farewell()
    assert len(waits) == (0 if is_dead else 1)
    runner.kill()


def test_the_judge_works_while_a_runner_loads():
    runner, done = Runner(), []

    def meanwhile():
        channel = Channel(runner.hostile, receives=ToRunner)
        done.append(channel.receive(60).submission)
        channel.send(Loaded(), timeout_s=60)

    sizes = {"input_bytes": 0, "output_bytes": 0, "copy_bytes": 0}
    frame = Load(submission="x", model="", entries=["ModelNew"], device="cpu", library=False, threads=1, **sizes)
    with RunnerClient(runner, None) as talk:
        assert talk.load(frame, (), timeout_s=60.0, meanwhile=meanwhile) is None
    assert done == ["x"]


class Builder:
    """Refuses everything, and counts."""

    asked = 0

    def build(self, request):
        self.asked += 1
        unit = BuildUnit(name=request.name, key="0" * 64, ok=False, cached=False, wall_s=0.0, diagnostics=[], log="")
        return BuildResult(unit, None, finding(Code.COMPILE_FAILED, "no"))


@pytest.mark.parametrize("count", [64, 100_000])
def test_a_flood_of_build_requests_ends(count):
    """A runner asks for builds, reads every reply, and says then that it is loaded."""
    runner, builder = Runner(), Builder()

    def act():
        channel = Channel(runner.hostile, receives=ToRunner)
        with contextlib.suppress(OSError, Closed):
            for _ in range(count):
                channel.send(BuildRequest(name="x"), timeout_s=60)
                channel.receive(60)
            channel.send(Loaded(), timeout_s=60)

    with RunnerClient(runner, BuildService(builder, BuildBudget(60.0))) as talk:
        actor = threading.Thread(target=act)
        actor.start()
        answer = talk.answer(Stage.IMPORT, 60.0)
    actor.join()
    assert builder.asked == 64
    if count == 64:
        assert isinstance(answer, Loaded)
    else:
        assert (answer.status, answer.finding.code) == (Status.REJECTED, Code.TOO_MANY_BUILDS.value)


@pytest.mark.parametrize(("ran_out", "code"), [(True, Code.OUT_OF_MEMORY), (False, Code.RUNNER_DIED)])
def test_a_runner_that_the_kernel_killed_for_its_memory_ran_out_of_it(ran_out, code):
    runner = Runner()
    runner.wait_exit = lambda _: ExitInfo(exit_code=None, signal="SIGKILL", out_of_memory=ran_out, by_judge=False)
    with RunnerClient(runner, None) as talk:
        runner.hostile.close()
        fault = talk.answer(Stage.CALL, 60.0)
    assert (fault.status, fault.finding.code) == (Status.RUNTIME_ERROR, code.value)
    assert fault.finding.details == {"stage": "CALL", "signal": "SIGKILL"}


class Clocked:
    """A channel on a clock of its own, that `answered` sets to work."""

    now_s = 0.0

    def close(self):
        pass

    def answered(self, monkeypatch, stage, build_service=None, cpu_share=None):
        """Return the answer of its runner within 10 s: of CPU time, where it has `cpu_share` of a core."""
        runner = Runner()
        runner.cpu_time = lambda: CpuTime(self.now_s * cpu_share, {1: self.now_s * cpu_share})
        monkeypatch.setattr(runner_client, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(runner_client, "Channel", lambda *_, **__: self)
        with RunnerClient(runner, build_service) as talk:
            talk.under(Deadline, is_submission=True, in_cpu_time=cpu_share is not None)
            return talk.answer(stage, 10.0)


class Unread(Clocked):
    """A runner that asks for builds, lets each answer lie for `each_s`, and is loaded after three if it reads them."""

    def __init__(self, each_s):
        self.each_s, self.sent = each_s, 0

    def receive(self, timeout_s):
        return Loaded() if self.each_s < 1.0 and self.sent == 3 else BuildRequest(name="x")

    def send(self, frame, descriptors=(), timeout_s=None):
        self.sent += 1
        self.now_s += max(min(self.each_s, timeout_s), 0.0)
        if self.each_s > timeout_s:
            raise DeadlinePassed


@pytest.mark.parametrize(("each_s", "took_s", "code"), [(4.0, 10.0, Code.TIMED_OUT), (0.5, 1.5, None)])
def test_answers_that_nobody_reads_are_on_the_runners_time(monkeypatch, each_s, took_s, code):
    """J6: each was waited for as long as the whole stage may take."""
    channel = Unread(each_s)
    answer = channel.answered(monkeypatch, Stage.IMPORT, BuildService(Builder(), BuildBudget(60.0, lambda: 0.0)))
    assert (channel.sent, channel.now_s) == (3, took_s)
    assert answer == Loaded() if code is None else (answer.status, answer.finding.code) == (Status.TIMEOUT, code.value)


class Starved(Clocked):
    """A runner that computes for 6 s of CPU time, and gets `share` of the wall time."""

    def __init__(self, share):
        self.share = share

    def receive(self, timeout_s):
        left_s = 6.0 / self.share - self.now_s
        self.now_s += min(timeout_s, left_s)
        if timeout_s < left_s:
            raise DeadlinePassed
        return Loaded()


@pytest.mark.parametrize(
    ("share", "in_cpu_time", "is_right"), [(1.0, False, True), (0.25, True, True), (0.25, False, False)]
)
def test_a_limit_in_cpu_time_does_not_depend_on_neighbours(monkeypatch, share, in_cpu_time, is_right):
    """89_cumsum alone: 6 s a call. Beside another job it took longer than the limit of 10 s."""
    answer = Starved(share).answered(monkeypatch, Stage.CALL, cpu_share=share if in_cpu_time else None)
    assert isinstance(answer, Loaded) is is_right


def _around(inner, _):
    return Items(is_tuple=True, items=[inner])


TOO_WIDE = Items(is_tuple=False, items=[Items(is_tuple=False, items=[Scalar(value=None)] * 4095)] * 9)
TOO_DEEP = functools.reduce(_around, range(40), Scalar(value=1))


@pytest.mark.parametrize("outputs", [TOO_WIDE, TOO_DEEP], ids=["wide", "deep"])
def test_an_answer_of_too_many_values_is_no_proper_frame(outputs):
    runner = Runner()
    with RunnerClient(runner, None) as talk:
        channel = Channel(runner.hostile, receives=ToRunner)
        teller = threading.Thread(target=channel.send, args=(Done(index=0, outputs=outputs),))
        teller.start()
        fault = talk.answer(Stage.CALL, 60.0)
        teller.join()
    assert (fault.status, fault.finding.code) == (Status.REJECTED, Code.MALFORMED_FRAME.value)


def test_a_long_line_of_a_message_is_not_the_whole_card():
    runner = Runner()
    with RunnerClient(runner, None) as talk:
        Channel(runner.hostile, receives=ToRunner).send(Raised("ValueError", "x" * 60_000), timeout_s=60)
        fault = talk.answer(Stage.CALL, 60.0)
    assert fault.finding.code == Code.FORWARD_FAILED.value
    assert len(fault.finding.message) < 5000
