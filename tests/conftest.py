"""What all tests share: property tests have no deadline, for one slow example on a busy machine proves nothing."""

import ctypes
import os
import signal
import sys
from collections.abc import Generator

import psutil
import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

from tests import once

# As in a grade: threads of PyTorch that wait for each other sleep. Where tests outnumber the cores they would spin, and
# one of them took 38 CPU seconds instead of 7. Read when PyTorch is imported, which is later.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Freed memory stays with the process: without this, each temporary tensor is new pages of the system, and the tests of
# numbers took more than twice the CPU time.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
ctypes.CDLL(None).mallopt(_M_MMAP_MAX, 0)
ctypes.CDLL(None).mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)

# In a workflow, commands also write annotations and a summary; a test that is about a workflow says so.
for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
    os.environ.pop(name, None)

# A shell that starts a job in the background has it ignore Ctrl-C, and every process of the tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A ready judge of the developer must not grade for the tests.
os.environ["WARPGRADE_READY"] = "0"

settings.register_profile(
    "warpgrade", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("warpgrade")

_PROCESS_FOLDERS = {"cli", "cutlass", "examples", "gpu", "grading", "sandbox", "service", "zoo"}
_COMPILER_BYTES = 3 << 29
"""What a test that compiles takes at most."""


def pytest_xdist_auto_num_workers() -> int:
    """Run two tests for each core, as far as memory goes: nearly half of the time a test waits for something."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(2 * cores, psutil.virtual_memory().total // _COMPILER_BYTES))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for no doctests in tests: there are none, and each process of a run spends a second on looking."""
    return [each for each in (yield) if not isinstance(each, DoctestModule)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of folders that start processes; elsewhere, tests are marked one by one."""
    for item in items:
        if item.path.parent.name in _PROCESS_FOLDERS:
            item.add_marker(pytest.mark.process)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print the name of a failed test at once: a run that is ended from outside prints no summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        sys.__stderr__.write(f"\nFAILED {report.nodeid} ({report.when})\n")


def pytest_configure() -> None:
    """Make the folder of this run, and the cache of all builds and measurements in it: the developer's is not used."""
    once.begin()
    os.environ.setdefault("WARPGRADE_CACHE", str(once.folder_for("cache")))


def pytest_unconfigure() -> None:
    """Remove the folder of this run, at the end of the process that began it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        once.end()
