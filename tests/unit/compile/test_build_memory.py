"""The memory of one build, as a share of the machine."""

import pytest

from evaluator.compile import build_memory
from evaluator.judge.runners import fork_servers
from evaluator.judge.runners.fork_servers import SandboxedTools
from evaluator.records import DeviceKind
from evaluator.sandbox import Limits
from tests.unit.compile.tool_results import ended

GIB = 1 << 30


@pytest.fixture
def machine(monkeypatch):
    def of(gib, cores):
        monkeypatch.setattr(build_memory, "_machine_bytes", lambda: gib * GIB)
        monkeypatch.setattr(build_memory.os, "sched_getaffinity", lambda _: range(cores))

    yield of
    build_memory.share_machine(1)


@pytest.mark.parametrize(
    ("gib", "cores", "builds", "held", "compilers"), [(24, 2, 2, 9, 2), (128, 16, 14, 6, 2), (2000, 64, 8, 64, 21)]
)
def test_builds_of_all_jobs_together_leave_memory(machine, gib, cores, builds, held, compilers):
    machine(gib, cores)
    build_memory.share_machine(builds)
    assert build_memory.held_bytes() // GIB == held
    assert build_memory.compilers_at_once() == compilers


def test_a_build_in_the_sandbox_has_the_share(machine, monkeypatch, tmp_path):
    machine(24, 2)
    seen = []

    def run_tool(_, argv, *, limits, **__):
        seen.append(limits)
        return ended()

    monkeypatch.setattr(fork_servers, "run_tool", run_tool)
    for builds in (1, 2):
        build_memory.share_machine(builds)
        SandboxedTools(None, DeviceKind.CPU)(
            ["ninja"], work=tmp_path, timeout_s=1.0, limits=Limits(held_bytes=64 * GIB)
        )
    assert [limits.held_bytes // GIB for limits in seen] == [18, 9]
