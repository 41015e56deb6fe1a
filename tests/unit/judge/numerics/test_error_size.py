"""Reduced precision, told by the size of errors where rows cancel."""

import pytest
import torch

from evaluator.judge.numerics.arithmetic_modes import Format, SummationOrder, in_order, rounded, with_operands
from evaluator.judge.numerics.error_size import outsized
from evaluator.judge.numerics.reduced_precision import sampled_slices
from evaluator.judge.numerics.rounded_reference import CallErrors, ReferenceCall
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.cancelling_rows import Slices
from evaluator.judge.reference.reference import by_path
from evaluator.records import RowSite
from tests.unit.references import reference

SITES = (RowSite(0, 0, {"output": 0}),)
POSITIVE = "self.w = nn.Parameter(torch.rand(2048, 48))"


@pytest.fixture(scope="module")
def product():
    return reference("x @ self.w", "torch.rand(64, 2048)", POSITIVE)


def asked(made, answer, seed=3, sites=SITES):
    """Make a call, and sample the slices of `answer`, a function of the plan."""
    plan = CallPlan(made, seed, row_sites=sites)
    expected = made.expected(plan.inputs, plan.random_seed, None)
    exact, honest = by_path(expected.exact)["output"], by_path(expected.honest)["output"]
    errors = sampled_slices(plan.slices["output"], answer(plan), exact, honest)
    return CallErrors(
        lambda: ReferenceCall(made, plan.inputs, plan.random_seed, None, in_float64=True), {"output": errors}
    )


def in_mode(made, mode):
    return lambda plan: by_path(made.altered(plan.inputs, plan.random_seed, None, mode))["output"]


def scaled(to):
    def answer(plan):
        (x,), w = plan.inputs.args, plan.reference.model.w.detach()
        return rounded(x * 1.3711, to) @ rounded(w * 1.3711, to) / 1.3711**2

    return answer


@pytest.mark.parametrize("to", [Format.TF32, Format.TF32_CUT, Format.FP16, Format.BF16])
def test_rounded_operands_are_seen_also_where_their_direction_is_hidden(product, to):
    for answer in (in_mode(product, with_operands(to)), scaled(to)):
        found = outsized([asked(product, answer)], Format.TF32)
        assert found.path == "output"
        assert found.error > 0.25 * found.coarser > 8 * found.fp32 > 0


@pytest.mark.parametrize("order", list(SummationOrder))
def test_fp32_in_any_order_is_not(product, order):
    assert outsized([asked(product, in_mode(product, in_order(order)))], Format.TF32) is None


@pytest.mark.slow
def test_a_long_sum_in_one_accumulator_is_not():
    made = reference("x.sum(1, keepdim=True)", "torch.rand(64, 65536)")
    calls = [asked(made, in_mode(made, in_order(SummationOrder.SEQUENTIAL)), seed) for seed in range(8)]
    assert outsized(calls, Format.TF32) is None


@pytest.mark.parametrize(("steps", "is_seen"), [(4, False), (5, True)])
def test_a_few_steps_are_no_reduced_precision(product, steps, is_seen):
    def a_step_off(plan):
        values = product.forward(plan.inputs, 0).clone()
        row = plan.slices["output"][0].indices[0]
        values[row, :steps] += values.abs().max()
        return values

    assert (outsized([asked(product, a_step_off)], Format.TF32) is not None) is is_seen


def test_few_errors_decide_nothing_and_several_calls_do():
    made = reference("(x @ self.w)[:, :1]", "torch.rand(64, 2048)", POSITIVE)
    calls = [asked(made, lambda plan: scaled(Format.TF32)(plan)[:, :1], seed) for seed in range(6)]
    assert outsized(calls[:3], Format.TF32) is None
    assert outsized(calls, Format.TF32).path == "output"


def test_units_in_the_last_place_are_fp32s_own():
    made = reference("torch.exp(x)", "torch.rand(64, 64)")
    shift = lambda units: lambda plan: made.forward(plan.inputs, 0) * (1 + units * 2.0**-23)  # noqa: E731
    assert outsized([asked(made, shift(8))], Format.TF32) is None
    assert outsized([asked(made, shift(4096))], Format.TF32) is not None


def test_without_slices_there_is_no_sample():
    whole = torch.rand(64, 48)
    assert sampled_slices([], whole, whole.double(), whole) is None
    assert sampled_slices([Slices(0, 64, [70, -3])], whole, whole.double(), whole) is None
    assert sampled_slices([Slices(0, 64, [3])], whole.half(), whole.double(), whole.half()) is None


@pytest.mark.parametrize(("dim", "indices"), [(0, [3]), (1, [0, 6]), (2, [4, 1])])
def test_the_places_of_slices(dim, indices):
    whole = torch.arange(5 * 7 * 6).float().view(5, 7, 6)
    found = sampled_slices([Slices(dim, whole.shape[dim], indices)], whole, whole.double(), whole)
    wanted = torch.cat([whole.select(dim, index).reshape(-1) for index in indices])
    assert sorted(found.actual.tolist()) == sorted(wanted.tolist())
    assert found.places.tolist() == found.actual.tolist()


def test_large_slices_are_sampled_within():
    whole = torch.zeros(8, 1 << 16)
    whole[5] = 1
    found = sampled_slices([Slices(0, 8, [5])], whole, whole.double(), whole)
    assert len(found.places) == 4096
    assert found.actual.min() == 1
