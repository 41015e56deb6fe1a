"""Places of a window's inputs: side by side for each call, and apart from those of other calls."""

import itertools

import torch

from evaluator.devices.memory import HostRegion
from evaluator.judge.reference.changing_weights import NO_SITES, Laid
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.trial.call_driver import CallDriver, _extent
from evaluator.protocol import model_call
from evaluator.protocol.frames import Done, Scalar, TensorView

READY = Done(index=3, outputs=Scalar(value=None))


class Reference:
    draws_numbers = False

    def parameters(self):
        return {}


class Memory:
    poison_bytes = 0

    def __init__(self, inputs):
        self.inputs = self.outputs = inputs


class Plan:
    def __init__(self, number):
        self.inputs = Arguments(
            [torch.full((3, 5), number), number], {"y": torch.full((7,), -number, dtype=torch.int8)}
        )
        self.gradients = [torch.ones(2)] if number % 2 else None
        self.random_seed = number


def test_the_inputs_of_each_call_can_be_masked_without_those_of_another():
    with HostRegion(1 << 20) as region:
        driver = CallDriver(Reference(), None, Memory(region), NO_SITES, None, 0.0)
        weights = [Laid([], {"w": torch.full((9,), 10.0 * number)}) for number in range(1, 6)]
        placed, frames = driver._laid_out([Plan(number) for number in range(1, 6)], weights)
        placed.write()
        spans = [_extent(frame, region.size_bytes) for frame in frames]
        assert len({frame.token for frame in frames}) == 5
        for number, (frame, span) in enumerate(zip(frames, spans, strict=True), 1):
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
        assert region.flat[frames[2].kwargs.items[0].offset_bytes].item() == 256 - 3


def test_an_empty_window_has_no_work_on_the_gpu():
    asked = []

    class Clock:
        window_calls = 8
        windows = property(lambda clock: clock)

        def prepare(self, frame, *, timeout_s):
            return READY

        def window(self, frames, write, outline, *, timeout_s):
            asked.append([(frame.empty, frame.probes) for frame in frames])

    with HostRegion(1 << 20) as region:
        driver = CallDriver(Reference(), Clock(), Memory(region), NO_SITES, None, 0.0)
        driver.wanted = model_call.Result([torch.zeros(2)], None)
        for empty in (False, True):
            driver.ask_window(3, [Plan(1), Plan(2)], timeout_s=1.0, empty=empty)
    assert asked == [[(False, True)] * 2, [(True, False)] * 2]


def test_windows_of_different_lengths_fill_equal_memory():
    """PyTorch's allocator reuses no segment that is too small, and the arena would fill up."""
    filled_bytes, poisons = [], []

    class Clock:
        window_calls = 8
        windows = property(lambda clock: clock)

        def prepare(self, frame, *, timeout_s):
            filled_bytes.append(frame.ahead_bytes)
            poisons.append(frame.poison)
            return READY

        def window(self, frames, write, outline, *, timeout_s):
            pass

    with HostRegion(1 << 20) as region:
        memory = Memory(region)
        memory.poison_bytes = 100
        driver = CallDriver(Reference(), Clock(), memory, NO_SITES, None, 0.0)
        driver.wanted = model_call.Result([torch.zeros(2)], None)
        for count in (2, 3):
            driver.ask_window(3, [Plan(number) for number in range(count)], timeout_s=1.0)
    assert filled_bytes == [800] * 2
    assert min(poisons) > 1  # Zeros would hide elements that no thread writes.


def test_a_clock_of_single_calls_has_no_windows():
    class Windows:
        window_calls = 8

    class Clock:
        def __init__(self, windows):
            self.windows = windows

    with HostRegion(1 << 20) as region:
        drivers = [
            CallDriver(Reference(), Clock(windows), Memory(region), NO_SITES, None, 0.0)
            for windows in (None, Windows())
        ]
        for driver in drivers:
            driver.wanted = model_call.Result([torch.zeros(2)], None)
        assert [driver.window_calls for driver in drivers] == [1, 8]
