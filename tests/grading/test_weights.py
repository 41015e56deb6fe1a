"""Weights that change from call to call: what follows them is correct, what was kept of earlier ones is not."""

import pytest
from msgspec.structs import replace

from evaluator.catalog import find_problem
from evaluator.findings import Code
from evaluator.records import SizeName, Status, WeightsGraded, WeightsRule
from tests.grading.judged import context_of, judged
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
    "views made in the constructor": HEAD
    + """
        self.one_t, self.two_t = self.one.weight.detach().t(), self.two.weight.detach().t()

    def forward(self, x):
        return (x @ self.one_t + self.one.bias) @ self.two_t + self.two.bias
""",
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
    "other names": PLAIN
    + """
    def keep(self, *tensors):
        self.a, self.b, self.c, self.d = map(nn.Parameter, tensors)

    def forward(self, x):
        return nn.functional.linear(nn.functional.linear(x, self.a, self.b), self.c, self.d)
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
    "parameter": LAID_OUT_ANEW.format("self.one.weight = nn.Parameter(self.one.weight.detach().clone())"),
    "from a master copy, in every call": HEAD
    + """
        self.master = self.one.weight.data

    def forward(self, x):
        self.one.weight.data = self.master.clone()
        return super().forward(x)
""",
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
KEEPS = {
    "folded by address": (ZOO / "weights-folded-once" / "cheat.py").read_text(),
    "packed in the constructor": HEAD
    + """
        self.packed = self.one.weight.detach().t().contiguous()

    def forward(self, x):
        return self.two(x @ self.packed + self.one.bias)
""",
    "a bias folded away": HEAD
    + """
        self.bias = (self.two.weight @ self.one.bias + self.two.bias).detach()

    def forward(self, x):
        return (x @ self.one.weight.t()) @ self.two.weight.t() + self.bias
""",
}
FUSED_ALONE = (
    PLAIN
    + """
    def keep(self, a, b, c, d):
        self.weight, self.bias = nn.Parameter(c @ a), nn.Parameter(c @ b + d)

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias)
"""
)


TABLE = """
import torch
from torch import nn

size = 64


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(size, size))

    def forward(self, x):
        return x @ torch.sign(self.table), self.table{}


def get_inputs():
    return [torch.randn(16, size)]


def get_init_inputs():
    return []
"""
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
STALE_SIGNS = SUBMISSION.format(
    "",
    """if self.signs is None:
            self.signs = torch.sign(self.table.detach())
        return x @ self.signs, self.table.clone()""",
)


@pytest.fixture(params=[".clone()", ".detach()"], ids=["a copy", "a view"])
def table(request, tmp_path):
    (tmp_path / "table.py").write_text(TABLE.format(request.param))
    return find_problem(str(tmp_path / "table.py")), request.param


@pytest.mark.parametrize("source", LENDS.values(), ids=LENDS)
def test_the_judges_writing_of_weights_is_no_answer(table, source):
    problem, given = table
    with context_of(problem) as context:
        outcome = judged(context, source)
    if given == ".detach()":
        assert outcome.status is Status.CORRECT, outcome.reason
    else:
        assert (outcome.status, outcome.reason.code) == (Status.WRONG_RESULT, Code.OUTPUT_REUSED.value)
        assert "the memory of the weight table" in outcome.reason.message


def test_signs_of_earlier_weights_are_wrong(table):
    with context_of(table[0]) as context:
        outcome = judged(context, STALE_SIGNS)
        assert (outcome.status, outcome.reason.code) == (Status.WRONG_RESULT, Code.STALE_WEIGHTS.value)
        honest = judged(context, SUBMISSION.format("", PLAIN_SIGNS + "self.table.clone()"))
        assert honest.status is Status.CORRECT, honest.reason


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
    outcome = graded(IN_MEMORY_OF_ITS_OWN, timed=True)
    assert outcome.status is Status.CORRECT, outcome.reason
    assert (outcome.weights.graded, outcome.weights.changed, outcome.weights.copied) == (WeightsGraded.CHANGING, 4, 1)


@pytest.mark.parametrize("source", MOVES.values(), ids=MOVES)
def test_weights_that_the_first_call_lays_out_anew_change_where_they_lie_then(graded, source):
    outcome = graded(source, timed=True)
    assert outcome.status is Status.CORRECT, outcome.reason
    assert (outcome.weights.graded, outcome.weights.changed) == (WeightsGraded.CHANGING, 4)
    assert outcome.weights.copied == 1
    assert outcome.timing is not None


def test_weights_folded_into_each_other_in_the_first_call_are_wrong(graded):
    outcome = graded(FOLDED_IN_PLACE)
    assert outcome.status is Status.WRONG_RESULT
    assert graded(FOLDED_IN_PLACE, WeightsRule.FROZEN).status is Status.CORRECT


@pytest.mark.parametrize("source", KEEPS.values(), ids=KEEPS)
def test_what_was_kept_of_earlier_weights_is_wrong_and_says_why(graded, source):
    outcome = graded(source)
    assert (outcome.status, outcome.reason.code) == (Status.WRONG_RESULT, Code.STALE_WEIGHTS.value)
    frozen = graded(source, WeightsRule.FROZEN)
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


MEAN_OF_NORM = """
import torch
from torch import nn

batch_size = 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(4, 32)

    def forward(self, x):
        return self.norm(x).mean(1)


def get_inputs():
    return [torch.rand(batch_size, 32)]


def get_init_inputs():
    return []
