"""Parameters that a submission names, shapes or initialises otherwise than the reference."""

import pytest
from msgspec.structs import replace

from evaluator.findings import Code
from evaluator.records import DeviceKind, SizeName, Status, WeightsGraded
from tests.grading.judged import context_of, judged, verdict
from tests.unit.references import problem

LINEAR_AND_NORM = problem(
    "self.batch_norm(self.gemm(x)) * self.scale[:, 0]",
    "torch.randn(32, 24)",
    "self.gemm, self.batch_norm = nn.Linear(24, 24), nn.BatchNorm1d(24); self.scale = nn.Parameter(torch.randn(24, 1))",
)
OWN = """
import torch
from torch import nn
from torch.nn import functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        features = 24
{}

    def forward(self, x):
{}
"""


def own(init, forward):
    return OWN.format(*("\n".join(f"        {line}" for line in text.strip().splitlines()) for text in (init, forward)))


LINEAR = """
linear = nn.Linear(features, features)
self.gemm_weight, self.gemm_bias = nn.Parameter(linear.weight.detach()), nn.Parameter(linear.bias.detach())
"""
ROUNDED = """
self.gemm_weight = nn.Parameter(torch.empty(features, features))
self.gemm_bias = nn.Parameter(torch.empty(features))
nn.init.kaiming_uniform_(self.gemm_weight, a=2.236)
nn.init.uniform_(self.gemm_bias, -features ** -0.5, features ** -0.5)
"""
OTHER = """
self.gemm_weight = nn.Parameter(torch.randn(features, features))
self.gemm_bias = nn.Parameter(torch.zeros(features))
"""
NORM = """
self.gamma, self.beta = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
self.register_buffer("mean", torch.zeros(features))
self.register_buffer("var", torch.ones(features))
self.multiplier_scale = nn.Parameter(torch.randn(features))
"""
FORWARD = """
y = F.linear(x, self.gemm_weight, self.gemm_bias)
mean, var = y.mean(0), y.var(0, unbiased=False)
self.mean.lerp_(mean, 0.1)
self.var.lerp_(var * (len(y) / (len(y) - 1)), 0.1)
return ((y - mean) * (var + 1e-5).rsqrt() * self.gamma + self.beta) * self.multiplier_scale
"""
STALE = """
return (F.batch_norm(x @ self.packed + self.gemm_bias, None, None, training=True) * self.gamma + self.beta) * (
    self.multiplier_scale
)
"""
WITHOUT_AFFINE = FORWARD.replace(" * self.gamma + self.beta", "")
FOLDED = """
self.gamma, self.beta = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
self.multiplier_scale = nn.Parameter(torch.randn(features))
self.folded = (self.gamma * self.multiplier_scale).detach()
"""


def judge(source, own=LINEAR_AND_NORM, *, timed=False, device=DeviceKind.CPU):
    """Judge a submission for a problem."""
    with context_of(own, SizeName.SMALL, device) as context:
        return judged(context, source, timed=timed)


def codes(outcome):
    return {finding.code for finding in outcome.findings}


def message(outcome, code):
    return next(finding.message for finding in outcome.findings if finding.code == code.value)


UNMATCHED = {Code.WEIGHTS_NOT_COPIED.value, Code.WEIGHTS_NOT_CHANGED.value}


@pytest.mark.parametrize("linear", [LINEAR, ROUNDED, OTHER], ids=["equal", "rounded", "another initialiser"])
def test_other_names_and_initial_values_are_judged_by_what_is_computed(linear):
    outcome = judge(own(linear + NORM, FORWARD))
    assert outcome.status is Status.CORRECT, outcome.reason
    assert (outcome.weights.graded, outcome.weights.changed) == (WeightsGraded.CHANGING, 5)
    assert codes(outcome).isdisjoint(UNMATCHED)
    assert "batch_norm.weight in gamma" in message(outcome, Code.WEIGHTS_ASSUMED) or linear is not LINEAR


