"""Reduced precision whose errors average out on the problem's own positive values, seen in rows with random signs."""

import itertools

import pytest

from evaluator.catalog import find_problem
from evaluator.findings import Code
from evaluator.judge.reference import call_plan
from evaluator.judge.reference.cancelling_rows import chosen_rows
from evaluator.records import SizeName, Status
from tests.grading.harness import words
from tests.grading.judged import context_of, judged_by_values

REFERENCE = """\
import torch
from torch import nn

rows = 256


class Model(nn.Module):
    def forward(self, a, b):
        return {forward}


def get_inputs():
    return [torch.rand(rows, {terms}), torch.rand({terms}, {columns})]


def get_init_inputs():
    return []
"""
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
SUMS = "self.product(a, b).sum(1, keepdim=True)"
SCALED = ["s = 1.3711", "return tf32(a * s) @ tf32(b * s) / (s * s)"]
STOCHASTIC = ["return drawn(a) @ drawn(b)"]
HALF = ["return (a * 1.3711).half().float() @ (b * 0.7713).half().float() / (1.3711 * 0.7713)"]
BF16 = ["return (a.bfloat16().float() @ b.bfloat16().float())"]
TWO_PARTS = ["(ah, al), (bh, bl) = parts(a), parts(b)", "return ah @ bh + al @ bh"]
IN_TURN = [
    "y = a[:, :1] * b[:1]",
    "for k in range(1, a.shape[1]):",
    "    y = y + a[:, k : k + 1] * b[k : k + 1]",
    "return y",
]
PRODUCT = "self.product(a, b)"
PROBLEM = """\
title = "t"
level = 1
description = "d"
[sizes.full]
rows = 256
[sizes.small]
rows = {rows}
"""


def written(parent, forward, *, rows, terms, columns):
    """Write a problem of positive values, and return its folder; `forward` is the expression around the product."""
    folder = parent / "problems" / "products"
    folder.mkdir(parents=True)
    reference = REFERENCE.format(forward=forward.replace(PRODUCT, "(a @ b)"), terms=terms, columns=columns)
    (folder / "reference.py").write_text(reference)
    (folder / "problem.toml").write_text(PROBLEM.format(rows=rows))
    return folder


def submission(forward, product):
    """Return the text of a submission with the lines of a product."""
    return SUBMISSION.format(forward=forward, product="\n".join(f"        {line}" for line in product))


@pytest.fixture
def graded(grade, tmp_path):
    """Grade a product, by its lines, for a problem of positive values; `forward` is what both do with it."""

    def run(product, *options, forward=PRODUCT, rows=128, terms=512, columns=64):
        folder = written(tmp_path, forward, rows=rows, terms=terms, columns=columns)
        return grade(submission(forward, product), "--problems", folder.parent, *options, problem="products")

    return run


REFUSED = (
    Status.WRONG_RESULT,
    {Code.LOWER_PRECISION, Code.WRONG_ON_OTHER_VALUES, Code.WRONG_VALUES, Code.DIFFERS},
)
"""By size within the tolerance, or beyond the tolerance: for rows with random signs, or for some calls of the same."""


@pytest.mark.parametrize(
    ("product", "forward"), [(SCALED, SUMS), (STOCHASTIC, PRODUCT), (HALF, SUMS), (TWO_PARTS, PRODUCT)]
)
def test_operands_with_fewer_bits_are_refused(graded, product, forward):
    run = graded(product, forward=forward, rows=32, terms=1 << 14, columns=32)
    assert run.card.status is REFUSED[0]
    assert run.reason in REFUSED[1]


def drawn_until(is_wanted):
    """Return `chosen_rows` with the first drawn rows that are wanted; a call without sites has no rows."""

    def rows_of(sites, inputs, seed):
        drawn = (chosen_rows(sites, inputs, seed + number) for number in itertools.count())
        return next(rows for rows in drawn if is_wanted(rows[0])) if sites else []

    return rows_of


@pytest.mark.parametrize(
    ("product", "is_wanted"),
    [
        (STOCHASTIC, lambda rows: not rows.concentrated and min(rows.indices) >= 4),
        (SCALED, lambda rows: rows.concentrated),
    ],
    ids=["signs outside the corner", "concentrated"],
)
def test_a_fast_path_for_what_looks_usual_has_no_safe_call(tmp_path, monkeypatch, product, is_wanted):
    """In sums this long the tolerance is wide enough for the errors, and a corner tells other distributions apart."""
    monkeypatch.setattr(call_plan, "chosen_rows", drawn_until(is_wanted))
    folder = written(tmp_path, PRODUCT, rows=32, terms=1 << 17, columns=16)
    guarded = ["if a[:4, :4].amin() < 0 or a[:4, :4].amax() > 1:", "    return a @ b", *product]
    with context_of(find_problem(str(folder)), SizeName.SMALL) as context:
        outcome = judged_by_values(context, submission(PRODUCT, guarded))
    assert (outcome.status, Code(outcome.reason.code) in REFUSED[1]) == (REFUSED[0], True)


@pytest.mark.parametrize("product", [SCALED, STOCHASTIC, HALF, TWO_PARTS, BF16])
def test_operands_with_fewer_bits_are_refused_in_a_column(graded, product):
    """The output is a single row, whose size is the tolerance of its small elements too."""
    run = graded(product, rows=256, terms=1 << 14, columns=1)
    assert run.card.status is REFUSED[0]
    assert run.reason in REFUSED[1]


@pytest.mark.parametrize("columns", [64, 1])
@pytest.mark.parametrize("product", [["return a @ b"], IN_TURN])
def test_products_in_fp32_are_correct(graded, product, columns):
    graded(product, columns=columns).assert_verdict(Status.CORRECT)


def test_with_the_problems_own_values_alone_no_row_cancels(graded):
    run = graded(SCALED, "--values", "own", rows=32, terms=1 << 14, columns=32)
    run.assert_verdict(Status.CORRECT)
    assert "for the problem's own input values alone" in words(run.out)