"""
OWN_MEAN = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {}

    def forward(self, x):
        groups = x.view(len(x), 4, 8)
        spread = (groups.var(2, unbiased=False, keepdim=True) + 1e-5).rsqrt()
        return {}
"""
WITHOUT_WEIGHTS = OWN_MEAN.format("pass", "((groups - groups.mean(2, keepdim=True)) * spread).mean((1, 2))")
SAME_OPERATIONS = OWN_MEAN.format(
    "pass", "torch.nn.functional.group_norm(x, 4, torch.ones(32), torch.zeros(32)).mean(1)"
)
FIRST_THE_SAME = SAME_OPERATIONS.replace(
    "return ", "self.calls = getattr(self, 'calls', 0) + 1\n        return "
).replace(".mean(1)", ".mean(1) * (1 if self.calls <= 2 else 1.01)")
ZEROS = OWN_MEAN.format("pass", "torch.zeros(len(x)) * spread.sum()")
WITH_WEIGHTS = OWN_MEAN.format(
    "self.norm = nn.GroupNorm(4, 32)",
    "(((groups - groups.mean(2, keepdim=True)) * spread).view(len(x), 32) * self.norm.weight + self.norm.bias).mean(1)",
)


TWO_OUTPUTS = MEAN_OF_NORM.replace("self.norm(x).mean(1)", "(self.norm(x).mean(1), self.norm(x))")
OWN_TWO_OUTPUTS = WITH_WEIGHTS.replace("return (((", "normal = (((").replace(
    "bias).mean(1)", "bias)\n        return normal.mean(1), normal"
)
# The mean of a batch norm is 0, apart from rounding, for all weights of the layer before.
ALWAYS_ROUNDING = """
import torch
import torch.nn.functional as F
from torch import nn

batch_size = 64


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, x):
        normal = F.batch_norm(self.linear(x), None, None, training=True)
        return normal, normal.mean(0)


def get_inputs():
    return [torch.rand(batch_size, 32)]


def get_init_inputs():
    return []
"""
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


@pytest.fixture(scope="module")
def judged_for(tmp_path_factory):
    """Judge a submission for the problem with a given text."""

    def run(problem, source, rule=WeightsRule.CHANGING):
        path = tmp_path_factory.mktemp("problem") / "problem.py"
        path.write_text(problem)
        with context_of(find_problem(str(path))) as context:
            context.terms = context.terms._replace(options=replace(context.terms.options, weights=rule))
            return judged(context, source)

    return run


@pytest.mark.parametrize("source", [WITHOUT_WEIGHTS, ZEROS], ids=["honest", "zeros"])
def test_an_output_of_rounding_alone_allows_no_verdict(judged_for, source):
    outcome = judged_for(MEAN_OF_NORM, source)
    assert (outcome.status, outcome.reason.code) == (Status.INCONCLUSIVE, Code.ROUNDING_DECIDES.value)
    assert "norm.weight" in outcome.reason.message
    assert Code.WEIGHTS_NOT_CHANGED.value not in codes(outcome)
    assert all(check.ok for check in outcome.checks)


def test_an_output_of_rounding_is_right_if_each_bit_is_the_references_and_no_speedup_quoted(judged_for):
    outcome = judged_for(MEAN_OF_NORM, SAME_OPERATIONS)
    assert outcome.status is Status.CORRECT, outcome.reason
    assert Code.WEIGHTS_NOT_CHANGED.value in codes(outcome)
    own_layer = MEAN_OF_NORM.replace("class Model(", "class ModelNew(")
    frozen = judged_for(MEAN_OF_NORM, own_layer, WeightsRule.FROZEN)
    assert frozen.reason.code == Code.ROUNDING_DECIDES.value


def test_an_output_of_rounding_needs_the_references_bits_in_all_calls(judged_for):
    outcome = judged_for(MEAN_OF_NORM, FIRST_THE_SAME)
    assert (outcome.status, outcome.reason.code) == (Status.INCONCLUSIVE, Code.ROUNDING_DECIDES.value)


@pytest.mark.parametrize(
    ("problem", "source"), [(MEAN_OF_NORM, WITH_WEIGHTS), (ALWAYS_ROUNDING, OWN_BATCH_NORM)], ids=["special", "always"]
)
def test_weights_that_change_decide_about_an_output_of_rounding(judged_for, problem, source):
    changing = judged_for(problem, source)
    assert changing.status is Status.CORRECT, changing.reason


def test_constant_weights_leave_an_output_undecided_that_other_weights_decide(judged_for):
    for problem, source in [(MEAN_OF_NORM, WITH_WEIGHTS), (TWO_OUTPUTS, OWN_TWO_OUTPUTS)]:
        frozen = judged_for(problem, source, WeightsRule.FROZEN)
        assert (frozen.status, frozen.reason.code) == (Status.INCONCLUSIVE, Code.ROUNDING_DECIDES.value)


def test_an_output_of_rounding_under_all_weights_passes_beside_a_proven_one(judged_for):
    frozen = judged_for(ALWAYS_ROUNDING, OWN_BATCH_NORM, WeightsRule.FROZEN)
    assert frozen.status is Status.CORRECT, frozen.reason
    alone = ALWAYS_ROUNDING.replace("normal, normal.mean(0)", "normal.mean(0)")
    own = OWN_BATCH_NORM.replace("normal, normal.sum(0)", "normal.sum(0)")
    unproven = judged_for(alone, own)
    assert (unproven.status, unproven.reason.code) == (Status.INCONCLUSIVE, Code.ROUNDING_DECIDES.value)
    assert "weights" not in unproven.reason.message
    assert "--weights" not in unproven.reason.next_step
