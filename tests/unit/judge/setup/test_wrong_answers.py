"""Distances of surely wrong answers, and which calls are evidence."""

import itertools
import math

import pytest
import torch

from benchmarks.numerics.judged_answers import AnswerTrials, set_up
from evaluator.findings import Code
from evaluator.judge.answer.evidence import Evidence
from evaluator.judge.compare.tolerance import bounds
from evaluator.judge.reference.dependence import settle_weights
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE
from evaluator.judge.setup.distribution_trials import DistributionTrials, unusable
from evaluator.judge.setup.seed_book import SeedBook
from evaluator.judge.setup.wrong_answers import PROOF, is_noise, means_distance, power_of
from evaluator.protocol.model_call import Result
from evaluator.records import Precision, Profile, SizeName, Status, TensorCheck, ToleranceRule, WeightsRule
from tests.unit.judge.compare.test_tensor_comparison import measured
from tests.unit.references import problem, reference

LINEAR = {"init": "self.w = nn.Parameter(torch.{kind}(256, 64).bfloat16())", "precision": Precision.BF16}


FLOOR = measured().floor


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))


def tried(output, *arguments, **changes):
    made = reference(output, *arguments, **changes)
    settle_weights(made, made.draw(11))
    return DistributionTrials(made, SizeName.SMALL)


def product(kind):
    changes = LINEAR | {"init": LINEAR["init"].format(kind=kind)}
    return tried("x @ self.w", f"torch.{kind}(64, 256).bfloat16()", **changes)


def test_a_product_of_positive_numbers_is_less_evidence_than_of_normal_ones():
    """Without an eighth, x is off by sqrt(1 / 7) x: a normal error of 0.38, whose median is 0.25 of the row's size.

    A product of positive numbers is nearly the product of its means: the rest is sqrt(256) / 12 of 64.
    """
    normal, positive = product("randn"), product("rand")
    floor = measured(torch.bfloat16).floor
    assert 0.18 < normal.distance(Profile.AS_GIVEN, "output") * floor < 0.25
    assert positive.distance(Profile.AS_GIVEN, "output") * floor < 0.67 * 16 / 12 / 64
    assert normal.is_evidence(Profile.AS_GIVEN)
    assert positive.is_evidence(Profile.SIGNED_NORMAL)


def test_power_is_the_distance_in_the_tolerances_of_the_call():
    assert power_of(24.0, 3e-3, 1e-3) == pytest.approx(8.0)
    assert power_of(24.0, 1e-4, 1e-3) == 24.0


@pytest.mark.parametrize(("apart", "distance"), [(2.0**-7, 3.2), (2.0**-9, 0.0)])
def test_a_distance_is_beyond_the_rounding_to_the_dtype(apart, distance):
    """Values of 1.25 have half a unit of 2**-8 in bf16, and a floor of 1.25 * 2**-10."""
    signs = torch.randn(64, 64, generator=torch.Generator().manual_seed(3), dtype=torch.float64).sign()
    assert means_distance(1.25 + signs * apart, measured(torch.bfloat16)) == pytest.approx(distance, abs=0.5)
    assert means_distance(1.25 + signs * apart, measured(torch.bfloat16)) >= 0


def test_the_nearest_mean_counts():
    generator = torch.Generator().manual_seed(3)
    exact = torch.randn(512, 256, generator=generator, dtype=torch.float64)
    assert FLOOR * means_distance(exact, measured()) == pytest.approx(
        0.6745, rel=0.02
    )  # Zero: the median of a normal size.
    near_rows = 1 + 1e-3 * exact + torch.arange(512, dtype=torch.float64)[:, None]
    assert FLOOR * means_distance(near_rows, measured()) < 1e-3 * 0.6745
    rank_one = near_rows[:, :1] * (2 + exact[:1]) * (1 + 1e-4 * exact)
    assert FLOOR * means_distance(rank_one, measured()) == pytest.approx(1e-4 * 0.6745, rel=0.5)


@pytest.mark.parametrize("shape", [(7,), (), (2, 3)])
def test_few_numbers_have_no_mean(shape):
    assert means_distance(torch.rand(shape, dtype=torch.float64), measured()) == math.inf


def test_rows_that_are_constant_have_their_means_by_definition():
    rows = torch.rand(64, 1, dtype=torch.float64).expand(64, 32).clone()
    assert FLOOR * means_distance(rows, measured()) > 0.1


def test_an_output_of_zeros_is_no_evidence():
    assert means_distance(torch.zeros(8, 8, dtype=torch.float64), measured()) == 0


