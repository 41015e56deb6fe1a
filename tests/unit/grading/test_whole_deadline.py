"""The deadline of a whole grade, told by a clock of the test's own: what it ends, and whose fault that is."""

import contextlib
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from evaluator.compile.builder import BuildResult
from evaluator.deadline import Deadline, DeadlineReached, Guard, TimeUse, _raise_in
from evaluator.findings import Code
from evaluator.grade_options import GradeOptions
from evaluator.grading.pipeline import in_time
from evaluator.judge.runners.build_service import BuildBudget, BuildService
from evaluator.judge.runners.fork_servers import SandboxedTools
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.judge.runners.runner_faults import Stage
from evaluator.progress import Silent, Stopwatch
from evaluator.protocol.frames import BuildRequest, Channel, Closed, DeadlinePassed, Loaded
from evaluator.records import BuildUnit, DeviceKind, Outcome, Status
from evaluator.sandbox import Limits


class Clock:
    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def deadline(clock):
    return Deadline(100.0, clock=clock)


def test_without_a_limit_it_never_comes(clock):
    deadline = Deadline(clock=clock)
    clock.now = 1e12
    deadline.check()
    assert deadline.within(60.0) == 60.0


def test_the_default_leaves_room_for_the_longest_build():
    assert GradeOptions(DeviceKind.CPU).limit_s == 1800.0
    assert GradeOptions(DeviceKind.CPU, build_timeout_s=3000.0).limit_s > 3000.0
    assert GradeOptions(DeviceKind.CPU, deadline_s=5.0).limit_s == 5.0


def test_a_step_may_take_what_is_left(clock, deadline):
    clock.now = 90.0
    assert deadline.within(60.0) == 10.0
    assert deadline.within(3.0) == 3.0
    clock.now = 100.0
    with pytest.raises(DeadlineReached):
        deadline.within(3.0)


def test_what_another_process_used_is_gone(clock):
    deadline = Deadline(100.0, spent_s=70.0, submission_s=60.0, clock=clock)
    assert (deadline.left_s, deadline.submission_s) == (30.0, 60.0)


@pytest.mark.parametrize(
    ("builds_s", "code_s", "status"),
    [(50.0, 0.0, Status.TIMEOUT), (0.0, 50.0, Status.TIMEOUT), (30.0, 19.0, Status.INFRA_ERROR)],
)
def test_it_is_the_submissions_fault_where_its_own_work_took_half_of_the_time(
    clock, deadline, builds_s, code_s, status
):
    for work, taken_s in ((TimeUse.BUILDS, builds_s), (TimeUse.CODE, code_s), (None, 100.0 - builds_s - code_s)):
        with deadline.used_by(work):
            clock.now += taken_s
    blamed, reason = deadline.verdict("check")
    assert (blamed, reason.code) == (status, Code.DEADLINE.value)
    rest_s = 100 - builds_s - code_s
    said = f"builds took {builds_s:.0f} s, its code {code_s:.0f} s, the judge and the problem's code {rest_s:.0f} s"
    assert said in reason.message
    assert "'check'" in reason.message


class Puppet:
    """A runner whose socket a test has instead."""

    socket = None

    def __init__(self):
        self.killed = 0

    def wait_exit(self, timeout_s):
        raise AssertionError("who ended it is known")

    def kill(self):
        self.killed += 1


class Talk:
    """A channel: each answer comes after so much of the clock's time; None is one that never comes."""

    def __init__(self, clock, answers, *, killed_at=None):
        self.clock, self.answers, self.killed_at = clock, list(answers), killed_at
        self.sent = 0

    def receive(self, timeout_s):
        after_s, frame = self.answers.pop(0)
        if frame is None or after_s > timeout_s:
            self.clock.now += timeout_s
            if self.killed_at is not None:
                raise Closed
            raise DeadlinePassed
        self.clock.now += after_s
        return frame

    def send(self, frame, descriptors=(), timeout_s=None):
        self.sent += 1

    def close(self):
        pass


