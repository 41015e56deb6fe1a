"""Which bytes of the inputs the judge reads before the clock starts, and in which order."""

import contextlib
from types import SimpleNamespace

import msgspec
import pytest
import torch

from evaluator.judge.clock import clock_kernels, sealed_clock
from evaluator.judge.clock.clock_kernels import InputReader, warm_spans
from evaluator.judge.clock.sealed_clock import SealedClock
from evaluator.protocol.frames import DictItems, Items, TensorView
from tests.unit.judge.clock.test_sealed_answers import QUESTION


def view(offset_bytes, elements):
    return TensorView(offset_bytes=offset_bytes, shape=[elements], strides=[1], dtype="float32")


def frame(*args, gradients=None, **kwargs):
    table = DictItems(keys=list(kwargs), items=list(kwargs.values()))
    return msgspec.structs.replace(
        QUESTION, args=Items(is_tuple=False, items=list(args)), kwargs=table, output_gradients=gradients
    )


FIRST, SECOND = frame(view(0, 8), view(256, 4)), frame(view(512, 8), y=view(1024, 4))


def test_the_inputs_of_the_first_call_are_read_last():
    assert warm_spans([FIRST, SECOND], 1 << 20) == [(512, 32), (1024, 16), (0, 32), (256, 16)]


def test_gradients_of_a_backward_pass_are_inputs():
    gradients = Items(is_tuple=False, items=[view(2048, 2)])
    assert warm_spans([frame(view(0, 8), gradients=gradients)], 1 << 20) == [(0, 32), (2048, 8)]


@pytest.mark.parametrize(
    ("limit_bytes", "spans"),
    [
        (0, []),
        (20, [(512, 20), (0, 20)]),
        (32, [(512, 32), (0, 32)]),
        (40, [(512, 32), (1024, 8), (0, 32), (256, 8)]),
    ],
)
def test_what_does_not_fit_is_left_out_of_every_call_alike(limit_bytes, spans):
    assert warm_spans([FIRST, SECOND], limit_bytes) == spans


@pytest.fixture
def launches(monkeypatch):
    """Launches of the reader's kernel, with first byte, number of sectors, and blocks."""
    made = []

    def launched(function, *, blocks, threads, stream, arguments):
        made.append((arguments[0].value, arguments[1].value, blocks))

    monkeypatch.setattr(clock_kernels.driver, "launch", launched)
    return made


@pytest.mark.parametrize(
    ("offset", "size_bytes", "start", "sectors"),
    [(0, 32, 0, 1), (4, 32, 0, 2), (60, 4, 32, 1), (64, 1 << 20, 64, 1 << 15), ((1 << 22) - 8, 8, (1 << 22) - 32, 1)],
)
def test_every_sector_of_a_span_is_read_and_none_beyond_the_region(launches, offset, size_bytes, start, sectors):
    reader = object.__new__(InputReader)
    reader._kernel, reader._sink = 0, torch.zeros(1)
    region = torch.zeros((1 << 22) + 64, dtype=torch.uint8)
    lead = -region.data_ptr() % 64
    reader._inputs = region[lead : lead + (1 << 22)]
    reader.read([(offset, size_bytes)], stream=0)
    ((first, count, blocks),) = launches
    assert (first - reader._inputs.data_ptr(), count) == (start, sectors)
    assert blocks == min(-(-sectors // 256), 1056)


@pytest.mark.parametrize("is_warm", [True, False])
def test_inputs_are_read_behind_the_flush_and_before_the_clock_starts(monkeypatch, is_warm):
    order = []

    def noted(name):
        return lambda *_, **__: order.append(name)

    clock = object.__new__(SealedClock)
    clock._stream, clock._ticket, clock._hold_at, clock._page_at = SimpleNamespace(cuda_stream=7), 5, 1000, 2000
    clock._events = [SimpleNamespace(record=noted(name)) for name in ("start", "e0", "e1", "sampled")]
    clock._flush, clock._work = SimpleNamespace(fill_=noted("flush")), SimpleNamespace(add_=noted("work"))
    clock._gather, clock._outputs = 0, SimpleNamespace(flat=torch.zeros(1), size_bytes=4)
    reader = SimpleNamespace(read=lambda spans, stream: order.append(f"read {spans} on {stream}"))
    clock._warm_bytes, clock._input_reader = 40, reader if is_warm else None
    monkeypatch.setattr(sealed_clock.torch.cuda, "stream", lambda _: contextlib.nullcontext())
    for name in ("stream_wait", "stream_write", "launch"):
        monkeypatch.setattr(sealed_clock.driver, name, noted(name))
    sampling = SimpleNamespace(shapes=torch.zeros(1), which=torch.zeros(1))
    clock._queue([FIRST], noted("inputs"), sampling, torch.zeros(1), torch.zeros(1), tells_when_open=False)
    reads = ["read [(0, 32), (256, 8)] on 7"] if is_warm else []
    assert order[: 6 + len(reads)] == ["stream_wait", "start", "inputs", "flush", *reads, "e0", "stream_write"]
