"""Turns: one at a time, no way past a closed gate, and no turn outlives its process."""

import fcntl
import os
import select
import signal
import stat
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.devices import turns
from evaluator.devices.turns import FileLatch, Turn

SOON_S = 60.0


class Kernel:
    """The kernel's locks of two files: the set of each file's holders."""

    def __init__(self):
        self.locks = {"gate": set(), "room": set()}

    def turn(self, holder):
        return Turn(*(ModelLatch(lock, holder) for lock in self.locks.values()))

    def kill(self, holder):
        for lock in self.locks.values():
            lock.discard(holder)


class ModelLatch:
    def __init__(self, lock, holder):
        self._lock, self._holder = lock, holder

    def try_lock(self):
        if self._lock - {self._holder}:
            return False
        self._lock.add(self._holder)
        return True

    def unlock(self):
        self._lock.discard(self._holder)


def locks_agree(kernel, turns):
    """The room has one turn at most, and every turn has exactly the locks that it needs."""
    assert {holder for holder, turn in turns.items() if turn.has_begun} == kernel.locks["room"]
    assert len(kernel.locks["room"]) <= 1
    assert len(kernel.locks["gate"]) <= 1


STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["want", "look", "end", "die"])), min_size=1, max_size=80)


@given(STEPS)
def test_no_order_of_steps_and_deaths_lets_two_in_or_one_past_a_closed_gate(steps):
    kernel = Kernel()
    turns = {number: kernel.turn(number) for number in range(4)}
    waiting = set()
    for number, step in steps:
        turn = turns[number]
        before = set(kernel.locks["room"])
        at_gate = set(kernel.locks["gate"])
        match step:
            case "die":
                kernel.kill(number)
                turns[number] = kernel.turn(number)
                waiting.discard(number)
            case "end":
                turn.end()
                waiting.discard(number)
            case _ if not turn.has_begun:
                if step == "want":
                    waiting.add(number)
                if number in waiting and turn.try_begin():
                    waiting.discard(number)
        locks_agree(kernel, turns)
        assert kernel.locks["gate"] <= waiting, "only a waiting turn closes the gate"
        begun = kernel.locks["room"] - before
        assert not at_gate or begun <= at_gate, "a turn began past a closed gate"
    for turn in turns.values():
        turn.end()
    assert kernel.locks == {"gate": set(), "room": set()}


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_all_turns_end_whatever_the_order(plans, order):
    kernel = Kernel()
    turns = {number: kernel.turn(number) for number in range(len(plans))}
    left = dict(enumerate(plans))
    for _ in range(3 * sum(plans) + 3):
        for holder in order.sample(list(turns), len(turns)):
            turn = turns[holder]
            if turn.has_begun:
                turn.end()
                left[holder] -= 1
            elif left[holder]:
                turn.try_begin()
        locks_agree(kernel, turns)
    assert not any(left.values())


def test_a_turn_ends_before_the_next_begins():
    turn = Kernel().turn("a")
    assert turn.try_begin()
    with pytest.raises(RuntimeError, match="must end"):
        turn.try_begin()
    turn.end()
    assert not turn.has_begun
    assert turn.try_begin()


@pytest.fixture
def place(tmp_path):
    return lambda: Turn(FileLatch(tmp_path / "gate"), FileLatch(tmp_path / "room"))


@pytest.fixture
def gate(tmp_path):
    return FileLatch(tmp_path / "gate")


@pytest.fixture
def child():
    """Start a process that takes a turn and then sleeps. The process is killed at the end of the test."""
    started = []

    def start(turn, *, begins):
        ready, its_ready = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                assert begins is turn.try_begin()
                os.write(its_ready, b".")
                time.sleep(10 * SOON_S)
            finally:
                os._exit(1)
        os.close(its_ready)
        try:
            assert select.select([ready], [], [], SOON_S)[0]
            assert os.read(ready, 1) == b"."
        finally:
            os.close(ready)
            started.append(pid)
        return pid

    yield start
    for pid in started:
        kill(pid)


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def test_the_death_of_a_process_ends_its_turn(place, child):
    pid = child(place(), begins=True)
    mine = place()
    assert not mine.begin(0.05)
    kill(pid)
    assert mine.begin(SOON_S)
    mine.end()


