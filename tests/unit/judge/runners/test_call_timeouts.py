"""How long a call may take."""

import pytest

from evaluator.judge.runners.call_timeouts import call_timeouts
from evaluator.records import DeviceKind


@pytest.mark.parametrize(("reference_s", "call_s"), [(0.001, 2.0), (0.1, 2.0), (0.5, 10.0)])
def test_a_call_on_a_gpu_may_take_twenty_times_the_reference_and_two_seconds_at_least(reference_s, call_s):
    assert call_timeouts("", DeviceKind.CUDA, reference_s, None).call_s == call_s


@pytest.mark.parametrize("device", [DeviceKind.CPU, DeviceKind.EMULATED])
def test_without_a_gpu_ten_seconds_at_least(device):
    assert call_timeouts("", device, 0.001, None).call_s == 10.0


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
def test_a_first_call_has_longer_and_what_compiles_itself_longer_still(source, first_call_s):
    assert call_timeouts(source, DeviceKind.CUDA, 0.001, None).first_call_s == first_call_s


def test_a_slow_reference_is_a_first_calls_limit_too():
    assert call_timeouts("", DeviceKind.CUDA, 3.0, None) == (60.0, 60.0)


def test_what_was_asked_for_holds_for_every_call():
    assert call_timeouts("import triton", DeviceKind.CUDA, 3.0, 1.5) == (1.5, 1.5)
