"""How long a call may take."""

import pytest

from evaluator.judge.runners.call_timeouts import call_timeouts
from evaluator.records import DeviceKind

CPU, EMULATED, CUDA = DeviceKind.CPU, DeviceKind.EMULATED, DeviceKind.CUDA


@pytest.mark.parametrize(
    ("device", "reference_s", "asked_s", "first_call_s", "call_s"),
    [
        # Twenty times the reference, and some seconds at least.
        (CUDA, 0.1, None, 10.0, 2.0),
        (CUDA, 0.3, None, 10.0, 6.0),
        (CUDA, 3.0, None, 60.0, 60.0),
        (CPU, 0.001, None, 10.0, 10.0),
        (EMULATED, 0.001, None, 10.0, 10.0),
        (CUDA, 3.0, 1.5, 1.5, 1.5),
    ],
)
def test_a_call_may_take_a_multiple_of_the_reference(device, reference_s, asked_s, first_call_s, call_s):
    assert call_timeouts("", device, reference_s, asked_s) == (first_call_s, call_s)


@pytest.mark.parametrize(
    ("source", "first_call_s"),
    [
        ("import torch", 10.0),
        ("import triton.language as tl", 120.0),
        ("from cuda.core import Program", 120.0),
        ("self.f = torch.compile(f)", 120.0),
        ("recompiled = 1", 10.0),
    ],
)
def test_a_first_call_has_longer_where_the_text_compiles_itself(source, first_call_s):
    assert call_timeouts(source, CUDA, 0.001, None).first_call_s == first_call_s
