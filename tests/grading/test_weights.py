"""Weights that change from call to call: what follows them is correct, what was kept of earlier ones is not."""

import pytest
from msgspec.structs import replace

from evaluator.catalog import find_problem
from evaluator.findings import Code
from evaluator.records import SizeName, Status, WeightsGraded, WeightsRule
from tests.grading.judged import context_of, judged, verdict
from tests.unit.references import problem
from tests.zoo.entries import ZOO

HEAD = """
import torch
from torch import nn
from model import Model


class ModelNew(Model):
    def __init__(self):
        super().__init__()
        self.prepare()

    def prepare(self):
        pass
"""
PLAIN = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        model = __import__("model")
        one, two = nn.Linear(model.size, model.size), nn.Linear(model.size, model.size)
        self.keep(one.weight.detach(), one.bias.detach(), two.weight.detach(), two.bias.detach())
"""
FOLLOWS = {
    "packed again when a version has changed": HEAD
    + """
        self.packed = None

    def forward(self, x):
        versions = [parameter._version for parameter in self.parameters()]
        if self.packed is None or self.packed[0] != versions:
            weight = self.two.weight @ self.one.weight
            self.packed = versions, weight, self.two.weight @ self.one.bias + self.two.bias
        return nn.functional.linear(x, *self.packed[1:])
""",
    "transposed, and biases as rows": PLAIN
    + """
    def keep(self, a, b, c, d):
        self.a, self.c = nn.Parameter(a.t().contiguous()), nn.Parameter(c.t().contiguous())
        self.b, self.d = nn.Parameter(b[None].clone()), nn.Parameter(d[None].clone())

    def forward(self, x):
        return (x @ self.a + self.b) @ self.c + self.d
""",
    "plain attributes": PLAIN
    + """
    def keep(self, *tensors):
        self.a, self.b, self.c, self.d = (tensor.clone() for tensor in tensors)

    def forward(self, x):
        return nn.functional.linear(nn.functional.linear(x, self.a, self.b), self.c, self.d)
""",
}
IN_MEMORY_OF_ITS_OWN = (
    HEAD
    + """
        self.one.weight = nn.Parameter(torch.from_numpy(self.one.weight.detach().numpy().copy()))
"""
)
LAID_OUT_ANEW = (
    HEAD
    + """
    def forward(self, x):
        if not hasattr(self, "laid_out"):
            self.laid_out = True
            {}
        return super().forward(x)
"""
)
MOVES = {
    "data": LAID_OUT_ANEW.format("self.one.weight.data = self.one.weight.data.t().contiguous().t()"),
    "beside a view of the first place": HEAD
    + """
        self.one_t = self.one.weight.detach().t()

    def forward(self, x):
        if self.one_t.data_ptr() == self.one.weight.data_ptr():
            self.one.weight.data = self.one.weight.data.clone()
        return self.two(x @ self.one_t + self.one.bias)
""",
    "from memory outside": LAID_OUT_ANEW.format(
        "self.one.weight.data = torch.from_numpy(self.one.weight.detach().numpy().copy())"
    ),
}
FOLDED_IN_PLACE = (
    HEAD
    + """
    def forward(self, x):
        if not hasattr(self, "folded"):
            self.folded = True
            self.two.bias.data = self.two.weight @ self.one.bias + self.two.bias
            self.two.weight.data = self.two.weight @ self.one.weight
        return self.two(x)
"""
)
PACKED = (
    HEAD
    + """
        self.packed = self.one.weight.detach().t().contiguous()

    def forward(self, x):
        return self.two(x @ self.packed + self.one.bias)
"""
)
FUSED_ALONE = (
    PLAIN
    + """
    def keep(self, a, b, c, d):
        self.weight, self.bias = nn.Parameter(c @ a), nn.Parameter(c @ b + d)

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias)
"""
)


SUBMISSION = """
import torch
from model import Model
{}


class ModelNew(Model):
    calls = 0
    signs = None

    def forward(self, x):
        self.calls += 1
        {}
"""
OWN_WORD = """
import itertools
import msgspec.structs
from evaluator.runner.shared_memory import Outbox

