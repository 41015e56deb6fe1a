"""The monitor waits for the end of a judge that released the GPU, and reports processes that stay."""

from types import SimpleNamespace

import pytest

from evaluator.devices.gpu import GpuState
from evaluator.findings import Code
from evaluator.judge.clock import gpu_monitor
from evaluator.judge.clock.gpu_monitor import GpuMonitor


def with_processes(*processes):
    return GpuState(1980, 2619, 40, (), 0, processes, mig=False)


@pytest.fixture
def monitor(monkeypatch):
    def made(states, own=frozenset()):
        left, pauses_s = iter(states), []
        last = []

        def state(_):
            last[:] = [next(left, *last)]
            return last[0]

        monkeypatch.setattr(gpu_monitor, "state", state)
        monkeypatch.setattr(gpu_monitor.time, "sleep", pauses_s.append)
        return GpuMonitor(SimpleNamespace(), lambda: own), pauses_s

    return made


@pytest.mark.parametrize(
    ("states", "own", "looks", "shared"),
    [
        ([with_processes()], frozenset(), 0, False),
        ([with_processes(7)], frozenset({7}), 0, False),
        ([with_processes(7), with_processes(7), with_processes()], frozenset(), 2, False),
        ([with_processes(7)], frozenset(), 20, True),
    ],
)
def test_a_process_that_ends_within_a_second_does_not_share_the_gpu(monitor, states, own, looks, shared):
    found, pauses_s = monitor(states, own)
    assert len(pauses_s) == looks
    codes = [each.code for each in found.findings(None)]
    assert (Code.GPU_SHARED.value in codes) is shared
