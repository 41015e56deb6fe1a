"""Transposed convolutions in float64, computed as matrix products, against PyTorch's on the CPU."""

import contextlib
import itertools

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from evaluator.judge.answer.known_forms import traced
from evaluator.judge.reference import float64_convolutions
from evaluator.judge.reference.float64_convolutions import (
    TransposedConvolutions,
    WideCasts,
    _ranges,
    float64_mode,
    transposed_convolution,
)
from evaluator.judge.reference.reference import Reference
from evaluator.records import SizeName
from tests.unit.judge.reference.test_reference import problem

CONVOLUTIONS = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


def operands(sizes, kernel, items=3):
    drawn = torch.Generator().manual_seed(1)
    x = torch.randn(items, 2, *sizes, dtype=torch.float64, generator=drawn)
    weight = torch.randn(2, 3, *kernel, dtype=torch.float64, generator=drawn)
    return x, weight, torch.randn(3, dtype=torch.float64, generator=drawn)


@pytest.mark.parametrize("most", [1, 100, 1 << 25])
@pytest.mark.parametrize(
    ("sizes", "kernel", "stride", "padding", "dilation", "output_padding"),
    [
        ((5,), (3,), (2,), (1,), (1,), (1,)),
        ((5, 4), (3, 2), (1, 1), (0, 0), (1, 1), (0, 0)),
        ((4, 6), (3, 5), (2, 3), (1, 2), (2, 1), (1, 2)),
        ((3, 4, 5), (4, 4, 4), (2, 2, 2), (1, 1, 1), (1, 1, 1), (0, 0, 0)),
        ((3, 2, 4), (3, 1, 2), (3, 1, 2), (0, 0, 1), (2, 1, 3), (2, 0, 1)),
        ((2, 2), (5, 5), (1, 1), (2, 2), (1, 1), (0, 0)),  # Some elements of the kernel reach no output.
        ((2,), (7,), (1,), (3,), (1,), (0,)),  # Some elements would begin behind the output.
        ((1, 1), (2, 2), (4, 4), (0, 0), (1, 1), (3, 3)),  # No input reaches some outputs.
    ],
)
def test_the_result_is_pytorchs(monkeypatch, most, sizes, kernel, stride, padding, dilation, output_padding):
    monkeypatch.setattr(float64_convolutions, "_MOST_ELEMENTS", most)
    x, weight, bias = operands(sizes, kernel)
    expected = CONVOLUTIONS[len(sizes)](x, weight, bias, stride, padding, output_padding, 1, dilation)
    found = transposed_convolution(x, weight, bias, stride, padding, dilation, output_padding)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
    without = transposed_convolution(x, weight, None, stride, padding, dilation, output_padding)
    torch.testing.assert_close(without, expected - bias.reshape(-1, *[1] * len(sizes)), rtol=1e-13, atol=1e-13)


def test_ranges_hold_each_input_that_reaches_the_output():
    for size, length, step, offset in itertools.product(range(1, 5), range(1, 9), range(1, 4), range(-5, 9)):
        reached = [at for at in range(size) if 0 <= at * step + offset < length]
        taken, put = _ranges(size, length, step, offset)
        if taken.start < taken.stop:
            assert list(range(size))[taken] == reached
            assert list(range(length))[put] == [at * step + offset for at in reached]
        else:
            assert not reached


def test_only_models_with_transposed_convolutions_get_the_mode():
    convolution = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ConvTranspose2d(1, 1, 2))
    assert modes_of(convolution) == [TransposedConvolutions]
    assert modes_of(torch.nn.Conv2d(1, 1, 2)) == modes_of(None) == []
    assert modes_of(torch.nn.Conv2d(1, 1, 2), widens_casts=True) == [WideCasts]


def modes_of(model, **how):
    with float64_mode(model, **how):
        return [type(mode) for mode in _get_current_dispatch_mode_stack()]