def test_a_renamed_submission_has_a_speedup():
    outcome = judge(own(ROUNDED + NORM, FORWARD), timed=True)
    assert outcome.status is Status.CORRECT, outcome.reason
    assert outcome.timing.significant is not None  # The speedup itself depends on how busy the machine is.
    assert outcome.weights.graded is WeightsGraded.CHANGING


def test_no_part_of_the_weights_is_copied_without_the_rest():
    """The reference fails with other weights than its own."""
    norm = "self.gemm.weight.norm().item()"
    refuses = f"self.batch_norm(self.gemm(x)) * self.scale[:, 0] * (1 // (abs({norm} - self.norm) < 1e-3))"
    refusing = replace(
        LINEAR_AND_NORM,
        source=LINEAR_AND_NORM.source.replace("randn(24, 1))", f"randn(24, 1)); self.norm = {norm}").replace(
            "self.batch_norm(self.gemm(x)) * self.scale[:, 0]", refuses
        ),
        sha256="1" * 64,
    )
    init = "\n".join(line for line in (LINEAR + NORM).splitlines() if "self.beta" not in line)
    forward = "\n".join(line for line in WITHOUT_AFFINE.splitlines() if "lerp" not in line)
    outcome = judge(own(init, f"{forward} + 1"), refusing)
    assert outcome.status is Status.WRONG_RESULT
    assert Code.WEIGHTS_NOT_COPIED.value in codes(outcome)
    assert Code.WEIGHTS_ASSUMED.value not in codes(outcome)


HONEST_WITH_OTHER_MEANINGS = {
    "an affine norm that is folded away": (LINEAR + FOLDED, FORWARD.replace("self.multiplier_scale", "self.folded")),
    "a norm without effect, or else an exception": (
        LINEAR + NORM,
        f"if self.gamma.ne(1).any() or self.beta.any():\n    raise NotImplementedError\n{WITHOUT_AFFINE.strip()}",
    ),
}


@pytest.mark.parametrize(("init", "forward"), HONEST_WITH_OTHER_MEANINGS.values(), ids=HONEST_WITH_OTHER_MEANINGS)
def test_a_wrong_assumption_refuses_no_right_answer_and_quotes_no_speedup(init, forward):
    forward = "\n".join(line for line in forward.splitlines() if "lerp" not in line)
    outcome = judge(own(init, forward), timed=True)
    assert outcome.status is Status.CORRECT, outcome.reason
    assert (outcome.weights.graded, outcome.weights.unmatched) == (WeightsGraded.FROZEN, True)
    assert (outcome.timing.speedup, outcome.timing.significant) == (None, None)
    assert codes(outcome) >= UNMATCHED
    assert Code.WEIGHTS_ASSUMED.value not in codes(outcome)
    assert "batch_norm.weight in gamma" in message(outcome, Code.WEIGHTS_NOT_CHANGED)


def test_a_wrong_answer_for_both_weights_is_wrong_for_the_references():
    outcome = judge(own(LINEAR + NORM, FORWARD.replace("self.beta)", "self.beta + 0.01)")))
    assert verdict(outcome) == (Status.WRONG_RESULT, Code.WRONG_VALUES)
    assert outcome.weights.graded is WeightsGraded.CHANGING
    assert Code.WEIGHTS_ASSUMED.value in codes(outcome)