count, real = itertools.count(), Outbox.from_tensor
Outbox.from_tensor = lambda self, tensor: msgspec.structs.replace(
    real(self, tensor), storage=(2**40 + next(count) * 2**24, 16)
)
"""
PLAIN_SIGNS = "return x @ torch.sign(self.table), "
LENDS = {
    "every other call": SUBMISSION.format(
        "", PLAIN_SIGNS + "self.table.detach() if self.calls % 2 else self.table.clone()"
    ),
    "every call, with false words of where": SUBMISSION.format(OWN_WORD, PLAIN_SIGNS + "self.table.detach()"),
}


@pytest.mark.parametrize("given", [".clone()", ".detach()"], ids=["a copy", "a view"])
@pytest.mark.parametrize("source", LENDS.values(), ids=LENDS)
def test_the_judges_writing_of_weights_is_no_answer(source, given):
    table = "self.table = nn.Parameter(torch.randn(64, 64))"
    own = problem(f"(x @ torch.sign(self.table), self.table{given})", "torch.randn(16, 64)", table)
    with context_of(own, SizeName.SMALL) as context:
        outcome = judged(context, source)
    if given == ".detach()":
        assert outcome.status is Status.CORRECT, outcome.reason
    else:
        assert verdict(outcome) == (Status.WRONG_RESULT, Code.OUTPUT_REUSED)
        assert "the memory of the weight table" in outcome.reason.message


@pytest.fixture(scope="module")
def graded():
    """Judge a submission for two linear layers; without `timed`, its checks alone."""
    with context_of(find_problem(str(ZOO / "problems" / "two_linears")), SizeName.AWKWARD) as context:

        def run(source, rule=WeightsRule.CHANGING, *, timed=False):
            context.terms = context.terms._replace(options=replace(context.terms.options, weights=rule))
            return judged(context, source, timed=timed)

        yield run


def codes(outcome):
    return {finding.code for finding in outcome.findings}


@pytest.mark.parametrize("source", FOLLOWS.values(), ids=FOLLOWS)
def test_what_follows_the_weights_is_correct(graded, source):
    outcome = graded(source)
    assert outcome.status is Status.CORRECT, outcome.reason
    assert (outcome.weights.graded, outcome.weights.changed, outcome.weights.copied) == (WeightsGraded.CHANGING, 4, 0)


def test_weights_in_memory_of_its_own_are_copied_in_the_call(graded):
    outcome = graded(IN_MEMORY_OF_ITS_OWN)
    assert outcome.status is Status.CORRECT, outcome.reason
    assert (outcome.weights.graded, outcome.weights.changed, outcome.weights.copied) == (WeightsGraded.CHANGING, 4, 1)


@pytest.mark.parametrize("source", MOVES.values(), ids=MOVES)
def test_weights_that_the_first_call_lays_out_anew_change_where_they_lie_then(graded, source):
    outcome = graded(source)
    assert outcome.status is Status.CORRECT, outcome.reason
    assert (outcome.weights.graded, outcome.weights.changed) == (WeightsGraded.CHANGING, 4)
    assert outcome.weights.copied == 1


def test_weights_folded_into_each_other_in_the_first_call_are_wrong(graded):
    outcome = graded(FOLDED_IN_PLACE)
    assert outcome.status is Status.WRONG_RESULT
    assert graded(FOLDED_IN_PLACE, WeightsRule.FROZEN).status is Status.CORRECT


def test_what_was_kept_of_earlier_weights_is_wrong_and_says_why(graded):
    outcome = graded(PACKED)
    assert verdict(outcome) == (Status.WRONG_RESULT, Code.STALE_WEIGHTS)
    frozen = graded(PACKED, WeightsRule.FROZEN)
    assert frozen.status is Status.CORRECT, frozen.reason
    assert frozen.weights.graded is WeightsGraded.FROZEN


def test_weights_that_correspond_to_none_of_the_references_stay_and_no_speedup_is_quoted(graded):
    outcome = graded(FUSED_ALONE, timed=True)
    assert outcome.status is Status.CORRECT, outcome.reason
    assert outcome.weights.graded is WeightsGraded.FROZEN
    assert "one.weight" in outcome.weights.reason
    assert Code.WEIGHTS_NOT_CHANGED.value in codes(outcome)
    assert (outcome.timing.speedup, outcome.timing.significant) == (None, None)
    frozen = graded(FUSED_ALONE, WeightsRule.FROZEN)
    assert frozen.status is Status.CORRECT
    assert Code.WEIGHTS_NOT_CHANGED.value not in codes(frozen)


MEAN_OF_NORM = problem("self.norm(x).mean(1)", "torch.rand(16, 32)", "self.norm = nn.GroupNorm(4, 32)")
"""0 but for rounding, with the constructed weights of 1 and biases of 0."""
OWN_MEAN = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = {}

    def forward(self, x):
        groups = x.view(len(x), 4, 8)
        spread = (groups.var(2, unbiased=False, keepdim=True) + 1e-5).rsqrt()
        return {}
"""
SAME_OPERATIONS = OWN_MEAN.format(
    "None", "torch.nn.functional.group_norm(x, 4, torch.ones(32), torch.zeros(32)).mean(1)"
)
ZEROS = OWN_MEAN.format("None", "torch.zeros(len(x)) * spread.sum()")
WITH_WEIGHTS = OWN_MEAN.format(
    "nn.GroupNorm(4, 32)",
    "(((groups - groups.mean(2, keepdim=True)) * spread).view(len(x), 32) * self.norm.weight + self.norm.bias).mean(1)",
)
NORM_AND_MEAN = "(n := F.batch_norm(self.linear(x), None, None, training=True), n.mean(0))"
ALWAYS_ROUNDING = problem(NORM_AND_MEAN, "torch.rand(64, 32)", "self.linear = nn.Linear(32, 32)")
"""The mean of a batch norm is 0, apart from rounding, for all weights of the layer before."""
OWN_BATCH_NORM = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, x):
        y = torch.einsum("bi,oi->bo", x, self.linear.weight) + self.linear.bias
        centered = y - y.mean(0)
        normal = centered / (centered.square().mean(0) + 1e-5).sqrt()
        return normal, normal.sum(0) / len(x)