def test_a_process_that_dies_at_the_gate_opens_it(place, gate, child, monkeypatch):
    monkeypatch.setattr(turns, "_PATIENCE_S", 600.0)
    mine = place()
    assert mine.begin(0.0)
    pid = child(place(), begins=False)
    assert not gate.is_free()
    mine.end()
    late = place()
    assert not late.begin(0.05), "the turn at the gate is the next"
    kill(pid)
    assert gate.is_free()
    assert late.begin(SOON_S)
    late.end()


def test_lookers_do_not_see_each_other(tmp_path):
    looking, other = (FileLatch(tmp_path / "gate") for _ in range(2))
    assert looking._try(fcntl.LOCK_SH)
    assert other.is_free()


def test_who_gives_up_leaves_the_gate_open(place, gate):
    mine, other = place(), place()
    assert mine.begin(0.0)
    assert not other.begin(0.05)
    assert gate.is_free()
    mine.end()


def test_who_must_not_wait_leaves_the_gate_alone(place, tmp_path):
    """The holder of a GPU gives the GPU back when it finds the gate closed: the attempt would cost a lease."""
    mine, other = place(), place()
    assert mine.begin(0.0)
    assert not other.begin(0.0)
    assert not (tmp_path / "gate").exists()
    mine.end()
    assert other.begin(0.0)
    with pytest.raises(RuntimeError, match="must end"):
        other.begin(0.0)
    other.end()


def test_an_interrupt_while_waiting_opens_the_gate(place, gate, monkeypatch):
    def interrupt(_):
        assert not gate.is_free()
        raise KeyboardInterrupt

    mine, other = place(), place()
    assert mine.begin(0.0)
    monkeypatch.setattr("evaluator.devices.turns.time.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        other.begin(SOON_S)
    assert gate.is_free()
    mine.end()


def test_a_child_with_a_copy_of_the_file_does_not_prolong_the_turn(place):
    mine = place()
    assert mine.begin(0.0)
    pid = os.fork()
    if pid == 0:
        time.sleep(10 * SOON_S)
        os._exit(0)
    try:
        mine.end()
        other = place()
        assert other.begin(0.0)
        other.end()
    finally:
        kill(pid)


def test_turns_of_threads_on_files_exclude_each_other(place):
    """Eight threads take turns, and count the turns in the room."""
    inside, faults = [], []

    def take():
        turn = place()
        for _ in range(25):
            if not turn.begin(SOON_S, 0.0005):
                faults.append("waited too long")
                return
            inside.append(turn)
            if len(inside) > 1:
                faults.append(f"{len(inside)} at once")
            time.sleep(0.0005)
            inside.remove(turn)
            turn.end()

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SOON_S)
    assert faults == []


def test_no_link_is_followed(tmp_path):
    (tmp_path / "gate").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="gate"):
        FileLatch(tmp_path / "gate").try_lock()
    assert not (tmp_path / "elsewhere").exists()


def test_other_users_may_lock_a_file_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        latch = FileLatch(tmp_path / "gate")
        assert latch.try_lock()
        latch.unlock()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "gate").stat().st_mode) == 0o644


def test_a_process_that_stopped_at_the_gate_does_not_keep_an_empty_room(tmp_path, monkeypatch):
    monkeypatch.setattr(turns, "_PATIENCE_S", 0.05)
    gate, room = FileLatch(tmp_path / "gate"), FileLatch(tmp_path / "room")
    assert gate.try_lock()  # and never goes on
    late = Turn(FileLatch(tmp_path / "gate"), room)
    assert late.begin(30.0)
    late.end()


def test_an_attempt_without_waiting_passes_a_closed_gate(tmp_path):
    gate = FileLatch(tmp_path / "gate")
    assert gate.try_lock()
    turn = Turn(FileLatch(tmp_path / "gate"), FileLatch(tmp_path / "room"))
    assert turn.begin(0.0)


def test_a_pipe_in_the_place_of_a_lock_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "gate")
    turn = Turn(FileLatch(tmp_path / "gate"), FileLatch(tmp_path / "room"))
    assert turn.begin(1.0)
