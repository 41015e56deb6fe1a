"""The judge's own arithmetic on a GPU: convolutions in float64, and sums in one accumulator."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from evaluator.judge.numerics import single_accumulator
from evaluator.judge.numerics.single_accumulator import LONGEST, accumulated
from evaluator.judge.reference.float64_convolutions import float64_mode
from tests.unit.judge.reference.test_float64_convolutions import operands

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def test_transposed_convolutions_are_those_of_the_cpu():
    x, weight, bias = operands((3, 9, 5), (3, 5, 7), 2)
    with float64_mode(torch.nn.ConvTranspose3d(1, 1, 1)):
        found = functional.conv_transpose3d(x.cuda(), weight.cuda(), bias.cuda(), 2, 1, 1, 2)
    expected = functional.conv_transpose3d(x, weight, bias, 2, 1, 1, 2)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-13, atol=1e-13)


def test_their_gradients_are_those_of_the_cpu():
    x, weight, _ = operands((4, 6), (3, 3), 1)
    gradients = {}
    for device in ("cpu", "cuda"):
        own = [each.detach().clone().to(device).requires_grad_() for each in (x, weight)]
        with float64_mode(torch.nn.ConvTranspose2d(1, 1, 1)):
            functional.conv_transpose2d(*own, None, 2).square().sum().backward()
        gradients[device] = [each.grad.cpu() for each in own]
    torch.testing.assert_close(gradients["cuda"], gradients["cpu"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 5000), (2, 5000), (700, 4097), (3, LONGEST), (40_000, 64), (2, 3, 50), (0, 9)])
def test_sums_in_one_accumulator_are_those_of_the_cpu(monkeypatch, shape):
    terms = torch.rand(shape, generator=torch.Generator().manual_seed(3)) - 0.4
    expected = accumulated(terms)
    # NumPy would hide that the GPU adds in another order.
    monkeypatch.setattr(single_accumulator.np, "add", None)
    assert torch.equal(accumulated(terms.cuda()).cpu(), expected)
    assert expected.numpy().dtype == np.float32


def test_a_gpu_adds_in_turn():
    assert single_accumulator.adds_in_turn(torch.device("cuda"))
