"""A runner keeps to the cores, and to the place in line, that it was started with."""

import os

import pytest
from confinement import hear, make_fork_server


@pytest.fixture
def on_one_core(fork_server):
    """A fork server bound to one core, as in the workers of `batch --jobs`; runners inherit the core."""
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("there is one core alone")
    os.sched_setaffinity(fork_server._process.pid, {min(before)})
    yield min(before)
    os.sched_setaffinity(fork_server._process.pid, before)


def test_a_runner_cannot_compute_on_its_neighbours_cores(fork_server, on_one_core, ask):
    before, said, found, child = ask(fork_server, "burdens:take_other_cores")
    assert before[:2] == [str(on_one_core), os.SCHED_OTHER]
    assert found == [before, before]
    assert child == 0
    # Programs that ask for their threads' sake are told that it was done.
    assert set(said.values()) == {"allowed"}


def test_threads_that_ask_to_be_bound_compute_all_the_same():
    """OpenMP binds its threads where the environment says so."""
    bound = {"OMP_NUM_THREADS": "2", "OMP_PROC_BIND": "true", "OMP_PLACES": "cores", "GOMP_CPU_AFFINITY": "0-1"}
    with make_fork_server(environment=bound) as fork_server:
        child = fork_server.spawn("probes:torch_works")
        try:
            assert hear(child) == [2_000_000.0, 512.0**3, 2]
        finally:
            child.kill()
