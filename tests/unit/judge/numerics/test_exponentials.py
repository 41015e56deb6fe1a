"""Rounding of exponentials by base 2: the bound is that of the arithmetic, and widens no other tolerance."""

import math

import pytest
import torch

from benchmarks.numerics.judged_answers import AnswerTrials, set_up
from evaluator.findings import Code
from evaluator.judge.numerics.exponentials import by_base_2, units_of_exponentials
from evaluator.protocol import model_call
from evaluator.records import SizeName
from tests.unit.references import problem, reference

EPS = 2.0**-23
LOG2_E = torch.tensor(math.log2(math.e))
X = torch.linspace(-85, 85, 20_001)
ONE_OUTLIER_A_ROW = "torch.cat([torch.rand(64, 4095), torch.linspace(60, 66, 64).unsqueeze(1)], 1)"
FUNCTIONS = {
    "exp": (torch.exp, lambda exp, x: exp(x)),
    "expm1": (torch.expm1, lambda exp, x: exp(x) - 1),
    "sinh": (torch.sinh, lambda exp, x: (exp(x) - exp(-x)) / 2),
    "cosh": (torch.cosh, lambda exp, x: (exp(x) + exp(-x)) / 2),
    "sigmoid": (torch.sigmoid, lambda exp, x: 1 / (1 + exp(-x))),
    "silu": (torch.nn.functional.silu, lambda exp, x: x / (1 + exp(-x))),
}


def by_product(x):
    """Return exp in float64 but for the rounding of x log2 e in fp32."""
    return torch.exp2((x.float() * LOG2_E).double())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_product_is_rounded_by_more_than_the_bound(name):
    function, of_exp = FUNCTIONS[name]
    exact = function(X.double())
    error = (of_exp(by_product, X.double()) - exact).abs()
    with by_base_2():
        bound = (function(X).double() - exact).abs()
    last_places = 3 * EPS * (exact.abs() + (X.abs() < 1))  # exp(x) - 1 cancels near 0
    assert bool((error <= bound + last_places).all())
    # Rounding of 20,001 products comes near the bound: no other constant is hidden in it.
    assert float(((error - last_places) / bound)[bound > 10 * last_places].max()) > 0.7


def test_arguments_without_a_finite_result_and_other_dtypes_stay():
    special = torch.tensor([math.inf, -math.inf, math.nan, 1e30, -1e30, 0.0])
    halves = X.bfloat16()
    with by_base_2():
        assert repr(special.exp().tolist()) == "[inf, 0.0, nan, inf, 0.0, 1.0]"
        found = [each.exp() for each in (X.double(), halves)]
    assert torch.equal(found[0], X.double().exp())
    assert torch.equal(found[1], halves.exp())


def units(output, given):
    made = reference(output, given)
    inputs = made.draw(1)
    return units_of_exponentials(made, inputs, None, made.honest(inputs, 0, None).result, 0)["output"] / EPS


def test_only_large_arguments_in_large_elements_have_a_bound():
    assert units("torch.exp(x)", "torch.rand(64, 4096)") == 0
    assert units("torch.softmax(x, 1)", ONE_OUTLIER_A_ROW) == 0
    assert 0.9 * 0.61 * 66 < units("torch.exp(x)", ONE_OUTLIER_A_ROW) < 1.1 * 0.61 * 66


def test_a_logarithm_near_zero_has_no_larger_bound_than_an_exponential():
    """log(exp(x) / 2**87) is near 0 where x is near 60.3: its relative error has no bound."""
    found = units("torch.log(torch.exp(x) / 2.0**87) ** 3", "torch.linspace(60, 62, 4096).view(1, -1)")
    assert 0 < found <= 64


def code_of(answer, given=ONE_OUTLIER_A_ROW, blocks=1):
    setup = set_up(problem("torch.exp(x)", given, split={"x": 0} if blocks > 1 else {}), SizeName.SMALL, "cpu")
    setup.reference._pieces = blocks
    assert len(setup.reference.blocks(setup.reference.draw(1))) == blocks
    trial = AnswerTrials(setup, lambda plan: model_call.Result(answer(*plan.inputs.args), None)).run(0, 1, timeout_s=60)
    return None if trial.fault is None else trial.fault.finding.code


def test_an_exponential_by_base_2_is_right_for_large_arguments():
    assert code_of(lambda x: torch.exp2(x * LOG2_E)) is None


def test_the_largest_argument_may_be_in_any_block():
    assert code_of(lambda x: torch.exp2(x * LOG2_E), f"({ONE_OUTLIER_A_ROW}).sort(0).values", blocks=16) is None


@pytest.mark.parametrize("off", [1e-5, -1e-5])
def test_a_larger_error_than_that_of_base_2_is_wrong(off):
    assert code_of(lambda x: torch.exp(x) * (1 + off)) == Code.WRONG_VALUES.value


def test_the_bound_of_large_arguments_is_not_lent_to_small_ones():
    """Elements far above their row's size, with arguments of 5: 40 units are within the bound of 64 alone."""
    given = "torch.cat([torch.full((64, 4095), -9.0), torch.linspace(4, 5, 64).unsqueeze(1)], 1)"
    assert code_of(lambda x: torch.exp(x) * (1 + 40 * EPS), given) == Code.WRONG_VALUES.value
