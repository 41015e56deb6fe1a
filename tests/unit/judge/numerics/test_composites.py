"""Operations of several steps, written out: the same function, and all steps seen by a mode."""

import pytest
import torch
from torch.nn import functional

from evaluator.judge.numerics.arithmetic_modes import SummationOrder, in_order
from evaluator.judge.numerics.composites import COMPOSITES, NAIVE

X = torch.randn(4, 6, 8, 10, generator=torch.Generator().manual_seed(1))
Y = torch.randn(4, 6, 8, 10, generator=torch.Generator().manual_seed(2))
WEIGHT, BIAS = torch.randn(2, 6, generator=torch.Generator().manual_seed(3))
MEAN, VARIANCE = BIAS * 0.1, WEIGHT.square() + 0.5
FUNCTIONS = {
    "softmax": lambda to: functional.softmax(to(X), 1),
    "log_softmax": lambda to: functional.log_softmax(to(X), -1),
    "layer_norm": lambda to: functional.layer_norm(to(X), (8, 10), to(Y[0, 0]), to(Y[0, 1])),
    "layer_norm plain": lambda to: functional.layer_norm(to(X), (10,)),
    "group_norm": lambda to: functional.group_norm(to(X), 3, to(WEIGHT), to(BIAS)),
    "instance_norm": lambda to: functional.instance_norm(to(X)),
    "batch_norm": lambda to: functional.batch_norm(to(X), to(MEAN), to(VARIANCE), to(WEIGHT), to(BIAS)),
    "batch_norm in training": lambda to: functional.batch_norm(to(X), None, None, to(WEIGHT), training=True),
    "norm": lambda to: torch.linalg.vector_norm(to(X), dim=(1, 2)),
    "norm 1": lambda to: torch.linalg.vector_norm(to(X), 1, dim=1, keepdim=True),
    "norm of infinity": lambda to: torch.linalg.vector_norm(to(X), float("inf"), dim=1),
    "norm of all": lambda to: torch.norm(to(X), p="fro"),
    "pairwise distance": lambda to: functional.pairwise_distance(to(X), to(Y)),
    "pairwise distance 1": lambda to: functional.pairwise_distance(to(X), to(Y), p=1, keepdim=True),
    "pairwise distance 3": lambda to: functional.pairwise_distance(to(X), to(Y), p=3),
    "triplet margin": lambda to: functional.triplet_margin_loss(to(X), to(Y), to(X) * 0.5),
    "var": lambda to: to(X).var((1, 3)),
    "var of one": lambda to: to(X)[:, :1].var(1, correction=0),
    "std": lambda to: to(X).std(),
    "logsumexp": lambda to: to(X).logsumexp(1),
    "logsumexp kept": lambda to: to(X).logsumexp((1, 2), keepdim=True),
    "logsumexp of nothing": lambda to: torch.full_like(to(X), -torch.inf).logsumexp(1),
    "mse": lambda to: functional.mse_loss(to(X), to(Y)),
    "smooth_l1": lambda to: functional.smooth_l1_loss(to(X), to(Y), reduction="none", beta=0.5),
    "huber": lambda to: functional.huber_loss(to(X), to(Y), reduction="sum", delta=0.5),
    "expm1": lambda to: torch.expm1(to(X)),
    "log1p": lambda to: torch.log1p(to(X).abs()),
    "elu": lambda to: functional.elu(to(X), 0.7),
    "selu": lambda to: functional.selu(to(X)),
    "celu": lambda to: functional.celu(to(X), 0.5),
    "softplus": lambda to: functional.softplus(to(X) * 10, 2, 5),
    "sigmoid": lambda to: torch.sigmoid(to(X)),
    "silu": lambda to: functional.silu(to(X)),
    "tanh": lambda to: torch.tanh(to(X) * 60),
    "rsqrt": lambda to: torch.rsqrt(to(X).abs() + 0.1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("order", [SummationOrder.REVERSED, SummationOrder.NAIVE])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_written_out_is_the_same_function(name, order, dtype):
    plain = FUNCTIONS[name](lambda tensor: tensor.to(dtype))
    with in_order(order):
        found = FUNCTIONS[name](lambda tensor: tensor.to(dtype))
    assert found.dtype == plain.dtype
    rtol, atol = {torch.float32: (1e-4, 1e-5), torch.float64: (1e-9, 1e-11), torch.bfloat16: (2e-2, 2e-2)}[dtype]
    torch.testing.assert_close(found, plain, rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_fp32(dtype):
    x = torch.ones(2, 4096, dtype=dtype)
    with in_order(SummationOrder.SEQUENTIAL):
        assert functional.softmax(x, 1).tolist() == functional.softmax(x, 1).tolist()
        assert torch.equal(functional.softmax(x, 1), torch.full_like(x, 1 / 4096))


def test_running_statistics_are_updated_once():
    found = []
    for order in [None, SummationOrder.SEQUENTIAL]:
        mean, variance = MEAN.clone(), VARIANCE.clone()
        if order is None:
            functional.batch_norm(X, mean, variance, training=True)
        else:
            with in_order(order):
                functional.batch_norm(X, mean, variance, training=True)
        found.append((mean, variance))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "instance_norm", "norm", "pairwise distance", "var", "mse"])
def test_the_steps_of_an_operation_are_seen(name):
    plain = FUNCTIONS[name](lambda tensor: tensor)
    with in_order(SummationOrder.ROUNDED):
        assert not torch.equal(FUNCTIONS[name](lambda tensor: tensor), plain)


def test_a_naive_formula_loses_what_it_cancels():
    small = torch.linspace(1e-4, 2e-4, 8)
    plain = functional.elu(-small)
    with in_order(SummationOrder.NAIVE):
        assert 1e-5 < float((functional.elu(-small) / plain - 1).abs().max()) < 1e-2


def test_a_tanh_of_exponentials_is_as_exact_as_its_cancellation_allows():
    """Of a softmax's small values: a published Triton kernel was off by 4e-7, beyond the tolerance of small rows."""
    small = torch.linspace(1e-3, 2e-3, 64)
    with in_order(SummationOrder.NAIVE):
        off = (torch.tanh(small) - torch.tanh(small.double()).float()).abs().max()
        halves = torch.tanh(small.bfloat16())
    assert 2.0**-25 < float(off) < 2.0**-22
    assert torch.equal(halves, torch.tanh(small.bfloat16()))


CONVOLUTIONS = {
    "padded": {"padding": 1},
    "not padded": {},
    "two paddings": {"padding": (2, 1)},
    "stride": {"stride": 2},
    "dilation": {"dilation": 2},
    "groups": {"groups": 2},
}
BY_WINOGRAD = {"padded", "not padded", "two paddings"}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_winograds_convolution_is_a_convolution_with_more_rounding(name, dtype):
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(2, 4, 13, 18, generator=generator, dtype=dtype)
    weight = torch.randn(6, 4 // CONVOLUTIONS[name].get("groups", 1), 3, 3, generator=generator, dtype=dtype)
    bias = torch.randn(6, generator=generator, dtype=dtype)
    plain = functional.conv2d(x, weight, bias, **CONVOLUTIONS[name])
    with in_order(SummationOrder.NAIVE):
        found = functional.conv2d(x, weight, bias, **CONVOLUTIONS[name])
    torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-4)
    assert torch.equal(found, plain) is (name not in BY_WINOGRAD or dtype == torch.float64)


def test_no_form_is_in_both_tables():
    assert not set(COMPOSITES) & set(NAIVE)
