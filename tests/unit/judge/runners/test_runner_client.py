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
from evaluator.findings.submission import ONE_BLOCK
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
    """Refuses everything, and counts; each refusal takes `wall_s` of its own clock."""

    def __init__(self, wall_s=0.0):
        self.asked = 0
        self._wall_s = wall_s

    def now_s(self):
        return self.asked * self._wall_s

    def build(self, request):
        self.asked += 1
        unit = BuildUnit(
            name=request.name, key="0" * 64, ok=False, cached=False, wall_s=self._wall_s, diagnostics=[], log=""
        )
        return BuildResult(unit, None, finding(Code.COMPILE_FAILED, "no"))


@pytest.fixture
def asking():
    """Have a runner ask for `count` builds, read every reply, and say then that it is loaded; gives the answer."""

    def ask(build_service, count):
        runner = Runner()

        def act():
            channel = Channel(runner.hostile, receives=ToRunner)
            with contextlib.suppress(OSError, Closed):
                for _ in range(count):
                    channel.send(BuildRequest(name="x"), timeout_s=60)
                    channel.receive(60)
                channel.send(Loaded(), timeout_s=60)

        with RunnerClient(runner, build_service) as talk:
            actor = threading.Thread(target=act)
            actor.start()
            answer = talk.answer(Stage.IMPORT, 60.0)
        actor.join()
        return answer

    return ask


def test_a_flood_of_build_requests_ends(asking):
    builder = Builder()
    fault = asking(BuildService(builder, BuildBudget(60.0)), 100_000)
    assert (fault.status, fault.finding.code) == (Status.REJECTED, Code.TOO_MANY_BUILDS.value)
    assert builder.asked == 64


def test_as_many_builds_as_a_submission_may_have_are_served(asking):
    builder = Builder()
    assert isinstance(asking(BuildService(builder, BuildBudget(60.0)), 64), Loaded)
    assert builder.asked == 64


def test_builds_that_took_too_long_are_told_of_once(asking):
    builder = Builder(wall_s=0.31)
    build_service = BuildService(builder, BuildBudget(0.6, builder.now_s))
    assert isinstance(asking(build_service, 10), Loaded)
    assert builder.asked == 2
    assert [failure.code for failure in build_service.failures] == [*["B203"] * 2, Code.COMPILER_TIMED_OUT.value]


@pytest.mark.parametrize(("ran_out", "code"), [(True, Code.OUT_OF_MEMORY), (False, Code.RUNNER_DIED)])
def test_a_runner_that_the_kernel_killed_for_its_memory_ran_out_of_it(ran_out, code):
    runner = Runner()
    runner.wait_exit = lambda _: ExitInfo(exit_code=None, signal="SIGKILL", out_of_memory=ran_out, by_judge=False)
    with RunnerClient(runner, None) as talk:
        runner.hostile.close()
        fault = talk.answer(Stage.CALL, 60.0)
    assert (fault.status, fault.finding.code) == (Status.RUNTIME_ERROR, code.value)
    assert fault.finding.details == {"stage": "CALL", "signal": "SIGKILL"}


class Unread:
    """A channel whose other side asks for builds and lets each answer lie for `each_s` of a clock's time."""

    def __init__(self, clock, each_s, last=None):
        self.clock, self.each_s, self.last = clock, each_s, last
        self.sent = 0

    def receive(self, timeout_s):
        if self.last is not None and self.sent == 3:
            return self.last
        return BuildRequest(name="x")

    def send(self, frame, descriptors=(), timeout_s=None):
        self.sent += 1
        if self.each_s > timeout_s:
            self.clock[0] += max(timeout_s, 0.0)
            raise DeadlinePassed
        self.clock[0] += self.each_s

    def close(self):
        pass


