"""Time limits of CPU time: what counts, what neighbours change, and who cannot write the numbers."""

import pytest

from evaluator.sandbox import time_limit
from evaluator.sandbox.time_limit import PATIENCE, CpuTime, TimeLimit, cpu_time_below


class Machine:
    """A process on a machine that gives it `share` of the wall time, in `threads` equally busy threads."""

    def __init__(self, share, threads=1):
        self.share, self.threads, self.now = share, threads, 0.0

    def cpu_time(self):
        each_s = self.now * self.share
        return CpuTime(each_s * self.threads, dict.fromkeys(range(self.threads), each_s))

    def wall_s_until(self, limit):
        while True:
            limit.spend(wait_s := limit.wait_s)
            self.now += wait_s
            if limit.reached():
                return self.now


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(time_limit.os, "sched_getaffinity", lambda _: {0, 1})


@pytest.mark.parametrize(
    ("share", "threads", "ended_s"),
    [(1.0, 1, 10.5), (1.0, 2, 10.5), (0.5, 1, 20.5), (0.25, 2, 40.5), (0.1, 1, 60.0), (0.0, 1, 60.0), (1.0, 8, 3.0)],
)
def test_a_limit_ends_after_the_same_work_whatever_the_neighbours_take(share, threads, ended_s):
    """Two threads on two cores take as long as one; eight on two cores, if these ran at once, four times as long."""
    machine = Machine(share, threads)
    limit = TimeLimit(10.0, machine.cpu_time)
    assert machine.wall_s_until(limit) == pytest.approx(ended_s, abs=0.51)
    assert str(limit) == ("longer than 60 s" if share < 0.2 else "more than 10 s of CPU time")


def test_time_on_a_gpu_is_wall_time():
    limit = TimeLimit(2.0, None)
    assert limit.wait_s == limit.left_s == 2.0
    limit.spend(2.0)
    assert limit.reached()
    assert str(limit) == "longer than 2 s"


def test_processes_that_vanish_take_nothing_back():
    """A child whose parent ignores SIGCHLD leaves no time behind."""
    readings = iter([CpuTime(0.0, {}), CpuTime(2.5, {}), *[CpuTime(0.0, {})] * 100])
    limit = TimeLimit(1.0, lambda: next(readings))
    limit.spend(0.25)
    assert not limit.reached()
    limit.spend(0.25)
    assert limit.reached()
    limit.spend(0.25)
    assert limit.reached()
    assert limit.left_s == PATIENCE * 1.0 - 0.75


def test_a_name_is_no_number(tmp_path, monkeypatch):
    monkeypatch.setattr(time_limit, "_PROC", tmp_path)
    monkeypatch.setattr(time_limit, "_TICK_S", 0.01)
    for folder, name, ticks, children in [
        ("1/task/1", "warden", "0 0 0 0", "2"),
        ("2/task/2", "mine) R 1 1 1 1 1 1 1 1 1 1 1 1", "100 20 30 4", ""),
        ("2/task/3", "(", "60 0 30 4", ""),
    ]:
        (place := tmp_path / folder).mkdir(parents=True)
        text = f"2 ({name}) S 1 1 1 0 -1 0 1 2 3 4 {ticks} 20 0 1 0 99 1000"
        (place / "stat").write_text(text)
        (place / "children").write_text(children)
        if folder == "2/task/2":
            (tmp_path / "2" / "stat").write_text(text)
    assert cpu_time_below(1) == CpuTime(1.54, {2: 1.2, 3: 0.6})
    assert cpu_time_below(7) == CpuTime(0.0, {})
