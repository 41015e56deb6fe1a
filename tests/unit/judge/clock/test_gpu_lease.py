"""Who holds a GPU while a submission is being built. Without a GPU: leases are locks of files."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from evaluator.devices.gpu import Gpu, is_awaited, leased
from evaluator.errors import InfraError, JudgeFailed
from evaluator.judge.clock import gpu_session as claims
from evaluator.judge.clock.gpu_session import GpuLease


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "_LOOK_ROUND_S", 0.01)
    made = Gpu(3, f"test-{os.getpid()}-{tmp_path.name}", "a GPU", (9, 0), 1 << 30, "1", ())
    yield made
    for kind in ("lock", "waiting"):
        Path("/tmp", f"warpgrade-{made.uuid}.{kind}").unlink(missing_ok=True)


def free(gpu):
    try:
        with leased(gpu, 0.0):
            return True
    except InfraError:
        return False


def waits(gpu, got):
    """Another grade that waits for the GPU, and says when it has it."""

    def wait():
        with leased(gpu, 120.0):
            got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def soon(what):
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_free_gpu_is_taken_before_the_build_and_kept(gpu):
    done = []
    gpu_lease = GpuLease(gpu, lambda: done.append(("brought up", free(gpu))))
    gpu_lease.reach(lambda: done.append(("first", free(gpu))))
    assert not free(gpu)
    gpu_lease.settle()
    assert not free(gpu)
    gpu_lease.close()
    assert done == [("first", False), ("brought up", False)]
    assert free(gpu)


def test_bringing_it_up_is_not_waited_for_before_it_is_settled(gpu):
    may_end, ended = threading.Event(), []

    def bring_up():
        assert may_end.wait(120)
        ended.append(1)

    gpu_lease = GpuLease(gpu, bring_up)
    gpu_lease.reach(lambda: None)
    assert ended == []
    may_end.set()
    gpu_lease.settle()
    assert ended == [1]
    gpu_lease.close()


def test_what_is_being_brought_up_when_a_grade_ends_is_waited_for(gpu):
    ended = []
    gpu_lease = GpuLease(gpu, lambda: (time.sleep(0.2), ended.append(1)))
    gpu_lease.reach(lambda: None)
    gpu_lease.rest()
    assert ended == [1]
    assert not free(gpu)
    gpu_lease.close()
    assert free(gpu)


def test_who_is_interrupted_while_it_is_brought_up_can_wait_for_it_again(gpu, monkeypatch):
    ended, waiting, may_end = [], threading.Event(), threading.Event()
    gpu_lease = GpuLease(gpu, lambda: (may_end.wait(120), ended.append(1)))
    gpu_lease.reach(lambda: None)
    main, wait = threading.get_ident(), gpu_lease._rests.wait

    def interrupt():
        if waiting.wait(120):
            signal.pthread_kill(main, signal.SIGINT)

    monkeypatch.setattr(gpu_lease._rests, "wait", lambda *limit_s: (waiting.set(), wait(*limit_s))[1])
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        gpu_lease.settle()
    interrupter.join()
    assert ended == []
    may_end.set()
    gpu_lease.close()
    assert ended == [1]
    assert free(gpu)


def test_no_room_for_a_thread_is_no_room_for_a_claim(gpu, monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    gpu_lease = GpuLease(gpu, lambda: None)
    monkeypatch.setattr(claims.threading.Thread, "start", start)
    gpu_lease.reach(lambda: None)
    assert free(gpu)
    gpu_lease.settle()
    assert not free(gpu)
    gpu_lease.close()


def test_it_is_given_to_who_waits_for_it_and_waited_for_again(gpu):
    brought_up, got = [], threading.Event()
    gpu_lease = GpuLease(gpu, lambda: brought_up.append(1))
    gpu_lease.reach(lambda: None)
    other = waits(gpu, got)
    assert got.wait(120)
    other.join()
    gpu_lease.settle()
    assert len(brought_up) == 2
    assert not free(gpu)
    gpu_lease.close()
    assert free(gpu)


def test_it_is_not_given_back_any_more_when_the_submission_is_built(gpu):
    got = threading.Event()
    gpu_lease = GpuLease(gpu, lambda: None)
    gpu_lease.reach(lambda: None)
    gpu_lease.settle()
    other = waits(gpu, got)
    soon(lambda: is_awaited(gpu))
    assert not got.wait(0.2)
    gpu_lease.close()
    assert got.wait(120)
    other.join()


def test_while_somebody_works_on_it_nobody_else_gets_it(gpu):
    got = threading.Event()
    gpu_lease = GpuLease(gpu, lambda: None)
    with gpu_lease.kept() as held:
        assert not held
    gpu_lease.reach(lambda: None)
    with gpu_lease.kept() as held:
        assert held
        other = waits(gpu, got)
        soon(lambda: is_awaited(gpu))
        assert not got.wait(0.2)
    assert got.wait(120)
    other.join()
    with gpu_lease.kept() as held:
        assert not held
    gpu_lease.close()


def test_nor_where_bringing_it_up_fails_meanwhile(gpu):
    tries, may_fail, fails = [], threading.Event(), threading.Event()

    def bring_up():
        tries.append(1)
        if len(tries) == 1:
            assert may_fail.wait(120)
            fails.set()
            raise JudgeFailed("no runner")

    gpu_lease = GpuLease(gpu, bring_up)
    gpu_lease.reach(lambda: None)
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
    gpu_lease.close()


def test_who_comes_in_the_moment_in_which_it_is_settled_waits(gpu, monkeypatch):
    seen = []

    def awaited(_):
        if seen:
            gpu_lease._for_good.set()
        seen.append(1)
        return len(seen) > 1

    monkeypatch.setattr(claims, "is_awaited", awaited)
    gpu_lease = GpuLease(gpu, lambda: None)
    gpu_lease.reach(lambda: None)
    assert gpu_lease._rests.wait(120)
    assert len(seen) == 2
    assert not free(gpu)
    gpu_lease.close()


@pytest.mark.parametrize("how", ["held", "awaited"])
def test_what_another_grade_has_or_waits_for_is_not_taken_ahead_of_it(gpu, how, monkeypatch):
    brought_up = []
    gpu_lease = GpuLease(gpu, lambda: brought_up.append(1))
    monkeypatch.setattr(claims, "is_awaited", lambda _: how == "awaited")
    if how == "held":
        with leased(gpu, 1.0):
            gpu_lease.reach(lambda: None)
    else:
        gpu_lease.reach(lambda: None)
    gpu_lease.rest()
    assert brought_up == []
    gpu_lease.close()


def test_a_gpu_whose_gate_cannot_be_opened_is_not_leased(gpu):
    """A link in /tmp may be another user's: it is not followed, and no grade starts without the lock."""
    Path("/tmp", f"warpgrade-{gpu.uuid}.waiting").symlink_to("/dev/null")
    gpu_lease = GpuLease(gpu, lambda: None)
    assert is_awaited(gpu)
    gpu_lease.reach(lambda: None)
    with pytest.raises(InfraError, match=r"cannot lock /tmp/warpgrade-.*\.waiting"):
        gpu_lease.settle()
    gpu_lease.close()