@pytest.fixture
def unread(monkeypatch):
    """Let a runner leave its answers unread; gives the fault, how often was answered, and how long that took."""

    def run(each_s, **last):
        clock = [0.0]
        monkeypatch.setattr(runner_client, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        with RunnerClient(Runner(), BuildService(Builder(), BuildBudget(60.0, lambda: 0.0))) as talk:
            talk._channel = channel = Unread(clock, each_s, **last)
            answer = talk.answer(Stage.IMPORT, 10.0)
        return answer, channel.sent, clock[0]

    return run


def test_answers_that_nobody_reads_are_on_the_runners_time(unread):
    """J6: each was waited for as long as the whole stage may take."""
    fault, answered, took_s = unread(4.0)
    assert (fault.status, fault.finding.code) == (Status.TIMEOUT, Code.TIMED_OUT.value)
    assert (answered, took_s) == (3, 10.0)


class Starved:
    """A channel of a runner that computes for 6 s of CPU time, and gets `share` of the wall time of a clock."""

    def __init__(self, clock, share):
        self.clock, self.share = clock, share

    def receive(self, timeout_s):
        left_s = 6.0 / self.share - self.clock[0]
        self.clock[0] += min(timeout_s, left_s)
        if timeout_s < left_s:
            raise DeadlinePassed
        return Loaded()

    def close(self):
        pass


@pytest.mark.parametrize(
    ("share", "in_cpu_time", "is_right"), [(1.0, False, True), (0.25, True, True), (0.25, False, False)]
)
def test_a_limit_in_cpu_time_does_not_depend_on_neighbours(monkeypatch, share, in_cpu_time, is_right):
    """89_cumsum alone: 6 s a call. Beside another job it took longer than the limit of 10 s."""
    clock = [0.0]
    monkeypatch.setattr(runner_client, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    runner = Runner()
    runner.cpu_time = lambda: CpuTime(clock[0] * share, {1: clock[0] * share})
    with RunnerClient(runner, None) as talk:
        talk.under(Deadline, is_submission=True, in_cpu_time=in_cpu_time)
        talk._channel = Starved(clock, share)
        answer = talk.answer(Stage.CALL, 10.0)
    assert isinstance(answer, Loaded) is is_right


def test_answers_that_are_read_at_once_cost_nothing(unread):
    assert unread(0.5, last=Loaded()) == (Loaded(), 3, 1.5)


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


def failure(source, failed, stage=Stage.IMPORT):
    """Say what the judge makes of an exception of the submission."""
    session = RunnerClient(SimpleNamespace(socket=None), None)
    session._source = source
    return session._failure(failed, stage)


@pytest.mark.parametrize(("stage", "verdict"), [(Stage.IMPORT, Status.BUILD_ERROR), (Stage.CALL, Status.RUNTIME_ERROR)])
@pytest.mark.parametrize("name", ["no_such_einops", "no_such_einops.layers.torch"])
def test_a_package_that_is_not_there_is_named_with_those_that_are(stage, verdict, name):
    said = Raised(kind="ModuleNotFoundError", message=f"No module named '{name}'", lines=[(3, "")])
    fault = failure("", said, stage)
    assert (fault.status, fault.finding.code, fault.finding.line) == (verdict, Code.PACKAGE_MISSING, 3)
    assert fault.finding.details == {"package": "no_such_einops"}
    assert "torch, numpy" in fault.finding.message
    assert "pip install" in fault.finding.next_step


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("ModuleNotFoundError", "No module named 'torch.fast'"),
        ("ModuleNotFoundError", "No module named 'x y'"),
        ("ModuleNotFoundError", "No module named '__main__'"),
        ("ModuleNotFoundError", ""),
        ("ImportError", "No module named 'no_such_einops'"),
    ],
)
def test_any_other_failed_import_is_the_submissions_own(kind, message):
    assert failure("", Raised(kind=kind, message=message, lines=[])).finding.code == Code.IMPORT_FAILED


def test_a_text_that_ends_in_the_middle_is_told_to_have_been_cut_off():
    said = Raised(kind="SyntaxError", message="'(' was never closed", lines=[(1, "f(")])
    assert failure("f(\n", said).finding.code == Code.CUT_OFF
    assert "token limit" in failure("f(\n", said).finding.next_step
    assert failure("f(\nclass A: 1", said).finding.code == Code.IMPORT_FAILED
    assert failure("f(\n", said, Stage.CALL).finding.code == Code.FORWARD_FAILED


@pytest.mark.parametrize(
    ("package", "command"), [("tilelang", "pip install tilelang"), ("cutlass", "nvidia-cutlass-dsl")]
)
@pytest.mark.parametrize("stage", [Stage.IMPORT, Stage.CALL])
def test_a_missing_kernel_language_is_no_verdict(monkeypatch, stage, package, command):
    monkeypatch.setattr("evaluator.submission.requirements._is_there", lambda _: False)
    said = Raised(kind="ModuleNotFoundError", message=f"No module named '{package}.language'", lines=[(3, "")])
    fault = failure("", said, stage)
    assert (fault.status, fault.finding.code, fault.finding.line) == (Status.INCONCLUSIVE, Code.LANGUAGE_MISSING, 3)
    assert command in fault.finding.message
    assert "runs on cuda, not on cpu" in fault.finding.message


@pytest.mark.parametrize(("module", "found"), [("tilelang.language", True), ("no_such_einops", False), ("", False)])
def test_a_missing_kernel_language_behind_an_exception_is_no_verdict(monkeypatch, module, found):
    monkeypatch.setattr("evaluator.submission.requirements._is_there", lambda _: False)
    fault = failure("", Raised(kind="RuntimeError", message="no tilelang", missing=module), Stage.CALL)
    assert (fault.status is Status.INCONCLUSIVE) == found
    assert (fault.finding.code == Code.LANGUAGE_MISSING) == found


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("This kernel uses float4 loads.", "line 9 is prose, not Python: SyntaxError: invalid syntax"),
        ("It's as fast as the memory allows", "line 9 is prose"),
        ("```", "line 9 is the fence of a block"),
        ("<think>", "line 9 is a tag"),
    ],
)
def test_a_syntax_error_in_a_line_that_is_no_code_says_so(line, what):
    found = failure(line, Raised(kind="SyntaxError", message="invalid syntax", lines=[(9, line)])).finding
    assert (found.code, found.line, found.next_step) == (Code.WRONG_FORM, 9, ONE_BLOCK)
    assert found.message.startswith(what)


@pytest.mark.parametrize("line", ["class ModelNew(:\n    1", "const int i = 3;", "x = = 1", "    return x y", "f(a b)"])
def test_a_syntax_error_in_code_is_a_failed_import(line):
    found = failure(line, Raised(kind="SyntaxError", message="invalid syntax", lines=[(9, line)])).finding
    assert found.code == Code.IMPORT_FAILED
