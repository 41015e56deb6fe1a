"""Half precision by one rounding: fp32 accumulators in any order pass, fewer bits and left-out work do not."""

import pytest
import torch
from torch.nn import functional

from evaluator.judge.compare.tensor_comparison import Sides, compare
from evaluator.judge.compare.tolerance import last_place
from tests.unit.judge.compare.test_tensor_comparison import measured

DTYPES = [torch.bfloat16, torch.float16]
FORMS = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}
"""Distance from 1 to the next number."""
INNER = 256


def drawn(kind, dtype, rows=64, columns=64):
    generator = torch.Generator().manual_seed(7)
    shapes = (rows, INNER), (INNER, columns)
    return [getattr(torch, kind)(shape, generator=generator).to(dtype) for shape in shapes]


def in_turn(a, b):
    """Add up products with one fp32 accumulator for each sum."""
    total = torch.zeros(len(a), b.shape[1])
    for column, row in zip(a.T.float(), b.float(), strict=True):
        total = torch.addcmul(total, column[:, None], row)
    return total


def split(a, b, parts=8):
    """Add up partial sums in fp32."""
    return sum(x.float() @ y.float() for x, y in zip(a.chunk(parts, 1), b.chunk(parts, 0), strict=True))


def in_half(a, b, parts=8):
    """Add up partial sums in half precision."""
    total = torch.zeros(len(a), b.shape[1], dtype=a.dtype)
    for x, y in zip(a.chunk(parts, 1), b.chunk(parts, 0), strict=True):
        total = total + (x.float() @ y.float()).to(a.dtype)
    return total


def by_means(a, b):
    """Return the product of row and column means over the mean."""
    product = a.float() @ b.float()
    return product.mean(1, keepdim=True) * product.mean(0, keepdim=True) / product.mean()


HONEST = {
    "one accumulator": in_turn,
    "backwards": lambda a, b: in_turn(a.flip(1), b.flip(0)),
    "eight partial sums": split,
    "in float64": lambda a, b: a.double() @ b.double(),
}
WRONG = {
    "partial sums in half precision": in_half,
    "operands in fp8": lambda a, b: a.to(torch.float8_e4m3fn).float() @ b.to(torch.float8_e4m3fn).float(),
    "a quarter of the products": lambda a, b: 4 * (a.float()[:, ::4] @ b.float()[::4]),
    "an eighth left out": lambda a, b: a.float()[:, 32:] @ b.float()[32:],
    "the mean": lambda a, b: (a.float() @ b.float()).mean().expand(len(a), b.shape[1]),
    "row means": lambda a, b: (a.float() @ b.float()).mean(1, keepdim=True).expand(len(a), b.shape[1]),
    "the product of means": by_means,
    "zeros": lambda a, b: torch.zeros(len(a), b.shape[1]),
    "other inputs": lambda a, b: a.float().flip(0) @ b.float(),
    "1 % more": lambda a, b: 1.01 * (a.float() @ b.float()),
}


def judged(product, kind, dtype):
    a, b = drawn(kind, dtype)
    honest = (a.float() @ b.float()).to(dtype)
    return compare("output", Sides(product(a, b).to(dtype), a.double() @ b.double(), honest), measured(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["rand", "randn"])
@pytest.mark.parametrize("product", HONEST.values(), ids=HONEST)
def test_a_product_with_accumulators_in_fp32_passes_in_any_order(product, kind, dtype):
    check = judged(product, kind, dtype)
    assert check.ok
    assert check.tolerance == FORMS[dtype] / 8


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["rand", "randn"])
@pytest.mark.parametrize("product", WRONG.values(), ids=WRONG)
def test_other_products_fail(product, kind, dtype):
    assert not judged(product, kind, dtype).ok


EPILOGUES = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "scaled": lambda y: y * 0.3,
    "silu by sigmoid": lambda y: y * torch.sigmoid(y),
    "a residual of ones": lambda y: y + 1,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("epilogue", EPILOGUES.values(), ids=EPILOGUES)
def test_an_epilogue_may_be_fused_or_round_as_the_reference_does(epilogue, dtype):
    a, b = drawn("randn", dtype)
    exact = epilogue(a.double() @ b.double() / 16)
    honest = epilogue((a.float() @ b.float() / 16).to(dtype))
    fused = epilogue(in_turn(a, b) / 16).to(dtype)
    unfused = epilogue((split(a, b) / 16).to(dtype))
    for answer in (fused, unfused):
        check = compare("output", Sides(answer, exact, honest), measured(dtype))
        assert check.ok
        # Two roundings of at most half a unit each, twice.
        assert FORMS[dtype] / 8 <= check.tolerance <= 3 * FORMS[dtype]
    assert not compare("output", Sides(epilogue(in_half(a, b) / 4).to(dtype), exact, honest), measured(dtype)).ok


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_swiglu_may_round_each_of_its_operations(dtype):
    """A silu rounds by half a unit in the last place, which is up to an eps / 2 of the result: e <= eps / 2."""
    generator = torch.Generator().manual_seed(6)
    gate, up = (torch.randn(256, 512, generator=generator).to(dtype) for _ in range(2))
    exact = functional.silu(gate.double()) * up.double()
    honest, eps = functional.silu(gate) * up, FORMS[dtype]
    once = (functional.silu(gate.float()) * up.float()).to(dtype)
    thrice = gate * torch.sigmoid(gate) * up
    for answer in (honest, once, thrice):
        check = compare("output", Sides(answer, exact, honest), measured(dtype))
        assert check.ok
        assert 0.8 * eps < check.tolerance <= 1.02 * eps
    size = float(exact.square().mean().sqrt())
    off = (exact + 3 * eps * size * torch.randn(exact.shape, generator=generator).sign()).to(dtype)
    assert not compare("output", Sides(off, exact, honest), measured(dtype)).ok


@pytest.mark.parametrize("dtype", DTYPES)
def test_both_neighbours_of_a_value_between_are_right_and_no_third(dtype):
    eps = FORMS[dtype]
    exact = torch.ones(4, 64, dtype=torch.float64)
    exact[1, 5] = 1 + eps / 2
    for steps, ok in ((-0.5, False), (0, True), (1, True), (2, False)):
        actual = exact.clone()
        actual[1, 5] = 1 + steps * eps
        answer = actual.to(dtype)
        assert float(answer[1, 5]) == 1 + steps * eps
        assert compare("output", Sides(answer, exact, exact.to(dtype)), measured(dtype)).ok is ok


def test_the_last_place_is_the_power_of_two_below():
    sizes = torch.tensor([0.0, 0.75, 1.0, 1.999, 2.0, 3.9, 1e9, 2.0**-1030, torch.inf], dtype=torch.float64)
    assert last_place(sizes).tolist() == [0.0, 0.5, 1.0, 1.0, 2.0, 2.0, 2.0**29, 0.0, torch.inf]