def test_what_cannot_be_brought_up_is_not_kept(gpu):
    tried = []

    def broken():
        tried.append(1)
        raise JudgeFailed("no room")

    gpu_lease = GpuLease(gpu, broken)
    gpu_lease.reach(lambda: None)
    soon(lambda: free(gpu))
    with pytest.raises(JudgeFailed, match="no room"):
        gpu_lease.settle()
    assert tried == [1, 1]
    assert free(gpu)
    gpu_lease.close()


def test_a_grade_that_ends_while_it_builds_gives_it_back(gpu):
    gpu_lease = GpuLease(gpu, lambda: None)
    gpu_lease.reach(lambda: None)
    gpu_lease.close()
    gpu_lease.close()
    assert free(gpu)
    assert not is_awaited(gpu)


def test_a_held_gpu_is_in_the_way_of_who_waits(gpu):
    gpu_lease, got = GpuLease(gpu, lambda: None), threading.Event()
    assert not gpu_lease.is_in_the_way
    gpu_lease.settle()
    assert not gpu_lease.is_in_the_way
    thread = waits(gpu, got)
    soon(lambda: gpu_lease.is_in_the_way)
    gpu_lease.close()
    assert not gpu_lease.is_in_the_way
    assert got.wait(120)
    thread.join(120)