@pytest.mark.parametrize("values", ["complex", "conjugated", "with infinity", "whole"])
def test_outputs_of_other_forms_have_distances(values):
    parts = [torch.randn(64, 32, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) for seed in (1, 2)]
    exact = {
        "complex": torch.complex(*parts),
        "conjugated": torch.complex(*parts).conj(),
        "with infinity": parts[0].index_fill(1, torch.tensor([3]), math.inf),
        "whole": parts[0],
    }[values]
    assert FLOOR * means_distance(exact, measured()) == pytest.approx(0.67, abs=0.08)


SPARSE = {
    "a triangle": ("torch.tril(x)", "torch.randn(64, 64)"),
    "a diagonal": ("torch.diag(x)", "torch.randn(64)"),
    "relu": ("torch.relu(x)", "torch.randn(32, 64)"),
    "seldom positive": ("torch.relu(x - 2)", "torch.randn(32, 256)"),
    "signs": ("x.sign()", "torch.randn(32, 64)"),
    "clamped": ("F.hardtanh(x)", "torch.randn(32, 64) * 3"),
    "columns of a batch norm": ("F.batch_norm(x, None, None, training=True)", "torch.randn(64, 64)"),
    "one-hot": ("F.one_hot(x.argmax(1), 64).float()", "torch.randn(32, 64)"),
}


@pytest.mark.parametrize(("output", "given"), SPARSE.values(), ids=SPARSE)
def test_elements_that_are_equal_in_wrong_answers_say_nothing_against_the_others(output, given):
    assert tried(output, given).is_evidence(Profile.AS_GIVEN)


def test_an_output_that_does_not_depend_on_the_first_input_is_evidence():
    found = tried("(x * 2, y * 0.9)", "torch.rand(64, 64), torch.rand(64, 64)", forward="x, y")
    assert found.distance(Profile.AS_GIVEN, "output[1]") > 0.05
    assert found.is_evidence(Profile.AS_GIVEN)


def test_whole_numbers_are_evidence_if_other_inputs_have_others():
    found = tried("x.argmax(1)", "torch.randn(32, 64)")
    assert found.distance(Profile.AS_GIVEN, "output") == 1e30
    constant = tried("(x * 0).int()", "torch.randn(32, 64)")
    assert constant.distance(Profile.AS_GIVEN, "output") == 0.0


@pytest.mark.parametrize(
    ("output", "noise"),
    [("x * 2", False), ("x * 0 + 1", True), ("(x * 0).int()", True), ("x.argmax(1)", False), ("(x + 1e9) - 1e9", True)],
)
def test_a_constant_and_a_result_of_rounding_are_noise(output, noise):
    assert is_noise(reference(output, "torch.rand(64, 64)"), 7, "output") is noise


def test_the_mean_of_a_batch_norm_is_noise_beside_the_norm():
    made = reference("(n := self.norm(x), n.mean(0))", "torch.randn(64, 32)", "self.norm = nn.BatchNorm1d(32)")
    assert [is_noise(made, 7, f"output[{number}]") for number in range(2)] == [False, True]


NORM = {"given": "torch.rand(64, 32)", "init": "self.norm = nn.GroupNorm(4, 32)", "weights": WeightsRule.FROZEN}


def own_norm(plan):
    """Compute a group norm's mean in float64, and round it."""
    groups = plan.inputs.args[0].double().view(64, 4, 8)
    apart = groups - groups.mean(2, keepdim=True)
    return Result((apart / (apart.square().mean(2, keepdim=True) + 1e-5).sqrt()).view(64, 32).mean(1).float(), None)


@pytest.mark.parametrize("answer", [own_norm, lambda plan: Result(torch.zeros(64), None)], ids=["right", "zeros"])
def test_a_result_of_rounding_is_neither_right_nor_wrong(answer):
    codes, powers, fault = graded(problem("self.norm(x).mean(1)", **NORM), answer)
    assert (codes, set(powers)) == ({None}, {0.0})
    assert (fault.status, fault.finding.code) == (Status.INCONCLUSIVE, Code.ROUNDING_DECIDES.value)


def test_the_references_own_bits_of_a_result_of_rounding_prove_nothing():
    codes, powers, fault = graded(
        problem("self.norm(x).mean(1)", **NORM),
        lambda plan: plan.reference.honest(plan.inputs, plan.random_seed, None).result,
    )
    assert (codes, set(powers)) == ({None}, {0.0})
    assert fault is None or fault.finding.code == Code.ROUNDING_DECIDES.value


def right(power, path="output"):
    return TensorCheck(path, "float32", [4], True, 0.0, 0.5, 0.5, 0, 0, None, 5e-5, power)


