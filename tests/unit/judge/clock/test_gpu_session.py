"""The GPU session of a grade before PyTorch is imported. Needs no GPU; a real fork server starts the runners."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from evaluator.devices import driver
from evaluator.devices.gpu import Gpu, GpuState
from evaluator.errors import JudgeFailed
from evaluator.judge.clock import gpu_monitor
from evaluator.judge.clock import gpu_session as gpu_sessions
from evaluator.judge.clock.gpu_session import GpuSession
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.context.runner_factory import RunnerFactory
from tests.grading.harness import TOP

QUIET = GpuState(1000, 1000, 40, (), 0, (), mig=False)


class Runner:
    """A session with no process behind it."""

    def __init__(self, alive):
        self.alive = alive
        self.child = self
        alive.append(self)

    def warm(self, device):
        self.device = device

    def warmed(self, timeout_s):
        pass

    def condemn(self):
        pass

    def members(self):
        return frozenset({id(self)})

    def poll_exit(self):
        return None

    def __exit__(self, *_):
        self.alive.remove(self)


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "kept by the test")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "kept by the test")
    monkeypatch.setattr(gpu_monitor, "state", lambda _: QUIET)
    monkeypatch.setattr(driver, "make_context", lambda: None)
    made = Gpu(3, f"test-{os.getpid()}-{tmp_path.name}", "a GPU", (9, 0), 1 << 30, "1", ())
    yield made
    for kind in ("lock", "waiting"):
        Path("/tmp", f"warpgrade-{made.uuid}.{kind}").unlink(missing_ok=True)


class ForkServer:
    def __init__(self, failing=False):
        self.failing = failing
        self.asked = []

    def spawn(self, entry, **what):
        if self.failing and len(self.asked) == 2:
            raise JudgeFailed("no more")
        self.asked.append((entry, what))
        return "a child"


def test_it_needs_no_torch():
    code = "import sys, evaluator.judge.clock.gpu_session; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_its_runners_are_there_when_it_is_settled_and_gone_when_it_is_closed(gpu, monkeypatch):
    alive, fork_server = [], ForkServer()
    monkeypatch.setattr(gpu_sessions, "RunnerClient", lambda child, build_service: Runner(alive))
    with GpuSession(gpu, fork_server) as gpu_session:
        with pytest.raises(RuntimeError, match="not at hand"):
            assert gpu_session.monitor
        gpu_session.reach()
        gpu_session.settle()
        assert len(alive) == 3
        assert {entry for entry, _ in fork_server.asked} == {"evaluator.runner.main:run"}
        assert all(what["limits"].memory_bytes == 1 << 46 for _, what in fork_server.asked)
        assert gpu_session.monitor is not None
        assert os.environ["CUDA_VISIBLE_DEVICES"] == gpu.uuid
        taken = gpu_session.runner_pool.take()
        gpu_session.add_own(frozenset({1}))
        assert gpu_session._own_processes() == {1, *(id(runner) for runner in alive if runner is not taken)}
    assert alive == [taken]


def test_a_renewed_session_keeps_idle_runners_and_the_gpu_and_has_a_new_monitor(gpu, monkeypatch):
    alive = []
    monkeypatch.setattr(gpu_sessions, "RunnerClient", lambda child, build_service: Runner(alive))
    with GpuSession(gpu, ForkServer(), lasting=True) as gpu_session:
        gpu_session.renew()
        assert alive == []  # No GPU is held yet.
        gpu_session.settle()
        gpu_session.add_own(frozenset({1}))
        first, monitor = list(alive), gpu_session.monitor
        taken = gpu_session.runner_pool.take()
        taken.__exit__()
        gpu_session.renew()
        assert len(alive) == 3
        assert {*map(id, first)} - {*map(id, alive)} == {id(taken)}
        assert gpu_session.monitor is not monitor
        assert 1 not in gpu_session._own_processes()
        assert gpu_session._gpu_lease.is_held


@pytest.mark.parametrize("lasting", [True, False])
def test_the_end_of_a_problem_spares_the_idle_runners_of_a_lasting_session(lasting):
    ended = []
    context = SimpleNamespace(
        _owns_fork_server=False,
        gpu_session=SimpleNamespace(lasting=lasting, runner_pool=SimpleNamespace(children=["an idle runner"])),
        fork_server=SimpleNamespace(end_all=lambda but=(): ended.append([*but])),
    )
    GradeContext._end_processes(context)
    assert ended == [["an idle runner"] if lasting else []]


@pytest.mark.parametrize("trusted", [True, False])
def test_only_runners_of_the_reference_are_trusted(trusted):
    """The values of others are samples for the check for fewer bits."""
    terms = SimpleNamespace(gpu="a GPU", options=SimpleNamespace(entries=("ModelNew",)))
    child = SimpleNamespace(kill=lambda: None)
    session = SimpleNamespace(child=child, serve_from=lambda _: None, under=lambda *_, **__: None)
    backend = SimpleNamespace(
        memory=lambda: contextlib.nullcontext("memory"), clock=lambda *_: contextlib.nullcontext("clock"), limits=None
    )
    facts = SimpleNamespace(terms=terms, backend=backend, source="another text")
    factory = RunnerFactory(facts, None, SimpleNamespace(runner_pool=SimpleNamespace()))
    factory.pool = SimpleNamespace(take=lambda: contextlib.nullcontext(session))
    factory._spec = lambda: None
    with factory.start("text", trusted=trusted) as model_runner:
        assert model_runner.trusted is trusted


@pytest.mark.parametrize("reach", [True, False])
def test_the_judges_context_comes_beside_the_processes_and_before_the_runners_contexts(gpu, monkeypatch, reach):
    did, processes_started, alive = [], threading.Event(), []

    class Warming(Runner):
        def __init__(self, alive):
            super().__init__(alive)
            if len(alive) == 3:
                processes_started.set()

        def warm(self, device):
            did.append("runner's context")

    def make_context():
        # Beside the processes: the context would wait in vain if the processes waited for the context.
        assert reach or processes_started.wait(120)
        did.append("judge's context")

    monkeypatch.setattr(driver, "make_context", make_context)
    monkeypatch.setattr(gpu_sessions, "RunnerClient", lambda child, build_service: Warming(alive))
    with GpuSession(gpu, ForkServer()) as gpu_session:
        if reach:
            gpu_session.reach()
        gpu_session.settle()
        assert did[0] == "judge's context"
        assert did[-3:] == ["runner's context"] * 3


def test_where_one_runner_cannot_be_made_none_stays(gpu, monkeypatch):
    alive = []
    monkeypatch.setattr(gpu_sessions, "RunnerClient", lambda child, build_service: Runner(alive))
    with GpuSession(gpu, ForkServer(failing=True)) as gpu_session:
        with pytest.raises(JudgeFailed, match="no more"):
            gpu_session.settle()
        assert alive == []


def test_no_context_comes_into_being_after_a_failed_start_has_released_the_gpu(gpu, monkeypatch):
    spawned, made = threading.Event(), threading.Event()

    class Failing(ForkServer):
        def spawn(self, entry, **what):
            spawned.set()
            raise JudgeFailed("no more")

    def make_context():
        assert spawned.wait(120)
        time.sleep(0.2)
        made.set()

    monkeypatch.setattr(driver, "make_context", make_context)
    with GpuSession(gpu, Failing()) as gpu_session:
        with pytest.raises(JudgeFailed, match="no more"):
            gpu_session.settle()
        assert made.is_set()


def test_a_grade_that_ends_at_once_leaves_nothing(gpu, monkeypatch):
    alive = []
    monkeypatch.setattr(gpu_sessions, "RunnerClient", lambda child, build_service: Runner(alive))
    with GpuSession(gpu, ForkServer()) as gpu_session:
        gpu_session.reach()
    assert alive == []
    gpu_session.close()


@pytest.mark.parametrize("at", [1, 3])
def test_what_is_made_while_a_grade_ends_is_cut_short(at, gpu, monkeypatch):
    alive, reached, may_go_on = [], threading.Event(), threading.Event()

    def slowly(child, build_service):
        if len(fork_server.asked) == at:
            reached.set()
            assert may_go_on.wait(120)
        return Runner(alive)

    fork_server = ForkServer()
    monkeypatch.setattr(gpu_sessions, "RunnerClient", slowly)
    gpu_session = GpuSession(gpu, fork_server)
    gpu_session.reach()
    assert reached.wait(120)
    rest = gpu_session._gpu_lease.rest
    monkeypatch.setattr(gpu_session._gpu_lease, "rest", lambda: (may_go_on.set(), rest()))  # the end has begun
    gpu_session.close()
    assert alive == []
    assert len(fork_server.asked) == at


def stands(gpu_session):
    with gpu_session.kept() as whether:
        return whether


def test_the_judge_can_work_on_it_before_its_runners_are_there(gpu, monkeypatch):
    reached, may_go_on = threading.Event(), threading.Event()

    def slowly(child, build_service):
        reached.set()
        assert may_go_on.wait(120)
        return Runner([])

    monkeypatch.setattr(gpu_sessions, "RunnerClient", slowly)
    with GpuSession(gpu, ForkServer()) as gpu_session:
        assert not stands(gpu_session)
        gpu_session.reach()
        assert reached.wait(120)
        assert stands(gpu_session)
        monitor = gpu_session.monitor
        may_go_on.set()
        gpu_session.settle()
        assert gpu_session.monitor is monitor


def test_but_not_before_somebody_looked_who_else_is_there(gpu, monkeypatch):
    looks, may_go_on = threading.Event(), threading.Event()

    def look(_):
        looks.set()
        assert may_go_on.wait(120)
        return QUIET

    monkeypatch.setattr(gpu_monitor, "state", look)
    monkeypatch.setattr(gpu_sessions, "RunnerClient", lambda child, build_service: Runner([]))
    with GpuSession(gpu, ForkServer()) as gpu_session:
        gpu_session.reach()
        assert looks.wait(120)
        assert not stands(gpu_session)
        may_go_on.set()
        gpu_session.settle()
        assert stands(gpu_session)


def test_no_driver_is_not_told_here(gpu, monkeypatch):
    def missing():
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(driver, "make_context", missing)
    monkeypatch.setattr(gpu_sessions, "RunnerClient", lambda child, build_service: Runner([]))
    with GpuSession(gpu, ForkServer()) as gpu_session:
        gpu_session.reach()
        gpu_session.settle()
        assert gpu_session.runner_pool.processes