class OnGpu:
    """A tensor that says that it lies on a GPU."""

    is_cuda = True

    def __init__(self, tensor):
        self._tensor = tensor

    def __getattr__(self, name):
        return getattr(self._tensor, name)


def results_of_the_mode(monkeypatch):
    """Return the list of the mode's own results from now on."""
    results = []

    def noted(*arguments):
        results.append(transposed_convolution(*arguments))
        return results[-1]

    monkeypatch.setattr(float64_convolutions, "transposed_convolution", noted)
    return results


@pytest.fixture
def computed(monkeypatch):
    """Let the mode compute on a CPU too; return the list of its results."""
    applies = float64_convolutions._applies
    monkeypatch.setattr(float64_convolutions, "_applies", lambda x, *rest: applies(OnGpu(x), *rest))
    return results_of_the_mode(monkeypatch)


def test_the_mode_takes_transposed_convolutions_alone(computed):
    x, weight, bias = operands((4, 6), (3, 5))
    arguments = (bias, (2, 3), (1, 2), (1, 2), 1, (2, 1))
    with TransposedConvolutions():
        found = functional.conv_transpose2d(x, weight, *arguments)
        functional.conv2d(x, weight.new_ones(2, 2, 2, 2))
        functional.conv_transpose2d(x, weight.new_ones(2, 3, 2, 2), groups=2)
        functional.conv_transpose2d(x.float(), weight.float())
    assert len(computed) == 1
    torch.testing.assert_close(found, functional.conv_transpose2d(x, weight, *arguments), rtol=1e-13, atol=1e-13)


def test_a_cpu_keeps_pytorchs_kernels(monkeypatch):
    monkeypatch.setattr(float64_convolutions, "transposed_convolution", None)  # A call would fail.
    x, weight, _ = operands((4, 4), (2, 2))
    with TransposedConvolutions():
        assert functional.conv_transpose2d(x, weight).shape == (3, 3, 5, 5)


REFERENCE = {
    "text": """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.ConvTranspose1d(2, 3, 4, stride=2)

    def forward(self, x):
        return self.conv(x)

def get_inputs():
    return [torch.rand(5, 2, 7)]

def get_init_inputs():
    return []
""",
}


def test_a_reference_computes_so_in_float64_alone(computed):
    reference = Reference(problem(**REFERENCE), SizeName.FULL, weight_seed=1)
    inputs = reference.draw(1)
    expected = reference.expected(inputs, 0, None)
    assert len(computed) == 1
    assert torch.equal(expected.exact.outputs, computed[0])
    torch.testing.assert_close(expected.honest.outputs.double(), computed[0], rtol=1e-5, atol=1e-5)
    reference.altered(inputs, 0, None, contextlib.nullcontext())
    assert len(computed) == 1
    reference.altered(inputs, 0, None, contextlib.nullcontext(), in_float64=True)
    assert len(computed) == 2


def test_searches_for_a_cause_see_the_convolution(computed):
    reference = Reference(problem(**REFERENCE), SizeName.FULL, weight_seed=1)
    inputs = reference.draw(1)
    trace = traced(lambda context: reference.altered(inputs, 0, None, context(), in_float64=True))
    assert len(computed) == 1
    assert torch.ops.aten.convolution.default in trace.operations
    assert trace.cost.operations < 5
    assert trace.cost.flop == 2 * computed[0].shape[0] * 2 * 3 * 4 * 7


def test_casts_to_narrow_numbers_give_float64_of_whole_numbers_too():
    with float64_mode(torch.nn.Identity(), widens_casts=True):
        for given in (torch.ones(2, dtype=torch.float64), torch.arange(2), torch.ones(2, dtype=torch.bool)):
            assert given.float().dtype == given.bfloat16().dtype == torch.float64
        assert torch.ones(2).half().dtype == torch.float16
        assert torch.ones(2, dtype=torch.float64).long().dtype == torch.int64
