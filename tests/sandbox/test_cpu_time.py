"""The CPU time of confined processes as the kernel counts it, and limits that neighbours do not use up."""

import shutil
import time

import pytest
from confinement import make_fork_server

from evaluator.sandbox import run_tool

pytestmark = pytest.mark.slow
# Time of both kinds: reading the time is itself mostly the system's.
_BURN_1_S = "perl -e 'while ((times)[0] + (times)[1] < 1) {}'"


@pytest.fixture(scope="module")
def fork_server():
    with make_fork_server(preload=()) as made:
        yield made


@pytest.fixture
def work(tmp_path):
    tmp_path.chmod(0o755)
    yield (folder := tmp_path / "work").mkdir() or folder
    shutil.rmtree(folder)


@pytest.fixture
def total_s(fork_server, work):
    """Run a shell program up to its word, then return the CPU time of all its processes."""

    def run(program):
        process = fork_server.execute(["/bin/sh", "-c", f"{program}\nsleep 600"], work=work)
        try:
            until = time.monotonic() + 120
            while "on" not in process.output().text:
                assert time.monotonic() < until, process.output().text
                time.sleep(0.01)
            return process.cpu_time().total_s
        finally:
            process.kill()

    return run


@pytest.mark.parametrize(
    "program",
    [
        f"{_BURN_1_S}; echo on",
        f"({_BURN_1_S}; echo on) &",
        f"sh -c '({_BURN_1_S.replace(chr(39), chr(34))}; echo on) & exit'",
        'perl -e \'$0 = ") S 1 1 1 1 1 1 1"; while ((times)[0] + (times)[1] < 1) {} $| = 1; print "on"; sleep 600\'',
    ],
    ids=["an ended child", "a live child", "an orphan", "a process with a forged name"],
)
def test_the_time_of_every_process_counts(total_s, program):
    assert total_s(program) >= 0.95


def test_a_sleeping_program_has_used_no_time(total_s):
    assert total_s("echo on") < 0.5


def test_a_program_that_computes_for_too_long_is_ended(fork_server, work):
    assert run_tool(fork_server, ["/usr/bin/perl", "-e", "1 while 1"], work=work, timeout_s=0.5).timed_out


def test_time_that_a_program_does_not_get_is_not_its_own(fork_server, work):
    """A program beside busy neighbours waits for a core; here it sleeps, for more wall time than the limit."""
    assert run_tool(fork_server, ["/bin/sleep", "4"], work=work, timeout_s=2.0).ok
