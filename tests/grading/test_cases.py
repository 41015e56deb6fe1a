"""Grades of several cases: one build, one card; kernels that are right or fast for some shapes alone."""

import json

import pytest

from evaluator.findings import Code
from evaluator.records import Status
from tests.plain_cpp import extension

pytestmark = pytest.mark.slow

REFERENCE = """\
import torch
from torch import nn

rows = 256
cols = 128


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
"""
TOML = """\
title = "Twice"
level = 1
description = "Twice the input."
[sizes.full]
rows = 256
cols = 128
[sizes.small]
rows = 16
cols = 128
"""
HIDDEN = "[hidden]\nrows = { min = 1, max = 256 }\n"
BODY = """\
    const float* in = values(x);
    float* out = values(y);
    const long rows = size(x, 0), count = rows * size(x, 1);
    for (long i = 0; i < count; ++i) out[i] = 2 * in[i];
    CHANGE
"""
KERNEL = """\
import torch
from torch.utils.cpp_extension import load_inline

made = load_inline(name="made", cpp_sources=SOURCE, no_implicit_headers=True)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        made.run(x, y)
        return y
"""
LISTED_ALONE = "if (rows != 16 && rows != 256 && rows != 32) out[count - 1] = 0;"
MULTIPLES_ALONE = "for (long i = count / 128 * 128; i < count; ++i) out[i] = 0;"


@pytest.fixture
def graded(grader, tmp_path):
    """Grade a kernel with a change on the CPU, against a problem with these lines of a workload."""

    def run(change, *options, toml=TOML, workload=()):
        folder = tmp_path / "twice"
        folder.mkdir(exist_ok=True)
        (folder / "reference.py").write_text(REFERENCE)
        (folder / "problem.toml").write_text(toml)
        (folder / "workload.jsonl").unlink(missing_ok=True)
        if workload:
            (folder / "workload.jsonl").write_text("\n".join(map(json.dumps, workload)))
        source = KERNEL.replace("SOURCE", repr(extension("run", "x, y", BODY.replace("CHANGE", change))))
        return grader(tmp_path, source, "--device", "cpu", "--mode", "check", *options, problem=str(folder))

    return run


def lines(count):
    return [{"name": f"case_{rows}", "axes": {"rows": rows}, "weight": rows} for rows in range(1, count + 1)]


def test_all_cases_are_built_once_and_are_one_card(graded):
    card = graded("", "--case", "all", workload=lines(4)).assert_verdict(Status.CORRECT)
    assert [each.name for each in card.cases] == [f"case_{rows}" for rows in range(1, 5)]
    assert {each.status for each in card.cases} == {Status.CORRECT}
    assert len(card.build.units) == 1
    assert {check.tensors[0].shape[0] for check in card.checks} == set(range(1, 5))
    assert (card.problem.size, card.problem.constants["rows"]) == ("case_1", 1)


def test_a_kernel_for_the_listed_shapes_alone_is_wrong_at_a_hidden_one(graded):
    graded(LISTED_ALONE, "--case", "small,full").assert_verdict(Status.CORRECT)
    card = graded(LISTED_ALONE, toml=TOML + HIDDEN).assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)
    failed = next(each for each in card.cases if each.status is Status.WRONG_RESULT)
    assert failed.hidden
    assert f"at case {failed.name} (rows = {failed.axes['rows']}, not 16)" in card.reason.message
    assert card.cases[0].status is Status.CORRECT


def test_a_kernel_for_multiples_alone_is_wrong_at_a_hidden_shape(graded):
    graded(MULTIPLES_ALONE, "--case", "small,full").assert_verdict(Status.CORRECT)
    run = graded(MULTIPLES_ALONE, toml=TOML + HIDDEN + "cols = { min = 1, max = 128 }\n")
    card = run.assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)
    assert any(each.hidden and each.status is Status.WRONG_RESULT for each in card.cases)


def test_a_wrong_case_leaves_the_others_their_results(graded):
    workload = [{"name": name, "axes": {"rows": rows}} for name, rows in (("a", 32), ("b", 33), ("c", 16))]
    card = graded(LISTED_ALONE, "--case", "all", workload=workload).assert_verdict(
        Status.WRONG_RESULT, Code.WRONG_VALUES
    )
    assert {each.name: each.status for each in card.cases} == {
        "a": Status.CORRECT,
        "b": Status.WRONG_RESULT,
        "c": Status.CORRECT,
    }
    assert card.reason.message.startswith("at case b (rows = 33, not 32): ")


def test_a_case_that_the_problem_lacks_is_named(graded):
    run = graded("", "--case", "decode")
    assert (run.code, run.card) == (2, None)
    assert "twice has no case 'decode'; allowed: full, small" in run.err
    run = graded("", "--case", "hidden")
    assert "twice declares no hidden cases" in run.err
