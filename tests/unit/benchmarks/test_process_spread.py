"""The estimate of the spread between processes: it finds a spread that was put in, and counts what intervals hold."""

import random

import pytest
from msgspec.structs import replace

from benchmarks.timing.process_spread import (
    estimate,
    in_windows,
    processes_of,
)
from evaluator.records import Windows
from tests import cards


def process(draw, time_ms, spread_ms, *, shared_work=False):
    """Return a card whose submission's process has a median of its own, and windows that scatter by 10 ns."""
    own_ms = draw.gauss(time_ms, spread_ms)
    windows = Windows(
        calls=[31] * 6,
        window_ms=[30 * draw.gauss(own_ms, 1e-5) for _ in range(6)],
        clock_error_ms=1e-5,
        single_ms=[0.5],
        shared_work=shared_work,
    )
    timing = cards.card().timing
    return cards.card(timing=replace(timing, submission=replace(timing.submission, windows=windows)))


def kernels(spread_ms, times_ms, processes=5):
    draw = random.Random(5)
    return [
        in_windows(process(draw, time_ms, spread_ms(time_ms)) for _ in range(processes)).popitem()[1]
        for time_ms in times_ms
    ]


@pytest.mark.parametrize(
    ("constant_us", "part", "around"), [(0.1, 0.0, (0.08, 0.13, 0.0, 0.001)), (0.06, 0.004, (0.03, 0.1, 0.003, 0.005))]
)
def test_the_spread_that_was_put_in_is_found(constant_us, part, around):
    sides = kernels(lambda time_ms: ((constant_us / 1e3) ** 2 + (part * time_ms) ** 2) ** 0.5, [0.003, 0.03, 0.1] * 8)
    found = estimate([processes_of(each) for each in sides])
    assert around[0] <= found.constant_us <= around[1]
    assert around[2] <= found.part <= around[3]
