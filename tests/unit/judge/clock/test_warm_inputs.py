"""Which bytes of the inputs the judge reads before the clock starts, and in which order."""

import msgspec
import pytest

from evaluator.judge.clock.clock_kernels import warm_spans
from evaluator.protocol.frames import DictItems, Done, Items, Queued, Scalar, TensorView
from tests.unit.judge.clock.host_gpu import CALL, INPUT_BYTES, ask


def view(offset_bytes, elements):
    return TensorView(offset_bytes=offset_bytes, shape=[elements], strides=[1], dtype="float32")


def frame(*args, gradients=None, **kwargs):
    table = DictItems(keys=list(kwargs), items=list(kwargs.values()))
    return msgspec.structs.replace(
        CALL, args=Items(is_tuple=False, items=list(args)), kwargs=table, output_gradients=gradients
    )


FIRST, SECOND = frame(view(0, 8), view(256, 4)), frame(view(512, 8), y=view(1024, 4))


@pytest.mark.parametrize(
    ("limit_bytes", "spans"),
    [
        # What does not fit is left out of every call alike.
        (0, []),
        (20, [(512, 20), (0, 20)]),
        (32, [(512, 32), (0, 32)]),
        (40, [(512, 32), (1024, 8), (0, 32), (256, 8)]),
        (1 << 20, [(512, 32), (1024, 16), (0, 32), (256, 16)]),
    ],
)
def test_the_inputs_of_the_first_call_are_read_last(limit_bytes, spans):
    assert warm_spans([FIRST, SECOND], limit_bytes) == spans


def test_gradients_of_a_backward_pass_are_inputs():
    gradients = Items(is_tuple=False, items=[view(2048, 2)])
    assert warm_spans([frame(view(0, 8), gradients=gradients)], 1 << 20) == [(0, 32), (2048, 8)]


@pytest.mark.parametrize(
    ("offset", "elements", "start", "sectors"),
    [
        (0, 8, 0, 1),
        (4, 8, 0, 2),
        (60, 1, 32, 1),
        (64, 1 << 18, 64, 1 << 15),
        (INPUT_BYTES - 8, 2, INPUT_BYTES - 32, 1),
    ],
)
def test_every_sector_of_an_input_is_read_behind_the_flush_and_before_the_clock_starts(
    clock_of,
    offset,
    elements,
    start,
    sectors,
):
    for warm_bytes in (0, INPUT_BYTES):
        clock, order, at = clock_of(
            Queued(index=3), Done(index=3, token=77, outputs=Scalar(value=None)), warm_bytes=warm_bytes
        )
        ask(clock, frame(view(offset, elements)), write=lambda order=order: order.append("inputs"))
        reads = [(at + start, sectors, min(-(-sectors // 256), 1056), True)] if warm_bytes else []
        assert order[: 5 + len(reads)] == ["wait", "start", "inputs", *reads, "go", "word"]
