"""The end of a worker: no judge and no temporary folder is left, whenever the signal comes."""

import contextlib
import functools
import io
import os
import signal
import tempfile
import threading
import time
from types import SimpleNamespace

import pytest

from evaluator.batch.workers import worker, worker_handle
from evaluator.batch.workers.messages import PrepareWorker, send
from evaluator.batch.workers.slots import Slot
from evaluator.batch.workers.worker_handle import LocalWorker
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind
from tests.grading.harness import adopt_orphans
from tests.signals import another_thread, deliver, interrupting

KILLED = """
import fcntl, os, sys, time
fcntl.flock(os.open({folder!r}, os.O_RDONLY), fcntl.LOCK_EX)
worker = os.getpid()
if os.fork() == 0:
    os.write(int(sys.argv[2]), b".")
    while os.getppid() == worker:
        time.sleep(0.01)
    time.sleep(0.5)
    os.close(int(sys.argv[2]))  # as the kernel does, in any order
    time.sleep(0.3)
    os._exit(0)
time.sleep(600)
"""


def test_the_folder_of_a_judge_that_dies_after_its_killed_worker_is_removed(monkeypatch, tmp_path):
    """The kernel kills the judge of a killed worker, and both deaths take their time."""
    left = tmp_path / "warpgrade-run-left"
    left.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(worker_handle, "_BOOT", KILLED.format(folder=str(left)))
    adopt_orphans()
    monkeypatch.setattr(worker_handle, "_UNLOCK_S", 60.0)  # on a busy machine a judge dies late
    monkeypatch.setattr(os, "killpg", reaping(os.killpg))
    handle = LocalWorker(Slot(), None)
    assert os.read(handle._replies, 1) == b"."
    handle._process.kill()
    handle.close()
    assert not left.exists()


def reaping(killpg):
    """A `killpg` that first reaps a dead orphan of this process: a zombie still counts as a member of its group."""

    def killed(group, number):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-group, os.WNOHANG)
        killpg(group, number)

    return killed


@pytest.fixture
def terminable():
    before = signal.signal(signal.SIGTERM, worker._terminate)
    yield
    signal.signal(signal.SIGTERM, before)


def judge_that(act):
    """A judge of streak "one": a process that calls `act` with its orders, and then sleeps. SIGINT ends it."""
    its_orders, orders = os.pipe()
    done, its_done = os.pipe()
    # An interrupt before the block would leave this process and a copy of all tests.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    pid = os.fork()
    if pid == 0:
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            os.close(orders)
            act(its_orders)
            time.sleep(60)
        finally:
            os._exit(0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.close(its_orders)
    os.close(its_done)
    return worker._Judge("one", pid, os.pidfd_open(pid), io.FileIO(orders, "w"), done)


def with_judge(judge):
    current = worker._CurrentJudge(-1, None)
    current._judge = judge
    return current


def assert_ended_by_a_signal(judge):
    with pytest.raises(worker._Terminated):
        with_judge(judge).close(wait_s=60.0)
    assert is_reaped(judge)


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

    assert_ended_by_a_signal(judge_that(signal_at_the_end_of))


def test_a_second_signal_does_not_interrupt_the_end_of_a_judge(terminable):
    parent = os.getpid()

    def signal_at_each_end(orders):
        def end(_number, _frame):
            os.kill(parent, signal.SIGTERM)
            os._exit(0)

        signal.signal(signal.SIGINT, end)
        os.read(orders, 1)
        os.kill(parent, signal.SIGTERM)

    assert_ended_by_a_signal(judge_that(signal_at_each_end))


def test_a_first_signal_amid_the_end_of_a_judge_waits_for_that_end(monkeypatch, terminable):
    dismiss = worker._dismiss

    def signalled(judge):
        deliver(signal.SIGTERM, threading.main_thread())
        dismiss(judge)

    monkeypatch.setattr(worker, "_dismiss", signalled)
    assert_ended_by_a_signal(judge_that(until_the_end_of))


def test_an_interrupt_before_the_judge_has_its_own_handlers_ends_the_judge(monkeypatch):
    """The judge starts with handlers of the worker, which note a signal for the worker."""
    monkeypatch.setattr(os, "fork", interrupting(os.fork))
    monkeypatch.setattr(worker, "_next_order", lambda *_: time.sleep(600))
    current = worker._CurrentJudge(-1, None)
    judge = current.judge_for(SimpleNamespace(streak="one"), renew=True)
    try:
        assert worker._has_ended(judge, 60.0)
    finally:
        current.close()


def test_a_second_signal_during_the_imports_does_not_end_the_fork_server_twice(monkeypatch, terminable):
    did = []

    def close():
        did.append("close")
        if did.count("close") == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(os, "_exit", did.append)
    leave = functools.partial(worker._leave_at_once, SimpleNamespace(close=close))
    signal.signal(signal.SIGTERM, leave)
    os.kill(os.getpid(), signal.SIGTERM)
    assert did == ["close", 1]


@pytest.fixture
def worker_of(monkeypatch, terminable):
    """A worker without a fork server: give its orders, and the end of its replies; return its exit code."""

    def run(requests, replies):
        orders, given = os.pipe()
        for each in requests:
            send(given, each)
        os.close(given)
        monkeypatch.setattr(worker, "_ORDERS", orders)
        monkeypatch.setattr(worker, "_import_early", lambda _: None)
        monkeypatch.setattr(worker, "on_hang_up", lambda *_: contextlib.nullcontext())  # the orders have ended already
        server = SimpleNamespace(close=lambda: None, machine=None)
        monkeypatch.setattr(worker, "_start_fork_server", lambda _: server)
        try:
            return worker.main([str(replies), "1"])
        finally:
            os.close(orders)

    return run


PREPARE = PrepareWorker(GradeOptions(DeviceKind.CPU))


def test_a_worker_whose_batch_is_killed_does_not_finish_its_imports(monkeypatch):
    orders, given = os.pipe()
    send(given, PREPARE)
    _, replies = os.pipe()
    importing, begun = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(given)
            monkeypatch.setattr(worker, "_ORDERS", orders)
            monkeypatch.setattr(worker, "_import_early", lambda _: (os.write(begun, b"."), time.sleep(600)))
            server = SimpleNamespace(close=lambda: None, machine=None)
            monkeypatch.setattr(worker, "_start_fork_server", lambda _: server)
            worker.main([str(replies), "1"])
        finally:
            os._exit(0)
    assert os.read(importing, 1) == b"."
    os.close(given)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1  # not 0, after 600 s
    for descriptor in (orders, replies, importing, begun):
        os.close(descriptor)


def test_a_signal_after_the_last_order_raises_nothing(worker_of):
    _, replies = os.pipe()
    assert worker_of([PREPARE], replies) == 0
    os.kill(os.getpid(), signal.SIGTERM)
    os.close(replies)


def test_a_batch_that_is_gone_is_no_fault_of_the_worker(worker_of):
    reading, replies = os.pipe()
    os.close(reading)
    assert worker_of([PREPARE], replies) == 1
    worker._StageSender(replies).stage("build")
    os.close(replies)
