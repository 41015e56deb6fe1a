"""Turns: never alone with another, no way past a closed gate, and no turn outlives its process."""

import os
import select
import signal
import stat
import threading
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.devices import turns
from evaluator.devices.turns import FileLatch, Hold, Turn, is_awaited

SOON_S = 60.0


class Kernel:
    """The kernel's locks of two files, by holder."""

    def __init__(self):
        self.locks = {"gate": {}, "room": {}}

    def latch(self, name, holder):
        return ModelLatch(self.locks[name], holder)

    def turn(self, holder):
        return Turn(self.latch("gate", holder), self.latch("room", holder))

    def kill(self, holder):
        for lock in self.locks.values():
            lock.pop(holder, None)


class ModelLatch:
    def __init__(self, lock, holder):
        self._lock, self._holder = lock, holder

    def try_lock(self, hold):
        others = [held for holder, held in self._lock.items() if holder != self._holder]
        if others and (hold is Hold.ALONE or Hold.ALONE in others):
            return False
        self._lock[self._holder] = hold
        return True

    def unlock(self):
        self._lock.pop(self._holder, None)


def holds_agree(kernel, turns):
    """The room never has a turn alone with another, and every turn has exactly the locks that it needs."""
    in_room = list(kernel.locks["room"].values())
    assert in_room == [Hold.ALONE] or Hold.ALONE not in in_room
    assert {holder: turn.hold for holder, turn in turns.items() if turn.hold} == kernel.locks["room"]
    assert len(kernel.locks["gate"]) <= 1


STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["shared", "alone", "look", "end", "die"])), min_size=1, max_size=80
)


@given(STEPS)
def test_no_order_of_steps_and_deaths_lets_another_beside_a_turn_alone_or_past_a_closed_gate(steps):
    kernel = Kernel()
    turns = {number: kernel.turn(number) for number in range(4)}
    wanted = {}
    for number, step in steps:
        turn = turns[number]
        before = dict(kernel.locks["room"])
        at_gate = set(kernel.locks["gate"])
        match step:
            case "die":
                kernel.kill(number)
                turns[number] = kernel.turn(number)
                wanted.pop(number, None)
            case "end":
                turn.end()
                wanted.pop(number, None)
            case _ if turn.hold is None:
                if step != "look":
                    wanted.setdefault(number, Hold(step))
                if number in wanted and turn.try_begin(wanted[number]):
                    wanted.pop(number)
        holds_agree(kernel, turns)
        assert set(kernel.locks["gate"]) <= set(wanted), "only a waiting turn closes the gate"
        begun = set(kernel.locks["room"]) - set(before)
        assert not at_gate or begun <= at_gate, "a turn began past a closed gate"
    for turn in turns.values():
        turn.end()
    assert kernel.locks == {"gate": {}, "room": {}}


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.integers(0, 12),
    st.randoms(use_true_random=False),
)
def test_an_endless_stream_of_shared_turns_keeps_none_waiting_alone(lasting, since, order):
    """Every process looks once a round, in any order. A turn alone begins as soon as the longest turn has ended."""
    kernel = Kernel()
    turns = {number: kernel.turn(number) for number in range(len(lasting))}
    until = dict.fromkeys(turns, 0)
    alone = kernel.turn("alone")
    for now in range(since + max(lasting) + 2):
        for holder in order.sample([*turns, "alone"], len(turns) + 1):
            if holder == "alone":
                if now >= since and alone.try_begin(Hold.ALONE):
                    holds_agree(kernel, turns | {"alone": alone})
                    return
                continue
            turn = turns[holder]
            if turn.hold and now >= until[holder]:
                turn.end()
            if turn.hold is None and turn.try_begin(Hold.SHARED):
                until[holder] = now + lasting[holder]
    pytest.fail("shared turns kept a turn alone out")


