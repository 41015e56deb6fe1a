"""Memory of an answer's tensors: equal on both sides, for every answer of a runner."""

import pytest
import torch

from evaluator.protocol.frames import DictItems, Done, Items, Scalar, TensorView
from evaluator.protocol.pytree import answer_spans


def view(offset, shape, strides, dtype="float32"):
    return TensorView(dtype=dtype, shape=shape, strides=strides, offset_bytes=offset)


def test_tensors_are_found_in_order_with_the_gaps_between_their_elements():
    outputs = DictItems(
        keys=["a", "b"], items=[view(256, (2, 3), (8, 1)), Items(is_tuple=True, items=[view(0, (), (), "int8")])]
    )
    gradients = {"input 0": view(512, (4,), (2,), "float64"), "input 1": None}
    assert answer_spans(Done(index=0, outputs=outputs, gradients=gradients)) == [(256, 44), (0, 1), (512, 56)]


@pytest.mark.parametrize(
    "node",
    [
        Scalar(value=3),
        view(None, (2,), (1,)),
        view(0, (2, 0), (1, 1)),
        view(0, (2,), (1,), "dtype"),
        view(0, (2,), (1,), "nothing"),
        view(0, (2,), (1,), "float32.__class__"),
    ],
)
def test_what_has_no_memory_is_left_out(node):
    assert answer_spans(Done(index=0, outputs=node)) == []


def test_a_dtypes_name_is_not_looked_up_in_pytorch(monkeypatch):
    """Names such as `_inductor` import parts of PyTorch, and the name comes from the runner."""
    looked_up = []
    monkeypatch.setattr(torch, "__getattr__", looked_up.append, raising=False)
    assert answer_spans(Done(index=0, outputs=view(0, (2,), (1,), "_inductor"))) == []
    assert looked_up == []


def test_hostile_numbers_give_a_span_that_no_region_holds():
    assert answer_spans(Done(index=0, outputs=view(2**62, (2**62,) * 3, (2**62,) * 3))) == [
        (2**62, 4 * (1 + 3 * (2**62 - 1) * 2**62))
    ]
    assert answer_spans(Done(index=0, outputs=view(8, (4,), (-(2**62),)))) == [(8, 4)]