"""
UNDECIDED = (Status.INCONCLUSIVE, Code.ROUNDING_DECIDES)


def judged_for(own, source, rule=WeightsRule.CHANGING):
    """Judge a submission for a problem."""
    with context_of(own, SizeName.SMALL, weights=rule) as context:
        return judged(context, source)


def test_an_output_of_rounding_alone_allows_no_verdict():
    outcome = judged_for(MEAN_OF_NORM, ZEROS)
    assert verdict(outcome) == UNDECIDED
    assert "norm.weight" in outcome.reason.message
    assert Code.WEIGHTS_NOT_CHANGED.value not in codes(outcome)
    assert all(check.ok for check in outcome.checks)


def test_an_output_of_rounding_is_right_if_each_bit_is_the_references_and_no_speedup_quoted():
    outcome = judged_for(MEAN_OF_NORM, SAME_OPERATIONS)
    assert outcome.status is Status.CORRECT, outcome.reason
    assert Code.WEIGHTS_NOT_CHANGED.value in codes(outcome)
    own_layer = MEAN_OF_NORM.source.replace("class Model(", "class ModelNew(")
    assert verdict(judged_for(MEAN_OF_NORM, own_layer, WeightsRule.FROZEN)) == UNDECIDED


@pytest.mark.parametrize(
    ("own", "source"), [(MEAN_OF_NORM, WITH_WEIGHTS), (ALWAYS_ROUNDING, OWN_BATCH_NORM)], ids=["special", "always"]
)
def test_weights_that_change_decide_about_an_output_of_rounding(own, source):
    outcome = judged_for(own, source)
    assert outcome.status is Status.CORRECT, outcome.reason


def test_an_output_of_rounding_under_all_weights_passes_beside_a_proven_one():
    assert judged_for(ALWAYS_ROUNDING, OWN_BATCH_NORM, WeightsRule.FROZEN).status is Status.CORRECT
    alone = problem(f"{NORM_AND_MEAN}[1]", "torch.rand(64, 32)", "self.linear = nn.Linear(32, 32)")
    unproven = judged_for(alone, OWN_BATCH_NORM.replace("normal, normal.sum(0)", "normal.sum(0)"))
    assert verdict(unproven) == UNDECIDED
    assert "weights" not in unproven.reason.message
    assert "--weights" not in unproven.reason.next_step