def test_two_calls_with_power_prove_an_output():
    evidence = Evidence(None, AS_GIVEN_ALONE, unquoted=False)
    for power, unproven in ((PROOF - 0.1, ["output"]), (PROOF, ["output"]), (0.0, ["output"]), (PROOF, [])):
        evidence.note(right(power), has_bits_of_reference=False)
        assert evidence.unproven == unproven
        assert evidence.proves_any is (unproven == [])
    assert evidence.powers == {"output": PROOF}


def test_each_output_needs_its_own_proofs():
    evidence = Evidence(None, AS_GIVEN_ALONE, unquoted=False)
    for _ in range(2):
        evidence.note(right(100.0, "output[0]"), has_bits_of_reference=False)
        evidence.note(right(1.0, "output[1]"), has_bits_of_reference=False)
    assert (evidence.unproven, evidence.proves_any) == (["output[1]"], True)


def test_the_references_own_bits_are_a_proof_only_in_all_calls():
    evidence = Evidence(None, AS_GIVEN_ALONE, unquoted=True)
    for is_same, unproven in ((True, []), (True, []), (False, ["output"]), (True, ["output"])):
        evidence.note(right(0.0), has_bits_of_reference=is_same)
        assert evidence.unproven == unproven


def test_what_was_not_measured_tells_against_no_answer():
    evidence = Evidence(None, AS_GIVEN_ALONE, unquoted=False)
    for _ in range(2):
        evidence.note(right(None), has_bits_of_reference=False)
    assert evidence.unproven == []


def in_float64(plan):
    """Answer with the exact values, rounded."""
    expected = plan.reference.expected(plan.inputs, 0, plan.gradients)
    return Result(expected.exact.outputs.to(expected.honest.outputs.dtype), None)


def mean_of_all(plan):
    wanted = in_float64(plan).outputs
    return Result(wanted.mean().expand(wanted.shape).contiguous(), None)


def graded(of, answer, **changes):
    """Make the checked calls; return their codes, their powers, and the fault of a lack of proof."""
    setup = set_up(of, SizeName.SMALL, "cpu")
    setup = setup._replace(**changes)
    trials = AnswerTrials(setup, answer)
    seeds = SeedBook(None, weight=0)
    seeds.settle(setup.distribution_mix)
    found = [trials.run(index, seed, timeout_s=60) for index, seed in enumerate(seeds.checks())]
    further = itertools.takewhile(lambda _: trials.lacks_proof, seeds.proofs())
    found += [trials.run(len(found), seed, timeout_s=60) for seed in further]
    codes = {None if each.fault is None else each.fault.finding.code for each in found}
    return codes, [each.check.tensors[0].power for each in found], trials.unproven()


NEARLY_CONSTANT = problem("1 + x * 3e-5", "torch.rand(64, 64)")
"""The differences are below the tolerance: any answer near 1 passes."""


@pytest.mark.parametrize("answer", [in_float64, mean_of_all], ids=["right", "constant"])
def test_without_power_no_answer_is_right(answer):
    codes, powers, fault = graded(NEARLY_CONSTANT, answer, distribution_mix=AS_GIVEN_ALONE)
    assert codes == {None}
    assert max(powers) < 0.5
    assert (fault.status, fault.finding.code) == (Status.INCONCLUSIVE, Code.ROUNDING_DECIDES.value)
    assert "no call could have told a wrong answer" in fault.finding.message


@pytest.mark.parametrize(("output", "is_proven"), [("(x * 0).int()", False), ("x.argmax(1)", True)])
def test_the_answer_to_another_draw_counts_beside_the_means(output, is_proven):
    """Integers have no means. A stored answer is right in all calls of a constant."""
    codes, powers, fault = graded(problem(output, "torch.randn(32, 64)"), in_float64)
    assert (codes, fault is None) == ({None}, is_proven)
    assert max(power or 0.0 for power in powers) >= PROOF if is_proven else powers == [0.0] * len(powers)


def test_other_distributions_prove_what_the_problems_own_values_do_not():
    """Large values are 32 to 1024 times as large."""
    codes, powers, fault = graded(NEARLY_CONSTANT, in_float64)
    assert (codes, fault) == ({None}, None)
    proofs = [number for number, power in enumerate(powers) if power is None or power >= PROOF]
    assert len(proofs) >= 2
    assert powers[proofs[1] + 1 :] == [None] * (len(powers) - proofs[1] - 1), "two proofs are enough"
    codes, _, _ = graded(NEARLY_CONSTANT, mean_of_all)
    assert Code.WRONG_ON_OTHER_VALUES.value in codes


