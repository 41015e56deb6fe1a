"""Who holds a GPU while a submission is being built."""

import contextlib
import signal
import threading
import time
from pathlib import Path

import pytest

from evaluator.devices.gpu import is_awaited, leased
from evaluator.errors import InfraError, JudgeFailed
from evaluator.judge.clock import gpu_session as claims
from evaluator.judge.clock.gpu_session import GpuLease


def free(gpu):
    try:
        with leased(gpu, 0.0):
            return True
    except InfraError:
        return False


@contextlib.contextmanager
def waiting(gpu):
    """Another grade that waits for the GPU meanwhile, and says when it has it; it must get the GPU in the end."""
    got = threading.Event()

    def wait():
        with leased(gpu, 120.0):
            got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    yield got
    assert got.wait(120)
    thread.join()


def soon(what):
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def lease_of(gpu):
    """Make leases of the GPU, and close them; a closed lease has released the GPU."""
    with contextlib.ExitStack() as closing:

        def made(bring_up=lambda: None, *, reach=True):
            gpu_lease = GpuLease(gpu, bring_up)
            closing.callback(gpu_lease.close)
            if reach:
                gpu_lease.reach(lambda: None)
            return gpu_lease

        yield made
    assert free(gpu)


def test_a_free_gpu_is_taken_before_the_build_and_kept(gpu, lease_of):
    done = []
    gpu_lease = lease_of(lambda: done.append(("brought up", free(gpu))), reach=False)
    gpu_lease.reach(lambda: done.append(("first", free(gpu))))
    assert not free(gpu)
    gpu_lease.settle()
    assert not free(gpu)
    assert done == [("first", False), ("brought up", False)]


def test_bringing_it_up_is_not_waited_for_before_it_is_settled(lease_of):
    may_end, ended = threading.Event(), []
    gpu_lease = lease_of(lambda: (may_end.wait(120), ended.append(1)))
    assert ended == []
    may_end.set()
    gpu_lease.settle()
    assert ended == [1]


def test_what_is_being_brought_up_when_a_grade_ends_is_waited_for(gpu, lease_of):
    ended = []
    gpu_lease = lease_of(lambda: (time.sleep(0.2), ended.append(1)))
    gpu_lease.rest()
    assert ended == [1]
    assert not free(gpu)


def test_who_is_interrupted_while_it_is_brought_up_can_wait_for_it_again(lease_of):
    ended, may_end = [], threading.Event()
    gpu_lease = lease_of(lambda: (may_end.wait(120), ended.append(1)))
    interrupter = threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))

    def settle():
        interrupter.start()
        gpu_lease.settle()

    with pytest.raises(KeyboardInterrupt):
        settle()
    interrupter.join()
    assert ended == []
    may_end.set()
    gpu_lease.close()
    assert ended == [1]


def test_no_room_for_a_thread_is_no_room_for_a_claim(gpu, lease_of, monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(claims.threading.Thread, "start", start)
        gpu_lease = lease_of()
    assert free(gpu)
    gpu_lease.settle()
    assert not free(gpu)


def test_it_is_given_to_who_waits_for_it_and_waited_for_again(gpu, lease_of):
    brought_up = []
    gpu_lease = lease_of(lambda: brought_up.append(1))
    with waiting(gpu):
        pass
    gpu_lease.settle()
    assert len(brought_up) == 2
    assert not free(gpu)


def test_it_is_not_given_back_any_more_when_the_submission_is_built(gpu, lease_of):
    gpu_lease = lease_of()
    assert not gpu_lease.is_in_the_way
    gpu_lease.settle()
    assert not gpu_lease.is_in_the_way
    with waiting(gpu) as got:
        soon(lambda: gpu_lease.is_in_the_way)
        assert not got.wait(0.2)
        gpu_lease.close()
        assert not gpu_lease.is_in_the_way


def test_while_somebody_works_on_it_nobody_else_gets_it(gpu, lease_of):
    gpu_lease = lease_of(reach=False)
    with gpu_lease.kept() as held:
        assert not held
    gpu_lease.reach(lambda: None)
    with waiting(gpu) as got, gpu_lease.kept() as held:
        assert held
        soon(lambda: is_awaited(gpu))
        assert not got.wait(0.2)
    with gpu_lease.kept() as held:
        assert not held


def test_nor_where_bringing_it_up_fails_meanwhile(gpu, lease_of):
    tries, may_fail, fails = [], threading.Event(), threading.Event()

    def bring_up():
        tries.append(1)
        if len(tries) == 1:
            assert may_fail.wait(120)
            fails.set()
            raise JudgeFailed("no runner")

    gpu_lease = lease_of(bring_up)
    with gpu_lease.kept() as held:
        assert held
        may_fail.set()
        assert fails.wait(120)
        time.sleep(0.05)
        assert not free(gpu)
    soon(lambda: free(gpu))
    gpu_lease.settle()
    assert len(tries) == 2
    assert not free(gpu)


def test_who_comes_in_the_moment_in_which_it_is_settled_waits(gpu, lease_of, monkeypatch):
    looks = []

    def awaited(_):
        looks.append(1)
        if len(looks) == 2:
            settling.start()
            time.sleep(0.1)
        return len(looks) == 2

    monkeypatch.setattr(claims, "is_awaited", awaited)
    gpu_lease = lease_of(reach=False)
    settling = threading.Thread(target=gpu_lease.rest)
    gpu_lease.reach(lambda: None)
    soon(lambda: len(looks) == 2)
    gpu_lease.rest()
    settling.join()
    assert not free(gpu)


@pytest.mark.parametrize("how", ["held", "awaited"])
def test_what_another_grade_has_or_waits_for_is_not_taken_ahead_of_it(gpu, lease_of, how, monkeypatch):
    brought_up = []
    monkeypatch.setattr(claims, "is_awaited", lambda _: how == "awaited")
    with leased(gpu, 1.0) if how == "held" else contextlib.nullcontext():
        gpu_lease = lease_of(lambda: brought_up.append(1))
    gpu_lease.rest()
    assert brought_up == []


def test_a_gpu_whose_gate_cannot_be_opened_is_not_leased(gpu):
    """A link in /tmp may be another user's: it is not followed, and no grade starts without the lock."""
    Path("/tmp", f"warpgrade-{gpu.uuid}.waiting").symlink_to("/dev/null")
    gpu_lease = GpuLease(gpu, lambda: None)
    assert is_awaited(gpu)
    gpu_lease.reach(lambda: None)
    with pytest.raises(InfraError, match=r"cannot lock /tmp/warpgrade-.*\.waiting"):
        gpu_lease.settle()
    gpu_lease.close()


def test_what_cannot_be_brought_up_is_not_kept(gpu, lease_of):
    tried = []

    def broken():
        tried.append(1)
        raise JudgeFailed("no room")

    gpu_lease = lease_of(broken)
    soon(lambda: free(gpu))
    with pytest.raises(JudgeFailed, match="no room"):
        gpu_lease.settle()
    assert tried == [1, 1]
    assert free(gpu)


def test_a_grade_that_ends_while_it_builds_gives_it_back(gpu, lease_of):
    lease_of().close()
    assert free(gpu)
    assert not is_awaited(gpu)