class Compiler:
    """A builder that fails after so much of the clock's time."""

    def __init__(self, clock, each_s):
        self.clock, self.each_s = clock, each_s

    def build(self, request):
        self.clock.now += self.each_s
        unit = BuildUnit(name="x", key="x", ok=False, cached=False, wall_s=0.0, diagnostics=[], log="")
        return BuildResult(unit, None, None)


def session(clock, deadline, answers, *, own=True, build_s=0.0, **how):
    build_service = BuildService(Compiler(clock, build_s), BuildBudget(1e9, clock))
    talk = RunnerClient(SimpleNamespace(socket=None, kill=lambda: None, wait_exit=Puppet().wait_exit), build_service)
    talk._channel = Talk(clock, answers, **how)
    talk.under(lambda: deadline, is_submission=own, in_cpu_time=False)
    return talk


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch):
    monkeypatch.setattr(Channel, "__init__", lambda *_, **__: None)


@pytest.mark.parametrize("killed_at", [None, 100.0])
def test_a_runner_that_never_answers_ends_the_grade_and_not_just_its_stage(clock, deadline, killed_at):
    """Whether its wait ends, or it was killed meanwhile: neither is told as what the stage came to."""
    clock.now = 70.0
    with pytest.raises(DeadlineReached):
        session(clock, deadline, [(0.0, None)], killed_at=killed_at).answer(Stage.CALL, 60.0)
    assert clock.now == 100.0


def test_a_stage_has_its_own_limit_before_that(clock, deadline):
    fault = session(clock, deadline, [(0.0, None)]).answer(Stage.CALL, 60.0)
    assert (fault.status, clock.now) == (Status.TIMEOUT, 60.0)


def test_waiting_for_a_runner_is_on_the_account_of_whose_it_is(clock, deadline):
    session(clock, deadline, [(20.0, Loaded())]).answer(Stage.IMPORT, 60.0)
    session(clock, deadline, [(30.0, Loaded())], own=False).answer(Stage.IMPORT, 60.0)
    assert deadline.submission_s == 20.0
    asked = [(1.0, BuildRequest(name="x")), (2.0, Loaded())]
    session(clock, deadline, asked, build_s=40.0).answer(Stage.IMPORT, 60.0)
    assert deadline.submission_s == 63.0
    assert "builds took 40 s, its code 23 s" in deadline.verdict("build")[1].message


def test_nothing_is_asked_any_more_when_it_has_come(clock, deadline):
    talk = session(clock, deadline, [])
    clock.now = 100.0
    with pytest.raises(DeadlineReached):
        talk.send(Loaded(), Stage.CALL, 60.0)
    assert talk._channel.sent == 0


def test_no_compiler_is_started_any_more_and_a_killed_one_says_nothing(clock, deadline, monkeypatch, tmp_path):
    ran = []

    def run_tool(_fork_server, argv, *, timeout_s, **_):
        ran.append((argv, timeout_s))
        clock.now += timeout_s
        return SimpleNamespace(ok=False, output="Killed")

    monkeypatch.setattr("evaluator.judge.runners.fork_servers.run_tool", run_tool)
    tools = SandboxedTools(None, DeviceKind.CPU, lambda: deadline)
    clock.now = 60.0
    for _ in range(2):
        with pytest.raises(DeadlineReached):
            tools(["g++"], work=tmp_path, timeout_s=600.0, limits=Limits())
    assert ran == [(["g++"], 40.0)]


def test_no_stage_begins_any_more(clock, deadline):
    stopwatch = Stopwatch(Silent(), None, deadline)
    with stopwatch.stage("build"):
        clock.now = 100.0
    with pytest.raises(DeadlineReached), stopwatch.stage("check"):
        raise AssertionError("it began")
    assert stopwatch.at == "build"


