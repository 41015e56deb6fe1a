"""The tables of honest and of low-precision forms: a run on a tiny problem, and a pass and a refusal in each table."""

import itertools
import json

import pytest
import torch

from benchmarks.numerics import honest_grades, low_precision_table, orders_table
from benchmarks.numerics.honest_forms import FORMS
from benchmarks.numerics.judged_answers import AnswerTrials, set_up
from evaluator.findings import Code
from evaluator.judge.numerics.arithmetic_modes import with_handlers
from evaluator.records import Profile, SizeName
from tests.unit.references import problem

REFERENCE = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return {forward}


def get_inputs():
    return [torch.rand(8, 64), torch.rand(64, 8)]


def get_init_inputs():
    return []
"""
SETTINGS = """\
title = "t"
level = 1
description = "d"
[sizes.full]
[sizes.small]
"""


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "problems" / "product"
    made.mkdir(parents=True)
    (made / "reference.py").write_text(REFERENCE.format(forward="a @ b"))
    (made / "problem.toml").write_text(SETTINGS)
    return made.parent


def run(folder, *more):
    output = folder.parent / "orders.jsonl"
    status = orders_table.main([str(folder), "--output", str(output), *more])
    return status, [json.loads(line) for line in output.read_text().splitlines()], output.with_suffix(".md").read_text()


def test_every_honest_form_of_a_product_is_correct(folder):
    status, (line,), page = run(folder)
    answers = {row["form"]: row for row in line["results"] if row["values"] == "as_given"}
    assert status == 0
    assert set(answers) == set(FORMS)
    assert all(0 <= row["ratio"] < 1 and row["code"] is None for row in answers.values())
    assert [row["kernelbench"] for row in answers.values()] == [0] * len(FORMS)
    assert "1 problems have every form correct" in page


def test_a_wrong_form_is_in_the_table_and_a_second_run_adds_nothing(folder, monkeypatch):
    doubled = {torch.ops.aten.mm.default: lambda mm, a, b: mm(a, b) * 2}
    monkeypatch.setitem(orders_table.FORMS, "reversed", lambda: with_handlers(doubled))
    _, lines, page = run(folder)
    assert "| product | reversed | as_given |" in page
    assert Code.WRONG_VALUES.value in page
    assert [row["kernelbench"] for row in lines[0]["results"] if "kernelbench" in row].count(1) == 1
    monkeypatch.undo()
    status, again, _ = run(folder)
    assert status == 1
    assert again == lines


def honest(output, *forms):
    arguments = ["--grades", "2", "--rows", "4", "--terms", "256", "--problems", "L1 norm", "--output", str(output)]
    status = honest_grades.main([*arguments, "--forms", *forms])
    return status, json.loads(output.read_text()), output.with_suffix(".md").read_text()


def test_honest_grades_are_correct_and_a_wrong_form_is_counted(tmp_path, monkeypatch):
    status, line, page = honest(tmp_path / "right.jsonl", "random order")
    assert (status, line["grades"], line["codes"]) == (0, 2, {})
    assert 0 < line["median"] <= line["largest"] < 1
    assert page.startswith("0 of 2 grades are refused.")
    doubled = {torch.ops.aten.abs.default: lambda absolute, x: absolute(x) * 2}
    monkeypatch.setitem(honest_grades.FORMS, "random order", lambda: with_handlers(doubled))
    status, line, page = honest(tmp_path / "wrong.jsonl", "random order")
    assert (status, line["codes"]) == (1, {Code.WRONG_VALUES.value: 2})
    assert line["message"]
    assert "| 2 of 2 | C405 2 |" in page


def half(output, *more):
    arguments = ["--precision", "bf16", "--grades", "1", "--terms", "64", "--output", str(output)]
    low_precision_table.main([*arguments, *more])
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    return {line["form"]: line for line in lines}, output.with_suffix(".md").read_text()


def test_wrong_forms_of_half_precision_are_refused_unless_they_do_not_apply(tmp_path):
    forms = ("operands in fp8", "a quarter of the terms", "rank one", "the mean")
    lines, page = half(tmp_path / "low.jsonl", "--problems", "product", "--only", *forms)
    assert [sum(lines[form]["codes"].values()) for form in forms] == [1] * 4
    assert all(lines[form]["of_fp32"] > 10 for form in forms)
    assert "4 are refused in every grade" in page
    lines, page = half(tmp_path / "softmax.jsonl", "--problems", "softmax", "--only", "operands")
    assert [line["skipped"] for line in lines.values()] == ["the form does not apply"] * 3
    assert "Not tried" not in page


@pytest.mark.parametrize("form", list(FORMS))
def test_every_form_of_a_product_differs_from_pytorch_by_rounding_alone(form):
    setup = set_up(problem("x @ x.T", "torch.rand(16, 1000)"), SizeName.SMALL, "cpu")
    inputs = setup.reference.draw(1)
    exact = setup.reference.expected(inputs, 0, None).exact.outputs
    found = setup.reference.altered(inputs, 0, None, FORMS[form]()).outputs
    assert torch.allclose(found.double(), exact, rtol=1e-5)
    if form in ("term by term", "term by term, fused", "blocked", "random order"):
        assert not torch.equal(found, setup.reference.forward(inputs, 0))


@pytest.mark.parametrize(
    "function",
    [
        *("torch.exp(x)", "torch.expm1(x)", "torch.cosh(x)", "torch.tanh(x)", "torch.log(x.abs())", "torch.cos(x)"),
        *("torch.sigmoid(x)", "F.silu(x)", "torch.softmax(x, 1)", "torch.logsumexp(x, 1)", "torch.exp(x).sum(1)"),
        "x * torch.tanh(F.softplus(x))",
    ],
)
def test_fast_intrinsics_are_right_with_every_kind_of_values(function):
    setup = set_up(problem(function, "torch.rand(32, 1024) + 0.1"), SizeName.SMALL, "cpu")
    mix = setup.distribution_mix
    assert Profile.OUTLIERS in mix.use

    def answer(plan):
        return plan.reference.altered(plan.inputs, plan.random_seed, plan.gradients, FORMS["fast intrinsics"]())

    for profile in (Profile.AS_GIVEN, *mix.use):
        seeds = (seed for seed in itertools.count() if mix.pick(seed) is profile)
        for seed in itertools.islice(seeds, 3):
            trial = AnswerTrials(setup, answer).run(1, seed, timeout_s=60)
            assert trial.fault is None, (profile, seed, trial.fault)
