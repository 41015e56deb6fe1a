"""The GPU session of a grade before PyTorch is imported. Needs no GPU and no runners."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from evaluator.devices import driver
from evaluator.devices.gpu import GpuState
from evaluator.errors import JudgeFailed
from evaluator.findings import Code
from evaluator.judge.clock import gpu_monitor
from evaluator.judge.clock import gpu_session as gpu_sessions
from evaluator.judge.clock.gpu_session import GpuSession
from evaluator.judge.context.runner_factory import RunnerFactory
from tests.grading.harness import TOP

QUIET = GpuState(1000, 1000, 40, (), 0, (), mig=False)


class Runner:
    """A session with no process behind it, in the list of those `alive`."""

    def __init__(self, alive, on_warm):
        self._alive, self._on_warm, self.child = alive, on_warm, self
        alive.append(self)

    def warm(self, device):
        self._on_warm()

    def warmed(self, timeout_s):
        pass

    def condemn(self):
        pass

    def members(self):
        return frozenset({id(self)})

    def poll_exit(self):
        return None

    def __exit__(self, *_):
        self._alive.remove(self)


class Machine:
    """The GPU and the processes of a session: `started` calls of `spawn`, runners `alive`, and what happens then."""

    def __init__(self, gpu):
        self.gpu, self.asked, self.alive = gpu, [], []
        self.on_start = self.on_warm = self.on_context = lambda: None

    def spawn(self, entry, **what):
        self.asked.append((entry, what))
        self.on_start()
        return "a child"

    def make_context(self):
        self.on_context()

    def session(self, **options):
        return GpuSession(self.gpu, self, **options)


@pytest.fixture
def machine(gpu, monkeypatch):
    made = Machine(gpu)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "kept by the test")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "kept by the test")
    monkeypatch.setattr(gpu_monitor, "state", lambda _: QUIET)
    monkeypatch.setattr(driver, "make_context", made.make_context)
    monkeypatch.setattr(gpu_sessions, "RunnerClient", lambda child, build_service: Runner(made.alive, made.on_warm))
    return made


class Gate:
    """A lock that stops each thread until the test opens the gate."""

    def __init__(self):
        self._reached, self._open = threading.Event(), threading.Event()

    def __call__(self, *_):
        self._reached.set()
        assert self._open.wait(120)

    def wait(self):
        assert self._reached.wait(120)

    def open(self):
        self._open.set()


def test_it_needs_no_torch():
    code = "import sys, evaluator.judge.clock.gpu_session; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def strangers(gpu_session, monkeypatch, *processes):
    """Return whether the monitor takes one of these processes on the GPU for another program's."""
    monkeypatch.setattr(gpu_monitor, "state", lambda _: QUIET._replace(processes=processes))
    return Code.GPU_SHARED.value in [each.code for each in gpu_session.monitor.findings(None)]


def test_its_runners_are_there_when_it_is_settled_and_gone_when_it_is_closed(machine):
    with machine.session() as gpu_session:
        with pytest.raises(RuntimeError, match="not at hand"):
            assert gpu_session.monitor
        gpu_session.reach()
        gpu_session.settle()
        assert len(machine.alive) == 3
        assert {entry for entry, _ in machine.asked} == {"evaluator.runner.main:run"}
        assert all(what["limits"].memory_bytes == 1 << 46 for _, what in machine.asked)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == machine.gpu.uuid
        taken = gpu_session.runner_pool.take()
    assert machine.alive == [taken]
    gpu_session.close()


def test_a_renewed_session_keeps_idle_runners_and_the_gpu_and_has_a_new_monitor(machine, monkeypatch):
    with machine.session(lasting=True) as gpu_session:
        gpu_session.renew()
        assert machine.alive == []  # No GPU is held yet.
        gpu_session.settle()
        gpu_session.add_own(frozenset({1}))
        first, monitor = list(machine.alive), gpu_session.monitor
        assert not strangers(gpu_session, monkeypatch, 1, *map(id, first))
        monkeypatch.setattr(gpu_monitor, "state", lambda _: QUIET)
        taken = gpu_session.runner_pool.take()
        taken.__exit__()
        gpu_session.renew()
        assert len(machine.alive) == 3
        assert {*map(id, first)} - {*map(id, machine.alive)} == {id(taken)}
        assert gpu_session.monitor is not monitor
        assert strangers(gpu_session, monkeypatch, 1)


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
def test_the_judges_context_comes_beside_the_processes_and_before_the_runners_contexts(machine, reach):
    did, processes_started = [], threading.Event()

    def started():
        if len(machine.asked) == 3:
            processes_started.set()

    def make_context():
        # Beside the processes: the context would wait in vain if the processes waited for the context.
        assert reach or processes_started.wait(120)
        did.append("judge's context")

    machine.on_start, machine.on_warm = started, lambda: did.append("runner's context")
    machine.on_context = make_context
    with machine.session() as gpu_session:
        if reach:
            gpu_session.reach()
        gpu_session.settle()
        assert did[0] == "judge's context"
        assert did[-3:] == ["runner's context"] * 3


@pytest.mark.parametrize("started", [0, 2])
def test_where_one_runner_cannot_be_made_none_stays_and_no_context_comes_later(machine, started):
    spawned, is_made = threading.Event(), threading.Event()

    def start():
        if len(machine.asked) > started:
            spawned.set()
            raise JudgeFailed("no more")

    def make_context():
        assert spawned.wait(120)
        time.sleep(0.1)
        is_made.set()

    machine.on_start, machine.on_context = start, make_context
    with machine.session() as gpu_session:
        with pytest.raises(JudgeFailed, match="no more"):
            gpu_session.settle()
        assert machine.alive == []
        assert is_made.is_set(), "the GPU is released only then"


@pytest.mark.parametrize("at", [1, 3])
def test_what_is_made_while_a_grade_ends_is_cut_short(machine, at):
    gate = Gate()
    machine.on_start = lambda: gate() if len(machine.asked) == at else None
    gpu_session = machine.session()
    gpu_session.reach()
    gate.wait()
    threading.Timer(0.1, gate.open).start()
    gpu_session.close()
    assert machine.alive == []
    assert len(machine.asked) == at


def stands(gpu_session):
    with gpu_session.kept() as whether:
        return whether


def test_the_judge_can_work_on_it_before_its_runners_are_there(machine):
    machine.on_start = gate = Gate()
    with machine.session() as gpu_session:
        assert not stands(gpu_session)
        gpu_session.reach()
        gate.wait()
        assert stands(gpu_session)
        monitor = gpu_session.monitor
        gate.open()
        gpu_session.settle()
        assert gpu_session.monitor is monitor


def test_but_not_before_somebody_looked_who_else_is_there(machine, monkeypatch):
    gate = Gate()
    monkeypatch.setattr(gpu_monitor, "state", lambda _: gate() or QUIET)
    with machine.session() as gpu_session:
        gpu_session.reach()
        gate.wait()
        assert not stands(gpu_session)
        gate.open()
        gpu_session.settle()
        assert stands(gpu_session)


def test_no_driver_is_not_told_here(machine):
    def missing():
        raise OSError("libcuda.so.1: cannot open shared object file")

    machine.on_context = missing
    with machine.session() as gpu_session:
        gpu_session.reach()
        gpu_session.settle()
        assert gpu_session.runner_pool.processes
