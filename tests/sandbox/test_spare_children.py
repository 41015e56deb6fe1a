"""Confined children that are started before their text exists."""

import contextlib
import os
import signal

import psutil
import pytest

from evaluator.errors import JudgeFailed
from evaluator.judge.runners.runner_pool import SpareChildren
from evaluator.lint.messages import ANALYSIS, look_at
from evaluator.sandbox import ForkServer, Limits

pytestmark = pytest.mark.slow
TEXT = "class ModelNew: pass\n"
OTHER = Limits(memory_bytes=1 << 29, processes=8)


@pytest.fixture
def fork_server():
    with ForkServer(preload=("evaluator.lint.lint",)) as started:
        yield started


@pytest.fixture
def started(fork_server, monkeypatch):
    """All children that the fork server starts, in order."""
    children = []
    spawn = fork_server.spawn

    def counted(*arguments, **named):
        children.append(spawn(*arguments, **named))
        return children[-1]

    monkeypatch.setattr(fork_server, "spawn", counted)
    return children


@pytest.fixture
def spares(fork_server):
    with contextlib.closing(SpareChildren(fork_server)) as made:
        yield made


def test_each_text_has_a_child_of_its_own_and_the_next_one_is_there_already(spares, started):
    look_at(TEXT, ["ModelNew"], spares.spawn)
    assert len(started) == 1
    spares.refill()
    spares.refill()
    assert len(started) == 2
    assert started[1].poll_exit() is None
    assert look_at(TEXT, ["ModelNew"], spares.spawn) == look_at(TEXT, ["ModelNew"], spares.spawn)
    assert len(started) == 3
    assert all(child.poll_exit() is not None for child in started)


def test_other_limits_are_another_kind(spares, started):
    look_at(TEXT, ["ModelNew"], spares.spawn)
    spares.refill()
    child = spares.spawn(ANALYSIS.entry, OTHER)
    assert child is started[2]
    child.kill()


@pytest.mark.parametrize("all_of_it", [False, True])
def test_a_spare_that_has_died_is_replaced(spares, started, all_of_it):
    look_at(TEXT, ["ModelNew"], spares.spawn)
    spares.refill()
    members = started[1].members()
    parents = {psutil.Process(member).ppid() for member in members}
    for member in members if all_of_it else members - parents:
        with contextlib.suppress(ProcessLookupError):  # The death of pid 1 inside ends the others.
            os.kill(member, signal.SIGKILL)
    with contextlib.suppress(JudgeFailed):
        started[1].wait_exit(60)
    assert look_at(TEXT, ["ModelNew"], spares.spawn) == look_at(TEXT, ["ModelNew"], spares.spawn)
    assert len(started) == 4


def test_the_end_leaves_no_spare(fork_server, started):
    with contextlib.closing(SpareChildren(fork_server)) as spares:
        look_at(TEXT, ["ModelNew"], spares.spawn)
        spares.refill()
    assert started[1].poll_exit() is not None
