"""Reduced precision whose errors average out on the problem's own positive values, seen in rows with random signs."""

import itertools

import pytest

from evaluator.findings import Code
from evaluator.judge.reference import call_plan
from evaluator.judge.reference.cancelling_rows import chosen_rows
from evaluator.records import SizeName, Status
from tests.grading.judged import context_of, judged_by_values, verdict
from tests.unit.references import problem

SUBMISSION = """\
import torch
from torch import nn


def tf32(x):
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def drawn(x):
    bits = x.contiguous().view(torch.int32)
    return ((bits + torch.randint(0, 0x2000, x.shape, dtype=torch.int32)) & ~0x1FFF).view(torch.float32)


def parts(x):
    high = x.bfloat16().float()
    return high, (x - high).bfloat16().float()


class ModelNew(nn.Module):
    def forward(self, a, b):
        return {forward}

    def product(self, a, b):
        {product}
"""
PRODUCT, SUMS = "self.product(a, b)", "self.product(a, b).sum(1, keepdim=True)"
SCALED = "s = 1.3711; return tf32(a * s) @ tf32(b * s) / (s * s)"
STOCHASTIC = "return drawn(a) @ drawn(b)"
HALF = "return (a * 1.3711).half().float() @ (b * 0.7713).half().float() / (1.3711 * 0.7713)"
TWO_PARTS = "(ah, al), (bh, bl) = parts(a), parts(b); return ah @ bh + al @ bh"
LOOK = "a[:4, :4].amin() < 0 or a[:4, :4].amax() > 1"
BY_SIZE = {Code.LOWER_PRECISION, Code.WRONG_ON_OTHER_VALUES, Code.WRONG_VALUES, Code.DIFFERS}
"""By size within the tolerance, or beyond the tolerance: for rows with random signs, or for some calls of the same."""


def product_verdict(product, forward=PRODUCT, *, rows=32, terms=1 << 14, columns=32):
    """Judge a product of positive values; `forward` is what both sides do with the product."""
    given = f"torch.rand({rows}, {terms}), torch.rand({terms}, {columns})"
    positive = problem(forward.replace(PRODUCT, "(a @ b)"), given, forward="a, b")
    with context_of(positive, SizeName.SMALL) as context:
        return verdict(judged_by_values(context, SUBMISSION.format(forward=forward, product=product)))


@pytest.mark.parametrize(
    ("product", "forward", "shape"),
    [
        (SCALED, SUMS, {}),
        (STOCHASTIC, PRODUCT, {}),
        (TWO_PARTS, PRODUCT, {}),
        # The output is a single row, whose size is the tolerance of its small elements too.
        (HALF, PRODUCT, {"rows": 256, "columns": 1}),
    ],
    ids=["scaled", "stochastic", "two parts", "a column"],
)
def test_operands_with_fewer_bits_are_refused(product, forward, shape):
    status, code = product_verdict(product, forward, **shape)
    assert (status, code in BY_SIZE) == (Status.WRONG_RESULT, True)


def concentrated_rows(sites, inputs, seed):
    """Return the first concentrated rows that are drawn; a call without sites has none."""
    drawn = (chosen_rows(sites, inputs, seed + number) for number in itertools.count())
    return next(rows for rows in drawn if rows[0].concentrated) if sites else []


@pytest.mark.long
def test_a_fast_path_for_what_looks_usual_has_no_safe_call(monkeypatch):
    """In sums this long the tolerance is wide enough for the errors, and a corner tells other distributions apart.

    The zoo has a path for rows with random signs outside of the corner.
    """
    monkeypatch.setattr(call_plan, "chosen_rows", concentrated_rows)
    guarded = f"if {LOOK}: return a @ b\n        {SCALED}"
    status, code = product_verdict(guarded, terms=1 << 17, columns=16)
    assert (status, code in BY_SIZE) == (Status.WRONG_RESULT, True)


@pytest.mark.parametrize("columns", [64, 1])
def test_products_in_fp32_are_correct(columns):
    in_turn = "return sum(a[:, k : k + 1] * b[k : k + 1] for k in range(a.shape[1]))"
    assert product_verdict(in_turn, rows=128, terms=512, columns=columns) == (Status.CORRECT, None)
