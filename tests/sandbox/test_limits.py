"""What a runner cannot use up, and what it prints."""

import threading
import time

import pytest
from confinement import hear, tell

from evaluator.sandbox import Limits, available_layers

MIB = 1 << 20


def test_processes_are_counted(fork_server, ask):
    # Without a user for the runner, the count includes the processes of this user, and some processes may end.
    others = 0 if fork_server.layers.own_user else available_layers._tasks_of_this_user()
    result, children = ask(fork_server, "burdens:fork_bomb", limits=Limits(processes=20))
    assert result == "EAGAIN"
    assert children <= 20 + others


def test_a_fork_bomb_is_killed(fork_server, spawn):
    child = spawn(fork_server, "burdens:endless_fork_bomb", limits=Limits(processes=50))
    assert hear(child) == "lit"
    time.sleep(0.2)
    start = time.monotonic()
    child.kill()
    assert time.monotonic() - start < 60


def test_memory_is_an_error_and_not_a_dead_machine(fork_server, ask):
    limits = Limits(memory_bytes=4 << 30)
    assert ask(fork_server, "burdens:allocate", 3 << 30, limits=limits) == "allowed"
    assert ask(fork_server, "burdens:allocate", 8 << 30, limits=limits) == "ENOMEM"


def test_a_file_has_a_largest_size(fork_server, ask):
    assert ask(fork_server, "burdens:write_large_file", limits=Limits(file_bytes=4 * MIB)) == "EFBIG"


def test_the_private_folder_has_a_quota(full, ask):
    result, files_written = ask(full, "burdens:fill_private", limits=Limits(private_folder_bytes=8 * MIB))
    assert result == "ENOSPC"
    assert files_written <= 8


def test_a_flood_is_drained_and_kept_in_part(fork_server, spawn):
    total = 1 << 30
    threads = threading.active_count()
    child = spawn(fork_server, "burdens:flood")
    tell(child, total)
    assert hear(child) == "printed"
    child.kill()
    output = child.output()
    assert output.total_bytes == total + len("first words\n") + len("\x1b[2Jlast words\n")
    assert output.text.startswith("first words\nxxx")
    assert output.text.endswith("x\\x1b[2Jlast words\n")
    assert "bytes left out" in output.text
    assert len(output.text) < 40_000
    assert threading.active_count() <= threads


def test_both_streams_are_kept(fork_server, spawn):
    child = spawn(fork_server, "prints")
    assert hear(child) == "printed"
    child.wait_exit(60)
    child.kill()
    assert child.output().text == "to stdout\nto stderr\nno newline"


@pytest.mark.parametrize(
    ("probe", "question", "expected"),
    [
        ("segfault", None, (None, "SIGSEGV")),
        ("abort", None, (None, "SIGABRT")),
        ("exit_code", 7, (7, None)),
        ("exit_code", 0, (0, None)),
        ("raises", None, (1, None)),
    ],
)
def test_the_end_is_told(fork_server, spawn, probe, question, expected):
    child = spawn(fork_server, probe)
    if question is not None:
        tell(child, question)
    ending = child.wait_exit(60)
    assert (ending.exit_code, ending.signal) == expected
    assert not ending.by_judge
    assert not ending.out_of_memory
    assert child.kill() == ending
    if probe == "raises":
        assert "ValueError: an error of the entry's own" in child.output().text
    if probe == "abort":
        assert child.output().text.startswith("about to abort\n")
