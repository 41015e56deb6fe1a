"""The judge's own arithmetic on a GPU: convolutions in float64, and sums in one accumulator."""

import pytest
import torch
from torch.nn import functional

from evaluator.judge.numerics import single_accumulator
from evaluator.judge.numerics.single_accumulator import accumulated
from evaluator.judge.reference.float64_convolutions import float64_mode
from tests.unit.judge.reference.test_float64_convolutions import operands, results_of_the_mode

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture
def computed(monkeypatch):
    """Return the list of results that are not cuDNN's."""
    return results_of_the_mode(monkeypatch)


def test_transposed_convolutions_are_those_of_the_cpu(computed):
    x, weight, bias = operands((3, 9, 5), (3, 5, 7))
    with float64_mode(torch.nn.ConvTranspose3d(1, 1, 1)):
        found = functional.conv_transpose3d(x.cuda(), weight.cuda(), bias.cuda(), 2, 1, 1, 1, 2)
    assert len(computed) == 1
    expected = functional.conv_transpose3d(x, weight, bias, 2, 1, 1, 1, 2)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-13, atol=1e-13)


def test_their_gradients_are_those_of_the_cpu(computed):
    x, weight, _ = operands((4, 6), (3, 3))
    gradients = {}
    for device in ("cpu", "cuda"):
        own = [each.clone().to(device).requires_grad_() for each in (x, weight)]
        with float64_mode(torch.nn.ConvTranspose2d(1, 1, 1)):
            functional.conv_transpose2d(*own, None, 2).square().sum().backward()
        gradients[device] = [each.grad.cpu() for each in own]
    assert len(computed) == 1
    torch.testing.assert_close(gradients["cuda"], gradients["cpu"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 5000), (2, 5000), (700, 4097), (3, 1 << 17), (40_000, 64), (2, 3, 50), (0, 9)])
def test_sums_in_one_accumulator_are_those_of_the_cpu(monkeypatch, shape):
    terms = torch.rand(shape, generator=torch.Generator().manual_seed(3)) - 0.4
    expected = accumulated(terms)
    # NumPy would hide that the GPU adds in another order.
    monkeypatch.setattr(single_accumulator.np, "add", None)
    found = accumulated(terms.cuda())
    assert found.dtype == torch.float32
    assert torch.equal(found.cpu(), expected)


@pytest.mark.parametrize("special", [float("inf"), -float("inf"), float("nan")])
def test_a_sum_with_a_number_that_is_not_finite_is_that_of_the_cpu(special):
    terms = torch.rand(5, 1000)
    terms[2, 700] = special
    torch.testing.assert_close(accumulated(terms.cuda()).cpu(), accumulated(terms), rtol=0, atol=0, equal_nan=True)


def test_a_gpu_adds_in_turn():
    assert single_accumulator.adds_in_turn(torch.device("cuda"))