def test_a_void_call_refutes_no_answer_and_proves_none():
    """Where 1e6 is added, a unit in the last place is 1/16: such a call tells nothing."""
    setup = set_up(problem("(x + 1e6) - 1e6", "torch.rand(64, 64) * 1e6"), SizeName.SMALL, "cpu")
    seed = setup.distribution_mix.seed_for(Profile.SIGNED_NORMAL)
    deviating = AnswerTrials(setup, lambda plan: Result(plan.inputs.args[0] * 0, None)).run(1, seed, timeout_s=60)
    (check,) = deviating.check.tensors
    assert deviating.fault is None
    assert (check.ok, check.power, check.mismatches, check.error_ratio) == (True, 0.0, 0, None)
    exact = AnswerTrials(setup, lambda plan: Result(plan.inputs.args[0] * 1.0, None)).run(1, seed, timeout_s=60)
    assert exact.fault is None
    assert 0 < exact.check.tensors[0].power < PROOF


def test_an_output_that_overflows_at_this_size_alone_is_void_in_a_call():
    """The small size has no infinity; with the problem's own values, an infinity is none of the size."""
    for output, code in (("torch.exp(x.sum(1) * 0.5)", None), ("x.sum(1)", Code.WRONG_ON_OTHER_VALUES.value)):
        setup = set_up(problem(output, "torch.rand(32, 64)"), SizeName.SMALL, "cpu")
        setup = setup._replace(distribution_mix=setup.distribution_mix._replace(use=(Profile.LARGE,)))
        wrong = AnswerTrials(setup, lambda plan: Result(plan.inputs.args[0][:, 0] * 0, None))
        trial = wrong.run(1, setup.distribution_mix.seed_for(Profile.LARGE), timeout_s=60)
        assert (trial.fault and trial.fault.finding.code) == code
    infinite = set_up(problem("torch.exp(x.sum(1) * 100)", "torch.rand(32, 64)"), SizeName.SMALL, "cpu")
    infinite = infinite._replace(distribution_mix=infinite.distribution_mix._replace(use=(Profile.LARGE,)))
    wrong = AnswerTrials(infinite, lambda plan: Result(plan.inputs.args[0][:, 0] * 0, None))
    assert wrong.run(1, infinite.distribution_mix.seed_for(Profile.LARGE), timeout_s=60).fault is not None


@pytest.mark.parametrize("output", ["x.argmax(1)", "x.square().mean()"])
def test_a_problem_too_large_to_try_is_judged_without_measured_power(output, monkeypatch):
    monkeypatch.setattr("evaluator.judge.setup.distribution_trials._LONGEST_S", 1e-9)
    codes, powers, fault = graded(problem(output, "torch.randn(32, 64)"), in_float64)
    assert (codes, set(powers), fault) == ({None}, {None}, None)


def test_kernelbenchs_rule_asks_for_no_power():
    setup = set_up(NEARLY_CONSTANT, SizeName.SMALL, "cpu")._replace(distribution_mix=AS_GIVEN_ALONE)
    trials = AnswerTrials(setup, mean_of_all, ToleranceRule.KERNELBENCH)
    trial = trials.run(0, 7, timeout_s=60)
    assert (trial.fault, trial.check.tensors[0].power, trials.unproven()) == (None, None, None)
    assert bounds(ToleranceRule.KERNELBENCH, NEARLY_CONSTANT, torch.float32).floor == 1e-4


FIXED = "torch.rand(64, 64, generator=torch.Generator().manual_seed(5))"


def test_fixed_inputs_are_evidence_where_weights_change_and_else_not():
    """A stored answer is right for fixed inputs in every call, unless weights change."""
    assert tried("self.linear(x)", FIXED, "self.linear = nn.Linear(64, 64)").is_evidence(Profile.AS_GIVEN)
    assert not tried("torch.relu(x)", FIXED).is_evidence(Profile.AS_GIVEN)


def test_an_output_of_the_weights_alone_is_no_evidence():
    """The norm of constant rows is the norm's bias, whatever the input is."""
    found = tried("self.norm(x)", "torch.rand(64, 64)", "self.norm = nn.LayerNorm(64)")
    assert not found.is_evidence(Profile.CONSTANT_ROWS)
    assert found.is_evidence(Profile.AS_GIVEN)


def test_a_distribution_that_shows_a_missing_part_alone_is_in_use():
    """The means of two draws round to the same number of bf16; a mean without every eighth value does not."""
    given = ", ".join(["torch.randn(1024, 512).bfloat16()"] * 2)
    squares = reference("F.mse_loss(x, y)", given, forward="x, y", precision=Precision.BF16)
    assert Profile.RELATED not in unusable(squares)
