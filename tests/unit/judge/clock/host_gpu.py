"""A GPU on the host for the sealed clock: queued kernels and events end at once, in order, without a computation."""

import contextlib
import ctypes
from types import SimpleNamespace

import msgspec
import pytest
import torch

from evaluator.devices.memory import DONE, PAGE_BYTES, HostRegion, SharedMemory
from evaluator.judge.clock import clock_kernels, sealed_clock
from evaluator.judge.clock.clock_kernels import Sampling
from evaluator.judge.clock.sealed_clock import SealedClock
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.protocol.frames import Call, DictItems, Items, Window

CALL = Call(
    index=3,
    token=77,
    random_seed=0,
    ticket=5,
    empty=False,
    forked=False,
    schedule=None,
    args=Items(is_tuple=False, items=[]),
    kwargs=DictItems(keys=[], items=[]),
    output_gradients=None,
)
INPUT_BYTES = 1 << 22


class Session:
    """A session whose runner ends its work when it is asked, and says these frames, one after the other."""

    def __init__(self, order, memory, *frames, was_queued=True):
        self._order, self._memory, self._frames, self._was_queued = order, memory, list(frames), was_queued
        self.child = SimpleNamespace(kill=lambda: order.append("ended"), poll_exit=lambda: None)

    def send(self, frame, stage, timeout_s):
        calls = frame.calls if isinstance(frame, Window) else [frame]
        self._order.append(f"asked for {len(calls)}")
        self._memory.page.buffer[DONE : DONE + 4] = calls[0].ticket.to_bytes(4, "little")

    def within(self, timeout_s):
        return timeout_s

    def answered(self, within_s):
        self._order.append("held")
        return self._was_queued

    def answer(self, stage, timeout_s):
        return self._frames.pop(0)

    window_answer = RunnerClient.window_answer


class Event:
    def __init__(self, order, number):
        self._order, self._name = order, ("start", "go", "end", "sampled")[number % 4]

    def record(self):
        self._order.append(self._name)

    def elapsed_time(self, other):
        return 1.0

    def query(self):
        return True


class Driver:
    """The driver's functions for the clock. Words that a stream writes are there at once, unless no gate `opens`."""

    def __init__(self, order, tensors):
        self.order, self.opens, self.tensors = order, True, tensors

    def register_host(self, address, size_bytes):
        return address

    def load_module(self, image):
        return 0

    def kernel(self, module, name):
        return name

    def launch(self, function, *, blocks, threads, stream, arguments):
        if function == "warpgrade_touch":
            is_flushed = int(self.tensors[0][0]) == 1  # by the first call
            self.order.append((arguments[0].value, arguments[1].value, blocks, is_flushed))

    def stream_wait(self, stream, address, at_least):
        self.order.append("wait")

    def stream_write(self, stream, address, value):
        self.order.append("word")
        if self.opens:
            ctypes.c_uint32.from_address(address).value = value

    def reset_persisting_l2(self):
        pass


def on_the_host(monkeypatch, *names):
    """Have these functions of PyTorch make tensors on the host; return a list that the tensors join."""
    tensors = []

    def on_any_device(make):
        def made(*sizes, device=None, **rest):
            tensors.append(make(*sizes, **rest))
            return tensors[-1]

        return made

    for name in names:
        monkeypatch.setattr(torch, name, on_any_device(getattr(torch, name)))
    return tensors


@pytest.fixture
def clock_of(monkeypatch):
    """Make sealed clocks of runners that say given frames; `order` is what happens on the GPU and the socket."""
    order, numbers = [], iter(range(100))
    driver = Driver(order, on_the_host(monkeypatch, "zeros", "empty", "full"))
    stream = SimpleNamespace(cuda_stream=7, synchronize=lambda: None)
    for module in (sealed_clock, clock_kernels):
        monkeypatch.setattr(module, "driver", driver)
    for name, fake in {
        "Stream": lambda: stream,
        "Event": lambda *, enable_timing: Event(order, next(numbers)),
        "stream": lambda _: contextlib.nullcontext(),
        "current_stream": lambda: stream,
        "synchronize": lambda: None,
        "get_device_properties": lambda _: SimpleNamespace(L2_cache_size=64),
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(sealed_clock, "SpotKernels", lambda image: None)
    monkeypatch.setattr(sealed_clock, "Sampling", lambda outline, device: Sampling(outline, "cpu"))
    monkeypatch.setattr(sealed_clock, "_SETTLE_S", 0.05)
    with HostRegion(PAGE_BYTES) as page, HostRegion(INPUT_BYTES) as inputs:
        memory = SharedMemory(inputs, inputs, 0, None, 0, page, probe_bytes=64)

        def made(*frames, warm_bytes=0, was_queued=True, opens=True):
            driver.tensors.clear()
            session = Session(order, memory, *frames, was_queued=was_queued)
            clock = SealedClock(session, memory._replace(warm_bytes=warm_bytes), b"")
            driver.opens = opens
            order.clear()
            return clock, order, inputs.flat.data_ptr()

        yield made


def ask(clock, frame=CALL, *, asks_late=False, write=lambda: None):
    return clock.call(frame, write, {}, timeout_s=1.0, queued_timeout_s=1.0, asks_late=asks_late)


def ask_window(clock, *tokens, write=lambda: None):
    frames = [msgspec.structs.replace(CALL, token=token) for token in tokens]
    return clock.window(frames, write, {}, timeout_s=1.0)
