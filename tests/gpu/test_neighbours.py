"""What the turns on a GPU rest on: a dead process leaves no kernel behind, and an idle context costs no time."""

import itertools
import signal
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
SOON_S = 120.0
_NEIGHBOUR = """
import sys, torch
kept = torch.zeros(1 << 28, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True)
if sys.argv[1] == "working":
    while True:
        kept.add_(1.0)
sys.stdin.read()
"""


@contextmanager
def neighbour(kind):
    """A process with a context on the GPU and 1 GiB: idle, or with kernels queued without end."""
    process = subprocess.Popen(
        [sys.executable, "-c", _NEIGHBOUR, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=SOON_S)


def times_ms(calls):
    """Time calls of 0.2 to 2 ms, one after the other."""
    data = torch.zeros(1 << 28, device="cuda")
    events = [torch.cuda.Event(enable_timing=True) for _ in range(calls + 1)]
    data.add_(1.0)
    events[0].record()
    for event in events[1:]:
        data.add_(1.0)
        event.record()
    torch.cuda.synchronize()
    return [one.elapsed_time(other) for one, other in itertools.pairwise(events)]


@pytest.fixture
def quiet_ms():
    """The usual time of a call, on a GPU with raised clocks."""
    times_ms(500)
    return statistics.median(times_ms(200))


def test_the_death_of_a_process_ends_its_kernels_at_once(quiet_ms):
    """Killed and waited for: the next turn begins on a quiet GPU, from its first call on."""
    with neighbour("working") as process:
        time.sleep(1.0)
        # The GPU gives each process a slice of some milliseconds in turn, so most calls find no neighbour.
        beside_ms = statistics.mean(times_ms(200))
        process.send_signal(signal.SIGKILL)
        process.wait(SOON_S)
        after_ms = times_ms(200)
    assert beside_ms > 1.5 * quiet_ms, "the neighbour did not disturb, so this test shows nothing"
    assert max(after_ms[:10]) < 1.5 * quiet_ms
    assert statistics.median(after_ms) < 1.03 * quiet_ms
    assert statistics.mean(after_ms) < 1.5 * quiet_ms


def test_an_idle_context_of_a_neighbour_costs_no_time(quiet_ms):
    with neighbour("idle"), neighbour("idle"):
        beside_ms = statistics.median(times_ms(200))
    assert beside_ms < 1.03 * quiet_ms