@given(
    st.lists(st.lists(st.sampled_from(list(Hold)), min_size=1, max_size=4), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
)
def test_all_turns_end_whatever_the_order(plans, order):
    kernel = Kernel()
    turns = {number: kernel.turn(number) for number in range(len(plans))}
    left = {number: list(plan) for number, plan in enumerate(plans)}
    for _ in range(3 * sum(map(len, plans)) + 3):
        for holder in order.sample(list(turns), len(turns)):
            turn = turns[holder]
            if turn.hold:
                turn.end()
                left[holder].pop(0)
            elif left[holder]:
                turn.try_begin(left[holder][0])
        holds_agree(kernel, turns)
    assert not any(left.values())


def test_a_turn_does_not_change_its_kind():
    turn = Kernel().turn("a")
    assert turn.try_begin(Hold.SHARED)
    with pytest.raises(RuntimeError, match="must end"):
        turn.try_begin(Hold.ALONE)
    turn.end()
    assert turn.hold is None
    assert turn.try_begin(Hold.ALONE)


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

    def start(turn, hold, *, begins):
        ready, its_ready = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                assert begins is turn.try_begin(hold)
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


@pytest.mark.parametrize("hold", Hold)
def test_the_death_of_a_process_ends_its_turn(place, child, hold):
    pid = child(place(), hold, begins=True)
    mine = place()
    assert not mine.begin(Hold.ALONE, 0.05)
    kill(pid)
    assert mine.begin(Hold.ALONE, SOON_S)
    mine.end()


def test_a_process_that_dies_at_the_gate_opens_it(place, gate, child, monkeypatch):
    monkeypatch.setattr(turns, "_PATIENCE_S", 600.0)
    mine = place()
    assert mine.begin(Hold.SHARED, 0.0)
    pid = child(place(), Hold.ALONE, begins=False)
    assert is_awaited(gate)
    assert not place().begin(Hold.SHARED, 0.05)
    kill(pid)
    assert not is_awaited(gate)
    beside = place()
    assert beside.begin(Hold.SHARED, SOON_S)
    beside.end()
    mine.end()


def test_who_gives_up_leaves_the_gate_open(place, gate):
    mine, other = place(), place()
    assert mine.begin(Hold.SHARED, 0.0)
    assert not other.begin(Hold.ALONE, 0.05)
    assert not is_awaited(gate)
    mine.end()


def test_an_interrupt_while_waiting_opens_the_gate(place, gate, monkeypatch):
    def interrupt(_):
        assert is_awaited(gate)
        raise KeyboardInterrupt

    mine, other = place(), place()
    assert mine.begin(Hold.SHARED, 0.0)
    monkeypatch.setattr("evaluator.devices.turns.time.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        other.begin(Hold.ALONE, SOON_S)
    assert not is_awaited(gate)
    mine.end()


def test_a_child_with_a_copy_of_the_file_does_not_prolong_the_turn(place):
    mine = place()
    assert mine.begin(Hold.ALONE, 0.0)
    pid = os.fork()
    if pid == 0:
        time.sleep(10 * SOON_S)
        os._exit(0)
    try:
        mine.end()
        other = place()
        assert other.begin(Hold.ALONE, 0.0)
        other.end()
    finally:
        kill(pid)


def test_turns_of_threads_on_files_exclude_each_other(place):
    """Eight threads take turns of both kinds, and count the turns in the room beside their own."""
    inside, faults, seen, counting = Counter(), [], Counter(), threading.Lock()

    def take(number):
        turn = place()
        for count in range(25):
            hold = Hold.ALONE if (number + count) % 3 == 0 else Hold.SHARED
            if not turn.begin(hold, SOON_S, 0.0005):
                faults.append("waited too long")
                return
            with counting:
                inside[hold] += 1
                seen[hold, inside.total() > 1] += 1
                if inside[Hold.ALONE] and inside.total() > 1:
                    faults.append(f"{inside} at once")
            time.sleep(0.0005)
            with counting:
                inside[hold] -= 1
            turn.end()

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SOON_S)
    assert faults == []
    assert seen[Hold.SHARED, True], "no shared turns were side by side"
    assert seen[Hold.ALONE, False]


def test_no_link_is_followed(tmp_path):
    (tmp_path / "gate").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="gate"):
        FileLatch(tmp_path / "gate").try_lock(Hold.SHARED)
    assert not (tmp_path / "elsewhere").exists()


def test_other_users_may_lock_a_file_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        latch = FileLatch(tmp_path / "gate")
        assert latch.try_lock(Hold.ALONE)
        latch.unlock()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "gate").stat().st_mode) == 0o644


def test_a_process_that_stopped_at_the_gate_does_not_keep_an_empty_room(tmp_path, monkeypatch):
    monkeypatch.setattr(turns, "_PATIENCE_S", 0.05)
    gate, room = FileLatch(tmp_path / "gate"), FileLatch(tmp_path / "room")
    assert gate.try_lock(Hold.ALONE)  # and never goes on
    late = Turn(FileLatch(tmp_path / "gate"), room)
    assert late.begin(Hold.ALONE, 30.0)
    late.end()


def test_an_attempt_without_waiting_passes_a_closed_gate(tmp_path):
    gate = FileLatch(tmp_path / "gate")
    assert gate.try_lock(Hold.ALONE)
    turn = Turn(FileLatch(tmp_path / "gate"), FileLatch(tmp_path / "room"))
    assert turn.begin(Hold.ALONE, 0.0)


def test_a_pipe_in_the_place_of_a_lock_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "gate")
    turn = Turn(FileLatch(tmp_path / "gate"), FileLatch(tmp_path / "room"))
    assert turn.begin(Hold.ALONE, 1.0)
