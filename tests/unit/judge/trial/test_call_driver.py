"""Windows of a runner: places of the inputs, side by side for each call and apart from other calls, and memory."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from evaluator.devices.memory import HostRegion
from evaluator.judge.reference.changing_weights import NO_SITES
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.trial.call_driver import CallDriver
from evaluator.protocol import model_call
from evaluator.protocol.frames import Done, Scalar, TensorView

REFERENCE = SimpleNamespace(draws_numbers=False, parameters=dict)


class Clock:
    """A clock of windows that keeps the frames; the inputs are written."""

    window_calls = 8

    def __init__(self, *, has_windows=True):
        self.windows = self if has_windows else None
        self.prepared, self.frames, self.masked = [], [], []

    def prepare(self, frame, *, timeout_s):
        self.prepared.append(frame)
        return Done(index=3, outputs=Scalar(value=None))

    def window(self, frames, write, outline, *, timeout_s):
        self.frames.append(frames)

    def spot_check(self, frames, write, masked, *, timeout_s):
        write()
        self.frames.append(frames)
        self.masked += masked


@pytest.fixture
def driver_of():
    with HostRegion(1 << 20) as region:

        def made(clock):
            memory = SimpleNamespace(inputs=region, outputs=region, poison_bytes=100)
            driver = CallDriver(REFERENCE, clock, memory, NO_SITES, None, 0.0)
            driver.wanted = model_call.Result([torch.zeros(2)], None)
            return driver, region.flat

        yield made


def plan(number):
    return SimpleNamespace(
        inputs=Arguments([torch.full((3, 5), number), number], {"y": torch.full((7,), -number, dtype=torch.int8)}),
        gradients=[torch.ones(2)] if number % 2 else None,
        random_seed=number,
    )


def test_the_inputs_of_each_call_can_be_masked_without_those_of_another(driver_of):
    clock, numbers = Clock(), range(1, 6)
    driver, memory = driver_of(clock)
    weights = [{"w": torch.full((9,), 10.0 * number)} for number in numbers]
    driver.ask_spot_check(3, [plan(number) for number in numbers], weights, timeout_s=1.0)
    (frames,), spans = clock.frames, clock.masked
    assert len({frame.token for frame in frames}) == 5
    for number, frame, span in zip(numbers, frames, spans, strict=True):
        views = [frame.args.items[0], *frame.kwargs.items, *(frame.output_gradients.items if number % 2 else [])]
        views.append(frame.weights["w"])
        assert frame.args.items[1].value == number
        for view in views:
            assert isinstance(view, TensorView)
            size = torch.empty(view.shape, dtype=getattr(torch, view.dtype), device="meta").nbytes
            assert span.offset_bytes <= view.offset_bytes
            assert view.offset_bytes + size <= span.offset_bytes + span.size_bytes
        assert (span.offset_bytes % 4, span.size_bytes % 4) == (0, 0)
    for one, other in itertools.pairwise(spans):
        assert one.offset_bytes + one.size_bytes <= other.offset_bytes
    assert memory[frames[2].kwargs.items[0].offset_bytes].item() == 256 - 3


def test_an_empty_window_has_no_work_on_the_gpu(driver_of):
    driver, _ = driver_of(clock := Clock())
    for empty in (False, True):
        driver.ask_window(3, [plan(1), plan(2)], timeout_s=1.0, empty=empty)
    asked = [[(frame.empty, frame.probes) for frame in frames] for frames in clock.frames]
    assert asked == [[(False, True)] * 2, [(True, False)] * 2]


def test_windows_of_different_lengths_fill_equal_memory(driver_of):
    """PyTorch's allocator reuses no segment that is too small, and the arena would fill up."""
    driver, _ = driver_of(clock := Clock())
    for count in (2, 3):
        driver.ask_window(3, [plan(number) for number in range(count)], timeout_s=1.0)
    assert [frame.ahead_bytes for frame in clock.prepared] == [800] * 2
    assert min(frame.poison for frame in clock.prepared) > 1  # Zeros would hide elements that no thread writes.


@pytest.mark.parametrize(("has_windows", "calls"), [(False, 1), (True, 8)])
def test_a_clock_of_single_calls_has_no_windows(driver_of, has_windows, calls):
    driver, _ = driver_of(Clock(has_windows=has_windows))
    assert driver.window_calls == calls
