"""Memory that no process shows as its own is counted, or cannot be made."""

import os

import pytest
from confinement import tell

from evaluator.sandbox import Limits

MIB = 1 << 20
_KILLED = ("SIGKILL", True, False)
"""Signal, out of memory, and whether the judge ended the runner."""


@pytest.mark.parametrize("hoard", ["unmapped_pages", "dead_first_thread"])
def test_memory_that_no_process_shows_is_counted(fork_server, spawn, hoard):
    assert _ending(spawn, fork_server, hoard) == _KILLED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is told what a file that is mapped in part holds")
def test_memory_of_which_a_page_is_mapped_is_counted(full, spawn):
    assert _ending(spawn, full, "unmapped_files") == _KILLED


def _ending(spawn, fork_server, hoard):
    runner = spawn(fork_server, f"hoards:{hoard}", limits=Limits(held_bytes=400 * MIB))
    tell(runner, 640 * MIB)
    ending = runner.wait_exit(120)
    assert ending is not None
    return ending.signal, ending.out_of_memory, ending.by_judge


@pytest.mark.parametrize("hoard", ["unmapped_pages", "unmapped_files", "dead_first_thread"])
def test_within_the_limit_all_of_it_is_allowed(fork_server, ask, hoard):
    runner_says = ask(fork_server, f"hoards:{hoard}", 32 * MIB, limits=Limits(held_bytes=2048 * MIB))
    assert runner_says == "held"


def test_nothing_waits_in_queues_that_outlive_their_senders(full, ask):
    results = ask(full, "hoards:queues")
    assert results.pop("bound and listening") == results.pop("pair") == "allowed"
    assert set(results.values()) == {"EPERM"}, results


def test_locks_of_bytes_of_a_file_are_pretended(fork_server, ask):
    """Each is memory of the kernel, and one on every other byte cannot be joined with its neighbours."""
    assert ask(fork_server, "hoards:locks_of_bytes", 64) == {"taken": 64, "of another process": 0}


def test_threads_share_one_table_of_files(fork_server, ask):
    """The meter counts the queues of one table for each process."""
    assert ask(fork_server, "hoards:thread_with_files_of_its_own") == os.strerror(1)
