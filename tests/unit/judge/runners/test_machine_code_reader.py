"""Disassembly beside the grade: each library once, failures as reasons, and an end that waits for no program."""

import threading

import pytest

from evaluator.deadline import DeadlineReached
from evaluator.errors import JudgeFailed
from evaluator.judge.runners import machine_code_reader
from evaluator.judge.runners.machine_code_reader import MachineCodeReader
from evaluator.records import MachineCode


@pytest.fixture
def reader():
    """Make readers, and end them after the test."""
    made = []

    def of(disassemble):
        made.append(MachineCodeReader(disassemble))
        return made[-1]

    yield of
    for each in made:
        each.close(lambda: None)


def one_kernel(library, *, timeout_s):
    return MachineCode(kernels=1)


def test_each_library_is_read_once_for_a_submission(reader):
    read = []
    reading = reader(lambda library, *, timeout_s: read.append(library) or MachineCode(kernels=1))
    for library in (b"one", b"two", b"one"):
        reading.begin(library)
    assert reading.result() == MachineCode(kernels=2)
    assert read == [b"one", b"two"]
    reading.turn_to_next()
    assert reading.result() == MachineCode()
    reading.begin(b"one")
    assert reading.result() == MachineCode(kernels=1)


def test_nobody_waits_until_the_result_is_asked_for(reader):
    go = threading.Event()
    reading = reader(lambda *_, **__: (go.wait(60), MachineCode(kernels=1))[1])
    reading.begin(b"one")
    go.set()
    assert reading.result() == MachineCode(kernels=1)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (JudgeFailed("the disk is full"), "cuobjdump did not run: the disk is full"),
        (OSError("no space"), "cuobjdump did not run: no space"),
        (DeadlineReached(), "the grade reached its deadline"),
    ],
)
def test_a_failure_ends_no_grade(reader, error, why):
    def fail(*_, **__):
        raise error

    reading = reader(fail)
    reading.begin(b"one")
    assert reading.result() == MachineCode(not_looked_at=why)


def test_the_libraries_of_a_submission_share_a_time_limit(reader, monkeypatch):
    given = []
    now = [0.0]
    monkeypatch.setattr(machine_code_reader.time, "monotonic", lambda: now[0])

    def slow(library, *, timeout_s):
        given.append(timeout_s)
        now[0] += 40.0
        return MachineCode(kernels=1)

    reading = reader(slow)
    for library in (b"one", b"two", b"three"):
        reading.begin(library)
    why = "the disassembly of all libraries took more than 60 s"
    assert reading.result() == MachineCode(kernels=2, not_looked_at=why)
    assert given == [60.0, 20.0]


def test_libraries_beyond_the_size_limit_are_not_kept(reader, monkeypatch):
    monkeypatch.setattr(machine_code_reader, "_MOST_BYTES", 5 << 20)
    reading = reader(one_kernel)
    for number in range(8):
        reading.begin(bytes([number]) * (1 << 20))
    why = "the libraries exceed 5 MiB together"
    assert reading.result() == MachineCode(kernels=5, not_looked_at=why)


def test_the_end_kills_what_runs_and_drops_what_waits():
    started, killed = threading.Event(), threading.Event()
    read = []

    def until_killed(library, *, timeout_s):
        read.append(library)
        started.set()
        assert killed.wait(60)
        return MachineCode()

    reading = MachineCodeReader(until_killed)
    reading.begin(b"running")
    reading.begin(b"waiting")
    assert started.wait(60)
    reading.close(killed.set)
    assert read == [b"running"]
