"""Memory of all kinds is counted for a runner as a whole, and gone when it is dead."""

import mmap
import os
import time
from pathlib import Path

import psutil
import pytest
from confinement import below_the_starter, hear, tell

from evaluator.errors import JudgeFailed, OutlivesKill
from evaluator.sandbox import Limits, confined_process
from evaluator.sandbox.init.memory_meter import MemoryMeter

MIB = 1 << 20
PLAIN_DEVICE = Path("/dev/null")
"""Any device has a runner behave as if it were a GPU's."""


def test_no_memory_is_made_that_no_limit_counts(fork_server, ask):
    results = ask(fork_server, "burdens:hide_memory")
    for name in ("plain message", "pipe"):
        assert results.pop(name) == "allowed"
    for name in ("memfd", "secret"):
        assert results.pop(name) == "ENOSYS"
    assert results.pop("queue of a socket") == "unchanged"
    assert set(results.values()) == {"EPERM"}, results


def test_with_a_gpu_memfds_are_there_and_cannot_be_sent(fork_server, ask):
    """CUDA starts with a memfd."""
    results = ask(fork_server, "burdens:hide_memory", devices=[PLAIN_DEVICE])
    assert results["memfd"] == "allowed"
    assert results["descriptor in a message"] == results["messages"] == "EPERM"


@pytest.mark.parametrize(
    ("load", "devices"),
    [((6, 150 * MIB, 0), ()), ((0, 0, 900 * MIB), (PLAIN_DEVICE,))],
    ids=["several processes", "memfds"],
)
def test_a_runner_that_holds_too_much_is_killed(fork_server, spawn, load, devices):
    runner = spawn(fork_server, "burdens:share_the_load", limits=Limits(held_bytes=800 * MIB), devices=devices)
    tell(runner, load)
    ending = runner.wait_exit(120)
    assert ending is not None
    assert (ending.signal, ending.out_of_memory, ending.by_judge) == ("SIGKILL", True, False)
    runner.kill()
    assert runner.members() == frozenset()


def test_a_runner_with_too_many_mappings_is_killed(fork_server, spawn):
    """The kernel holds memory for each, and 210 processes with as many took 82 s to end."""
    runner = spawn(fork_server, "hoards:mappings_of_many")
    tell(runner, (24, 60_000))
    ending = runner.wait_exit(300)
    assert ending is not None
    assert (ending.signal, ending.out_of_memory, ending.by_judge) == ("SIGKILL", True, False)
    runner.kill()
    assert runner.members() == frozenset()


@pytest.mark.parametrize(("left", "is_the_submissions"), [(9, True), (2, False)])
def test_many_processes_that_end_slowly_are_the_submissions_doing(full, spawn, monkeypatch, left, is_the_submissions):
    runner = spawn(full, "sleeper")
    with monkeypatch.context() as patch:
        patch.setattr(confined_process.messages, "ready", lambda *_: False)
        patch.setattr(runner, "members", lambda: frozenset(range(left)))
        with pytest.raises(JudgeFailed) as raised:
            runner.kill()
        assert isinstance(raised.value, OutlivesKill) == is_the_submissions
        if is_the_submissions:
            runner.kill()  # It waits no more.
            assert runner not in full._alive


def test_memory_is_counted_once_however_many_share_it():
    """The sum of all processes is an upper bound; the exact one decides."""
    held = mmap.mmap(-1, 64 * MIB)
    held.write(bytes(64 * MIB))
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        for _ in range(3):
            if os.fork() == 0:
                assert sum(held[::4096]) == 0
                os.write(writer, b"!")
                time.sleep(300)
        os.write(writer, b"!")
        time.sleep(300)
    try:
        assert sum(len(os.read(reader, 1)) for _ in range(4)) == 4
        meter = MemoryMeter()
        pids = list(meter._below(parent))
        assert sorted(pids) == sorted(process.pid for process in psutil.Process(parent).children())
        assert all(64 * MIB <= meter._quick_share(pid).shared_bytes <= 70 * MIB for pid in pids)
        # This process has it mapped, too.
        assert 32 * MIB <= sum(meter._exact_share(pid).shared_bytes for pid in pids) <= 64 * MIB
        others = sum(meter._exact_share(pid).own_bytes + meter._quick_share(pid).other_bytes for pid in pids)
        assert not meter.exceeds(parent, others + 80 * MIB, memfds=False)
        assert meter.exceeds(parent, others // 2, memfds=False)
    finally:
        for process in (*psutil.Process(parent).children(), psutil.Process(parent)):
            process.kill()
        os.waitpid(parent, 0)


def test_memfds_count_once_and_without_being_mapped():
    descriptor = os.memfd_create("hidden")
    os.write(descriptor, bytes(8 * MIB))
    copy = os.dup(descriptor)
    try:
        assert 8 * MIB <= MemoryMeter()._memfd_bytes([os.getpid(), os.getpid()]) < 9 * MIB
    finally:
        os.close(descriptor)
        os.close(copy)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can reach into a runner's files")
def test_a_runner_is_not_taken_for_dead_while_its_files_are_in_memory(full, spawn, monkeypatch):
    """What is freed later would be freed while something is timed."""
    before = set(psutil.Process(full._process.pid).children())
    runner = spawn(full, "burdens:hold_a_file")
    tell(runner, 8 * MIB)
    assert hear(runner) == "held"
    pid = below_the_starter(full, before)[-1].pid
    with monkeypatch.context() as hasty, Path(f"/proc/{pid}/root/dev/shm/held").open("rb"):
        hasty.setattr(confined_process, "_KILL_S", 10.0)
        with pytest.raises(JudgeFailed, match="still holds its files in memory"):
            runner.kill()
    runner.kill()
    assert runner.poll_exit() is not None