def test_a_guard_kills_then_asks_once_then_comes_to_its_last_resort(clock, deadline, monkeypatch):
    did = []
    monkeypatch.setattr("evaluator.deadline._raise_in", lambda *_: did.append("ask"))
    monkeypatch.setattr(Guard, "_watch", lambda _: None)

    def kill():
        did.append("kill")
        raise OSError("its starter is gone")

    with Guard(deadline, lambda: did.append("last resort")) as guard:
        guard.kill_with(kill)
        for clock.now in (99.9, 100.1, 101.5, 109.0, 110.5):
            guard.look()
    assert did == ["kill", "kill", "ask", "kill", "kill", "last resort"]


def test_who_noticed_by_himself_is_not_interrupted_while_he_tidies_up(clock, deadline, monkeypatch):
    monkeypatch.setattr("evaluator.deadline._raise_in", lambda *_: pytest.fail("it was asked"))
    monkeypatch.setattr(Guard, "_watch", lambda _: None)
    with Guard(deadline) as guard:
        clock.now = 105.0
        with contextlib.suppress(DeadlineReached):
            deadline.check()
        guard.look()


def test_work_of_the_judges_own_is_interrupted(clock, deadline, monkeypatch):
    """It computes, and never checks the time."""
    monkeypatch.setattr(Guard, "_watch", lambda _: None)

    def compute():
        with Guard(deadline) as guard:
            clock.now = 102.0
            threading.Thread(target=guard.look).start()
            for _ in range(1 << 30):
                pass

    with pytest.raises(DeadlineReached):
        compute()


PROFILED = """
import sys, threading
from evaluator.deadline import Deadline, DeadlineReached, Guard
Guard._watch = lambda _: None
now = 0.0
try:
    with Guard(Deadline(100.0, clock=lambda: now)) as guard:
        now = 102.0
        threading.Thread(target=guard.look).start()
        while True:
            pass
except DeadlineReached:
    print("interrupted")
sys.setprofile(lambda *_: None)
(lambda: None)()
sys.setprofile(None)
print("entered")
"""


def test_functions_can_be_profiled_after_an_interruption():
    """In a process of its own: a function that is never entered cannot be interrupted, not even by a signal."""
    done = subprocess.run([sys.executable, "-c", PROFILED], capture_output=True, text=True, timeout=60.0, check=False)
    assert done.stdout.split() == ["interrupted", "entered"], done.stderr


def test_an_exception_that_comes_with_the_end_is_raised_there(deadline, monkeypatch):
    """The watch has begun to ask; the end waits for the exception."""
    monkeypatch.setattr(Guard, "_watch", lambda _: None)
    begun, working = threading.Event(), threading.get_ident()

    def ask():
        with guard._hand:
            begun.set()
            guard._over.wait()
            _raise_in(working, DeadlineReached)

    with Guard(deadline) as guard:
        asking = threading.Thread(target=ask)
        asking.start()
        begun.wait()
        with pytest.raises(DeadlineReached):
            guard.end()
        asking.join()


def test_the_end_of_the_watch_is_repeated_where_the_exception_interrupted_it(clock, deadline, monkeypatch):
    monkeypatch.setattr(Guard, "_watch", lambda _: None)
    ends, end = [], Guard.end

    def interrupted(guard):
        ends.append(guard)
        if len(ends) == 1:
            raise DeadlineReached
        end(guard)

    monkeypatch.setattr(Guard, "end", interrupted)
    known = Outcome()
    assert working(deadline, clock, 101.0, known)[0] is known
    assert ends[0]._over.is_set()


def working(deadline, clock, ends_at, outcome):
    def work(guard):
        clock.now = ends_at
        if outcome is None:
            deadline.check()
        return outcome, None

    return in_time(Stopwatch(Silent(), None, deadline), work, lambda outcome: outcome, None)


def test_a_grade_out_of_time_has_an_outcome(clock, deadline):
    outcome, _ = working(deadline, clock, 101.0, None)
    assert (outcome.status, outcome.reason.code) == (Status.INFRA_ERROR, Code.DEADLINE.value)


def test_a_verdict_that_is_known_stands(clock, deadline):
    known = Outcome()
    assert working(deadline, clock, 101.0, known)[0] is known