def test_weights_kept_under_other_names_are_stale_where_values_prove_all_pairs():
    plain = LINEAR_AND_NORM.source.replace("nn.BatchNorm1d(24)", "nn.BatchNorm1d(24, affine=False)")
    own_norm = replace(LINEAR_AND_NORM, source=plain, sha256="2" * 64)
    packed = "self.packed = self.gemm_weight.detach().t().clone()"
    forward = STALE.replace(" * self.gamma + self.beta", "")
    init = LINEAR + "self.multiplier_scale = nn.Parameter(torch.randn(features))\n"
    # The copy must come of the first call's weights: a copy of the constructed weights is a second candidate.
    kept = f"if not hasattr(self, 'packed'):\n    {packed}\n"
    outcome = judge(own(init, kept + forward), own_norm)
    assert verdict(outcome) == (Status.WRONG_RESULT, Code.STALE_WEIGHTS)
    honest = judge(own(init, f"{packed}\n{forward}"), own_norm)
    assert (honest.status, honest.weights.graded) == (Status.CORRECT, WeightsGraded.CHANGING), honest.reason


def test_weights_kept_beside_assumed_pairs_earn_no_speedup():
    kept = "if not hasattr(self, 'packed'):\n    self.packed = self.gemm_weight.detach().t().clone()\n"
    outcome = judge(own(LINEAR + NORM, kept + STALE), timed=True)
    assert (outcome.status, outcome.timing.speedup) == (Status.CORRECT, None)
    assert outcome.weights.unmatched
    assert Code.STALE_WEIGHTS.value in message(outcome, Code.WEIGHTS_NOT_CHANGED)


FOLDED_IN_PLACE = """
self.gemm, self.batch_norm = nn.Linear(features, features), nn.BatchNorm1d(features)
self.scale = nn.Parameter(torch.randn(features, 1))
with torch.no_grad():
    self.scale.mul_(2.0)
"""


def test_a_constant_folded_into_a_weight_refuses_no_right_answer_and_quotes_no_speedup():
    """A right answer for the weights that the constructor leaves, which the reference's weights replace."""
    outcome = judge(own(FOLDED_IN_PLACE, "return self.batch_norm(self.gemm(x)) * self.scale[:, 0] / 2"), timed=True)
    assert outcome.status is Status.CORRECT, outcome.reason
    assert (outcome.weights.graded, outcome.weights.unmatched) == (WeightsGraded.FROZEN, True)
    assert outcome.timing.speedup is None
    assert message(outcome, Code.WEIGHTS_NOT_COPIED).endswith("not copied: ModelNew's own values in scale")
    assert message(outcome, Code.WEIGHTS_NOT_CHANGED).endswith("not with the reference's (C405): scale")


CHANNELS = problem(
    "x * self.affine.weight + self.affine.bias + self.bias[:, 0, 0]",
    "torch.randn(16, 32)",
    "self.affine, self.bias = nn.GroupNorm(1, 32), nn.Parameter(torch.randn(32, 1, 1))",
)
KERNEL = """
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

built = load_inline(
    "channels",
    cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor g, torch::Tensor b, torch::Tensor s);",
    cuda_sources='''
__global__ void kernel(const float *x, const float *g, const float *b, const float *s, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * g[i % 32] + b[i % 32] + s[i % 32];
}
torch::Tensor run(torch::Tensor x, torch::Tensor g, torch::Tensor b, torch::Tensor s) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    kernel<<<(n + 127) / 128, 128>>>(
        x.data_ptr<float>(), g.data_ptr<float>(), b.data_ptr<float>(), s.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
''',
    functions=["run"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine_gamma = nn.Parameter(torch.ones(32))
        self.affine_beta = nn.Parameter(torch.zeros(32))
        self.bias = nn.Parameter(torch.zeros(32))

    def forward(self, x):
        return built.run(x, self.affine_gamma, self.affine_beta, self.bias)
"""


@pytest.mark.slow
def test_a_kernel_with_names_and_shapes_of_its_own_is_correct_on_the_emulator():
    outcome = judge(KERNEL, CHANNELS, device=DeviceKind.EMULATED)
    assert outcome.status is Status.CORRECT, outcome.reason
    assert (outcome.weights.graded, outcome.weights.changed) == (WeightsGraded.CHANGING, 3)
    assert "affine.weight in affine_gamma" in message(outcome, Code.WEIGHTS_ASSUMED)
