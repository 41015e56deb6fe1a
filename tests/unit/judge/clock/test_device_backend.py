from types import SimpleNamespace

import pytest

from evaluator.judge.clock import device_backend
from evaluator.judge.clock.device_backend import CallSizes, GpuBackend
from evaluator.records import L2Inputs, L2Rule

GIB, MIB = 1 << 30, 1 << 20
H200 = 139 * GIB


@pytest.fixture
def planned(monkeypatch):
    """Plan for calls on a GPU of which nothing but its memory is known here."""
    monkeypatch.setattr(device_backend, "FusedComparison", lambda _: SimpleNamespace(begin=None))

    def made(sizes, free_bytes, total_bytes, l2=L2Rule.COLD):
        properties = SimpleNamespace(L2_cache_size=64 * MIB)
        monkeypatch.setattr(device_backend.torch.cuda, "get_device_properties", lambda _: properties)
        monkeypatch.setattr(device_backend.torch.cuda, "mem_get_info", lambda: (free_bytes, total_bytes))
        return GpuBackend(sizes, SimpleNamespace(kernels=b"", library=None), l2)

    return made


@pytest.fixture
def regions(monkeypatch):
    """Sizes of the regions on the GPU that a backend allocates: inputs, outputs."""
    sizes = []

    def closing(*given):
        sizes.extend(given[1:])
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(device_backend, "DeviceRegion", closing)
    monkeypatch.setattr(device_backend, "HostRegion", closing)
    return sizes


@pytest.mark.parametrize(
    ("gib", "peak_gib", "free", "total", "there_is"),
    [
        (0.03, 0.03, H200, H200, True),
        (0.5, 0.5, H200, H200, True),
        (0.5, 3.0, H200, H200, True),
        (0.5, 4.0, H200, H200, True),
        (0.5, 10.0, H200, H200, False),  # 26 GiB each, of which temporaries are 19.
        (6.0, 6.0, H200, H200, False),  # relu, 4096 x 393216: 25 GiB each.
        (0.5, 0.5, 4 * GIB, H200, False),
        (0.03, 0.03, 12 * GIB, 12 * GIB, True),
        (0.5, 0.5, 24 * GIB, 24 * GIB, False),
    ],
)
def test_runners_wait_beside_others_only_where_they_are_small(planned, gib, peak_gib, free, total, there_is):
    size = int(gib * GIB)
    assert planned(CallSizes(size, size, int(peak_gib * GIB)), free, total).room_for(2) is there_is


@pytest.mark.parametrize(
    ("peak_gib", "free_gib", "room_gib"),
    [
        (1.0, 139.0, 2.25),  # Nothing but its output: the last call's stays alive, and a little is free.
        (0.0, 139.0, 2.25),
        (2.5, 139.0, 5.25),  # A gibibyte and a half of temporaries, twice.
        (2.5, 11.375, 5.25),  # A context, two inputs with room to move in, the arena, and as much as its temporaries.
        (2.5, 9.375, 4.25),  # There is no room for all of those,
        (2.5, 4.0, 2.25),  # or for any.
        (61.0, 79.375, 62.25),  # Half of what is left would not do for once.
        (61.0, 59.375, 56.25),
    ],
)
@pytest.mark.parametrize("judge_gib", [0, 3])
def test_temporaries_do_not_crowd_outputs_out_of_shared_memory(
    planned, regions, peak_gib, free_gib, room_gib, judge_gib
):
    sizes = CallSizes(GIB, GIB, int(peak_gib * GIB), judge_gib * GIB)
    with planned(sizes, int((free_gib + judge_gib) * GIB), H200).memory():
        pass
    assert regions[1] == room_gib * GIB


@pytest.mark.parametrize(
    ("mib", "free_gib", "calls"),
    [
        (0.25, 139, 32),
        (16, 139, 32),
        (64, 139, 8),
        (300, 139, 4),
        (700, 139, 2),
        (1024, 139, 1),
        (300, 30, 1),
        (64, 12, 3),
        (0.25, 3, 32),
        (0.25, 1, 1),
    ],
)
def test_windows_of_many_calls_take_two_gibibytes_and_of_a_few_calls_six(planned, regions, mib, free_gib, calls):
    size = int(mib * (1 << 20))
    backend = planned(CallSizes(size, size), free_gib * GIB, H200)
    assert backend.window_calls == calls
    with backend.memory() as memory:
        assert memory.window_calls == calls
    inputs, outputs = regions
    assert inputs == calls * size + (64 << 20)
    held = size if calls == 1 else (calls + 1) * size
    assert outputs == (256 << 20) + 2 * held


@pytest.mark.parametrize(
    ("inputs_mib", "outputs_mib", "calls", "warm_mib", "limit_mib"),
    [
        (0.25, 0.25, 32, 0.75, None),
        (1, 1, 16, 1, None),
        (4, 4, 4, 4, None),
        (8, 8, 2, 8, None),
        (12, 1, 2, 15, None),
        (16, 1, 2, 15, 15),  # Two calls do not fit: a part of each.
        (64, 1, 2, 15, 15),
        (64, 64, 2, 0, 0),
        (1024, 1024, 1, 0, 0),
    ],
)
@pytest.mark.usefixtures("regions")
def test_a_window_with_warm_inputs_has_the_calls_that_half_of_l2_holds(
    planned, inputs_mib, outputs_mib, calls, warm_mib, limit_mib
):
    sizes = CallSizes(int(inputs_mib * MIB), int(outputs_mib * MIB))
    backend = planned(sizes, H200, H200, L2Rule.WARM)
    assert backend.window_calls == calls
    limit_bytes = None if limit_mib is None else limit_mib * MIB
    assert backend.l2 == L2Inputs(rule=L2Rule.WARM, limit_bytes=limit_bytes)
    with backend.memory() as memory:
        assert (memory.window_calls, memory.warm_bytes) == (calls, warm_mib * MIB)


@pytest.mark.usefixtures("regions")
def test_with_cold_inputs_the_judge_reads_nothing_before_a_call(planned):
    backend = planned(CallSizes(MIB, MIB), H200, H200)
    assert (backend.l2, backend.window_calls) == (L2Inputs(rule=L2Rule.COLD), 32)
    with backend.memory() as memory:
        assert memory.warm_bytes == 0


def test_weights_take_their_part_of_l2_once_for_all_calls_of_a_window(planned):
    """An input of 1 MiB and 16 MiB of weights, which count as inputs too; 16 MiB of the half of L2 are left."""
    backend = planned(CallSizes(17 * MIB, MIB, state_bytes=16 * MIB), H200, H200, L2Rule.WARM)
    assert (backend.window_calls, backend.l2) == (8, L2Inputs(rule=L2Rule.WARM))
