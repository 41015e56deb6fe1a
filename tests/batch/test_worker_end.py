"""The end of a worker: no judge and no temporary folder is left, whenever the signal comes."""

import os
import signal
import tempfile
import threading
import time
from types import SimpleNamespace

import pytest

from evaluator.batch.workers import worker
from evaluator.batch.workers.slots import Slot
from evaluator.batch.workers.worker_handle import LocalWorker
from tests.signals import another_thread, deliver


def test_the_end_of_a_worker_removes_abandoned_folders(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    handle = LocalWorker(Slot(""), None)
    left = tmp_path / "warpgrade-run-left"
    left.mkdir()
    handle.close()
    assert not left.exists()


@pytest.fixture
def terminable():
    before = signal.signal(signal.SIGTERM, worker._terminate)
    yield
    signal.signal(signal.SIGTERM, before)


def judge_that(act):
    """A judge of streak "one": a process that calls `act` with its orders, and then sleeps. SIGINT ends it."""
    its_orders, orders = os.pipe()
    done, its_done = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(orders)
            act(its_orders)
            time.sleep(60)
        finally:
            os._exit(0)
    os.close(its_orders)
    os.close(its_done)
    return worker._Judge("one", pid, os.pidfd_open(pid), orders, done)


def is_reaped(judge):
    try:
        os.waitpid(judge.pid, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def until_the_end_of(orders):
    os.read(orders, 1)
    os._exit(0)


@pytest.mark.parametrize("taker", ["this thread", "another thread"])
def test_a_signal_right_after_the_fork_leaves_no_judge(monkeypatch, terminable, taker):
    """The kernel may choose any thread, and Python's handler runs in the main thread in any case."""
    made = []

    def fork(*_):
        made.append(judge_that(until_the_end_of))
        with another_thread() as thread:
            deliver(signal.SIGTERM, thread if taker == "another thread" else threading.main_thread())
        return made[0]

    monkeypatch.setattr(worker, "_fork", fork)
    current = worker._CurrentJudge(-1, None)
    with pytest.raises(worker._Terminated):
        current.judge_for(SimpleNamespace(streak="one"), renew=True)
    current.close()
    assert is_reaped(made[0])


def test_a_signal_during_a_wait_for_a_judge_ends_the_judge(terminable):
    parent = os.getpid()

    def signal_at_the_end_of(orders):
        os.read(orders, 1)
        os.kill(parent, signal.SIGTERM)

    judge = judge_that(signal_at_the_end_of)
    with pytest.raises(worker._Terminated):
        worker._dismiss(judge, wait_s=60.0)
    assert is_reaped(judge)


def test_a_second_signal_does_not_interrupt_the_end_of_a_judge(terminable):
    parent = os.getpid()

    def signal_at_each_end(orders):
        def end(_number, _frame):
            os.kill(parent, signal.SIGTERM)
            os._exit(0)

        signal.signal(signal.SIGINT, end)
        os.read(orders, 1)
        os.kill(parent, signal.SIGTERM)

    judge = judge_that(signal_at_each_end)
    with pytest.raises(worker._Terminated):
        worker._dismiss(judge, wait_s=60.0)
    assert is_reaped(judge)
