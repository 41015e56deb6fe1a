"""Small sizes at which a dimension is one that is larger at full size: a wrong axis would go unseen there."""

import hashlib

import pytest
import torch

from benchmarks.verdicts.kernelbench_sizes import degenerate
from evaluator.catalog import kernelbench, list_problems
from evaluator.catalog.kernelbench import SmallSize
from evaluator.catalog.reference import sized_source
from evaluator.records import SizeName
from evaluator.sizes.degenerate import Operation, Operations, made_one

SOURCE = """
import torch
from torch import nn

rows = 64
shape = (32, 16)
groups = 4
steps = 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x, y):
        {forward}


def get_inputs():
    return [torch.rand(rows, *shape), torch.rand(*shape)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def made(monkeypatch):
    """Make a problem in KernelBench's form with a small size of its own."""

    def make(small, forward, init="pass"):
        text = SOURCE.format(forward=forward, init=init)
        sizes = {hashlib.sha256(text.encode()).hexdigest(): SmallSize("made", small)}
        monkeypatch.setattr(kernelbench, "shipped_small_sizes", lambda: sizes)
        return kernelbench.read_text(text, "made")

    return make


DEGENERATE = {
    "a sum over one": ({"shape": [1, 16]}, "return x.sum(1)", "pass"),
    "a broadcast over one": ({"rows": 1}, "return x * y", "pass"),
    "a product of one": ({"shape": [32, 1]}, "return x @ y.T", "pass"),
    "pooled to one on the way": ({"shape": [2, 16]}, "return nn.functional.max_pool2d(x, 2).sum(1)", "pass"),
    "groups of one channel": (
        {"groups": 4, "shape": [4, 16]},
        "return self.n(x)",
        "self.n = nn.GroupNorm(4, shape[0])",
    ),
    "in a loop that is longer at full size": (
        {"steps": 3, "shape": [32, 1]},
        "return torch.stack([(x + number).mean(2) for number in range(steps)])",
        "pass",
    ),
    "in a branch that only the small size takes": (
        {"rows": 2, "shape": [1, 16]},
        "return x.mean(1) if rows < 8 else x.amax(1)",
        "pass",
    ),
}


@pytest.mark.parametrize(("small", "forward", "init"), DEGENERATE.values(), ids=DEGENERATE)
def test_a_dimension_that_only_the_small_size_makes_one_is_found(made, small, forward, init):
    assert degenerate(made(small, forward, init))


HONEST = {
    "two of everything": ({"rows": 2, "shape": [2, 2]}, "return (x * y).sum(1)", "pass"),
    "one at full size too": ({"rows": 2}, "return (x.mean(1, keepdim=True) * y).sum((1, 2))", "pass"),
    "a branch that only the small size takes": ({"rows": 2}, "return x.mean(1) if rows < 8 else x.amax(1)", "pass"),
    "a shorter loop": ({"steps": 2}, "return sum(x[number] for number in range(steps))", "pass"),
    "a constructor that asks for values": ({"rows": 2}, "return x * self.s", "self.s = torch.rand(3).sum().item()"),
}


@pytest.mark.parametrize(("small", "forward", "init"), HONEST.values(), ids=HONEST)
def test_others_are_not(made, small, forward, init):
    assert degenerate(made(small, forward, init)) == []


def test_what_is_found_says_where(made):
    assert degenerate(made({"rows": 1}, "return x * y"))[0] == (17, "mul", 0, 0, 64)


def summed(columns):
    with Operations() as trace:
        torch.rand(4, columns).sum(1, keepdim=True)
    return trace.operations


def test_a_dimension_that_becomes_one_is_seen_and_one_that_is_not():
    assert made_one(summed(8), summed(8)) == []
    assert [(each.operation, each.dimension, each.full) for each in made_one(summed(1), summed(8))] == [
        ("rand", 1, 8),
        ("sum", 1, 8),
    ]


def test_a_dimension_that_becomes_empty_is_seen():
    assert made_one([Operation(1, "sum", ((4, 0),))], [Operation(1, "sum", ((4, 8),))])
    assert made_one([Operation(1, "sum", ((1, 2),))], [Operation(1, "sum", ((1, 4),))]) == []


def test_where_the_full_size_is_unknown_every_dimension_of_one_counts():
    (first, *_) = made_one(summed(8), None)
    assert (first.operation, first.dimension, first.full) == ("sum", 1, None)
    assert made_one([Operation(1, "native_group_norm", ((2, 8),), groups=(1, 8))], None) == []


def test_a_shape_stays_a_tuple_at_another_size(made):
    problem = made({"shape": [4, 8]}, "return x")
    assert problem.cases[SizeName.FULL].axes["shape"] == [32, 16]
    assert "shape = (4, 8)\n" in sized_source(problem, SizeName.SMALL)
    assert sized_source(problem, SizeName.FULL) == problem.source


NEED_VALUES = {"moe_grouped_matmul_bf16"}
"""References that read values, such as sizes of groups, and do not run on the meta device."""
ON_META = [problem for problem in list_problems().problems if problem.name not in NEED_VALUES]


@pytest.mark.parametrize("problem", ON_META, ids=lambda problem: problem.name)
def test_no_shipped_problem_has_a_degenerate_size(problem):
    assert degenerate(problem, problem.cases.keys() - {*problem.workload, SizeName.FULL}) == []
