"""What a grade has of its GPU before PyTorch is imported. Without a GPU: its runners are made by the real starter."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from evaluator.devices import driver
from evaluator.devices.gpu import Gpu, GpuState
from evaluator.errors import JudgeFailed
from evaluator.judge import foothold as footholds
from evaluator.judge import watch
from evaluator.judge.foothold import Foothold
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
    monkeypatch.setattr(watch, "state", lambda _: QUIET)
    monkeypatch.setattr(driver, "make_context", lambda: None)
    made = Gpu(3, f"test-{tmp_path.name}", "a GPU", (9, 0), 1 << 30, "1", ())
    yield made
    for kind in ("lock", "waiting"):
        Path("/tmp", f"warpgrade-{made.uuid}.{kind}").unlink(missing_ok=True)


class Starter:
    def __init__(self, failing=False):
        self.failing = failing
        self.asked = []

    def spawn(self, entry, **what):
        if self.failing and len(self.asked) == 2:
            raise JudgeFailed("no more")
        self.asked.append((entry, what))
        return "a child"


def test_it_needs_no_torch():
    code = "import sys, evaluator.judge.foothold; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_its_runners_are_there_when_it_is_settled_and_gone_when_it_is_closed(gpu, monkeypatch):
    alive, starter = [], Starter()
    monkeypatch.setattr(footholds, "Session", lambda child, desk: Runner(alive))
    with Foothold(gpu, starter) as foothold:
        foothold.reach()
        foothold.settle()
        assert len(alive) == 4
        assert {entry for entry, _ in starter.asked} == {"evaluator.runner.main:run"}
        assert all(what["limits"].memory_bytes == 1 << 46 for _, what in starter.asked)
        assert foothold.watch is not None
        assert os.environ["CUDA_VISIBLE_DEVICES"] == gpu.uuid
        taken = foothold.spares.take()
        foothold.count_as_ours(frozenset({1}))
        assert foothold._own_processes() == {1, *(id(runner) for runner in alive if runner is not taken)}
    assert alive == [taken]


def test_where_one_runner_cannot_be_made_none_stays(gpu, monkeypatch):
    alive = []
    monkeypatch.setattr(footholds, "Session", lambda child, desk: Runner(alive))
    with Foothold(gpu, Starter(failing=True)) as foothold:
        with pytest.raises(JudgeFailed, match="no more"):
            foothold.settle()
        assert alive == []


def test_a_grade_that_ends_at_once_leaves_nothing(gpu, monkeypatch):
    alive = []
    monkeypatch.setattr(footholds, "Session", lambda child, desk: Runner(alive))
    with Foothold(gpu, Starter()) as foothold:
        foothold.reach()
    assert alive == []
    foothold.close()


@pytest.mark.parametrize("at", [1, 4])
def test_what_is_made_while_a_grade_ends_is_cut_short(at, gpu, monkeypatch):
    alive, reached, may_go_on = [], threading.Event(), threading.Event()

    def slowly(child, desk):
        if len(starter.asked) == at:
            reached.set()
            assert may_go_on.wait(120)
        return Runner(alive)

    starter = Starter()
    monkeypatch.setattr(footholds, "Session", slowly)
    foothold = Foothold(gpu, starter)
    foothold.reach()
    assert reached.wait(120)
    threading.Timer(0.1, may_go_on.set).start()
    foothold.close()
    assert alive == []
    assert len(starter.asked) == at


def stands(foothold):
    with foothold.standing() as whether:
        return whether


def test_the_judge_can_work_on_it_before_its_runners_are_there(gpu, monkeypatch):
    reached, may_go_on = threading.Event(), threading.Event()

    def slowly(child, desk):
        reached.set()
        assert may_go_on.wait(120)
        return Runner([])

    monkeypatch.setattr(footholds, "Session", slowly)
    with Foothold(gpu, Starter()) as foothold:
        assert not stands(foothold)
        foothold.reach()
        assert reached.wait(120)
        assert stands(foothold)
        watch_of_then = foothold.watch
        may_go_on.set()
        foothold.settle()
        assert foothold.watch is watch_of_then


def test_but_not_before_somebody_looked_who_else_is_there(gpu, monkeypatch):
    looks, may_go_on = threading.Event(), threading.Event()

    def look(_):
        looks.set()
        assert may_go_on.wait(120)
        return QUIET

    monkeypatch.setattr(watch, "state", look)
    monkeypatch.setattr(footholds, "Session", lambda child, desk: Runner([]))
    with Foothold(gpu, Starter()) as foothold:
        foothold.reach()
        assert looks.wait(120)
        assert not stands(foothold)
        may_go_on.set()
        foothold.settle()
        assert stands(foothold)


def test_no_driver_is_not_told_here(gpu, monkeypatch):
    def missing():
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(driver, "make_context", missing)
    monkeypatch.setattr(footholds, "Session", lambda child, desk: Runner([]))
    with Foothold(gpu, Starter()) as foothold:
        foothold.reach()
        foothold.settle()
        assert foothold.spares.processes
