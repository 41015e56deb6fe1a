"""Which distributions are usable, and which calls are evidence."""

import itertools
import time

import pytest
import torch

from evaluator.judge.reference import agreement
from evaluator.judge.reference.dependence import settle_weights
from evaluator.judge.reference.input_distributions import PROFILES
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup import distribution_trials
from evaluator.judge.setup.distribution_trials import NO_FACTORS, TOO_SLOW, DistributionTrials
from evaluator.records import Profile, SizeName, cases_of
from tests.unit.references import reference


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))


def unusable(output, given="torch.rand(32, 64)", init="pass", **changes):
    found = distribution_trials.unusable(reference(output, given, init, **changes))
    return {profile: reason for profile, reason in found.items() if reason != NO_FACTORS}


def trials(output, given="torch.rand(32, 64)", init="pass", *, may_change=True, size=SizeName.SMALL, **changes):
    made = reference(output, given, init, **changes)
    settle_weights(made, made.draw(11))
    return DistributionTrials(made, size, may_change=may_change)


def test_every_distribution_suits_an_operation_for_all_inputs():
    assert unusable("torch.relu(x)") == {}
    assert unusable("self.linear(x)", init="self.linear = nn.Linear(64, 64)") == {}
    assert unusable("torch.relu(x)", backward=True) == {}


def test_a_distribution_with_an_infinite_output_is_unusable():
    found = unusable("torch.log(x)")
    assert found[Profile.SIGNED_NORMAL] == "output is not finite"
    assert Profile.SMALL not in found
    assert unusable("torch.exp(x.sum(1) * 0.05)")[Profile.LARGE] == "output is not finite"
    assert unusable("x * float('nan')") == {}, "as with the problem's own values"


def test_a_distribution_that_the_reference_refuses_is_unusable():
    found = unusable("F.binary_cross_entropy(x, torch.ones_like(x))")
    assert found[Profile.SIGNED_NORMAL].startswith("the reference refuses it: ")


def test_rounding_makes_a_distribution_unusable_only_if_float64_disagrees():
    """A call whose answer deviates measures its own rounding."""
    assert unusable("(x + 1e5) - 1e5") == {Profile.SMALL: "float64 gives something else"}


MIXED = "torch.ldexp(torch.randn(32, 96), torch.randint(-8, 9, (32, 96)))"


@pytest.mark.parametrize(("output", "factors"), [("x.prod(1)", 96), ("x.mT.prod(0)", 96), ("x.cumprod(1)", 4096)])
def test_a_distribution_with_an_overflowing_partial_product_is_unusable(output, factors):
    """A kernel that multiplied 256 mixed magnitudes by threads returned infinity in place of 1.8e24."""
    found = unusable(output, f"0.5 + torch.rand(32, {factors})")
    assert found[Profile.MIXED_MAGNITUDES].startswith("the order of factors decides: partial products of output")
    assert not {Profile.SIGNED_NORMAL, Profile.OUTLIERS} & set(found)


@pytest.mark.parametrize("output", ["torch.softmax(x, 1).topk(8, 1)", "torch.softmax(x, 1).sort(1)"])
def test_a_distribution_with_a_choice_among_equal_values_is_unusable(output):
    """Where logits are large, most probabilities are 0, and PyTorch may return the place of any."""
    found = unusable(output, "torch.randn(32, 64)")
    assert found[Profile.LARGE] == "output[1] depends on the choice among equal values"
    assert Profile.SIGNED_NORMAL not in found
    assert Profile.LARGE not in unusable("torch.softmax(x, 1).topk(8, 1)[0]", "torch.randn(32, 64)")
    assert Profile.LARGE not in unusable("torch.softmax(x, 1).sort(stable=True, dim=1)", "torch.randn(32, 64)")


def test_an_author_may_ask_for_a_distribution_unless_its_output_is_not_finite():
    assert unusable("x.argmax(1)")[Profile.ZEROS_AND_TIES] == "output depends on the choice among equal values"
    assert Profile.ZEROS_AND_TIES not in unusable("x.argmax(1)", profiles={Profile.ZEROS_AND_TIES: True})
    assert Profile.MIXED_MAGNITUDES not in unusable("x.prod(1)", MIXED, profiles={Profile.MIXED_MAGNITUDES: True})
    asked = unusable("torch.log(x)", profiles={Profile.SIGNED_NORMAL: True})
    assert asked[Profile.SIGNED_NORMAL] == "output is not finite"
    said = {Profile.SMALL: "logarithms of lengths, which are large"}
    assert unusable("x * 2", profiles=said) == said


def test_factors_near_one_are_for_products_of_many_factors():
    assert distribution_trials.unusable(reference("x * 2")) == {Profile.NEAR_ONE: NO_FACTORS}
    assert distribution_trials.unusable(reference("x * 2", profiles={Profile.NEAR_ONE: True})) == {}
    assert Profile.NEAR_ONE not in distribution_trials.unusable(reference("x.prod(1)"))


def test_a_trial_leaves_the_weights_and_the_blocks_of_the_reference_alone():
    tried = trials("self.linear(x)", init="self.linear = nn.Linear(64, 64)")
    made = tried._reference
    made.set_weights(5)
    before = {name: value.clone() for name, value in made.parameters().items()}
    tried.distance(Profile.AS_GIVEN, "output")
    assert made.weights_seed == 5
    assert all(value.equal(before[name]) for name, value in made.parameters().items())
    assert len(made.blocks(made.draw(1))) == 1


def test_a_distance_is_measured_once_for_a_problem_without_weights(monkeypatch):
    linear = {"output": "self.linear(x)", "init": "self.linear = nn.Linear(64, 64)"}
    first = trials("torch.relu(x)").distance(Profile.AS_GIVEN, "output")
    trials(**linear).distance(Profile.AS_GIVEN, "output")
    measured = []
    monkeypatch.setattr(DistributionTrials, "_measured", lambda _, profile: measured.append(profile) or {"output": 7.0})
    assert trials("torch.relu(x)").distance(Profile.AS_GIVEN, "output") == first > 0
    assert measured == []
    assert trials(**linear).distance(Profile.AS_GIVEN, "output") == 7.0, "weights differ from session to session"


def test_an_output_missing_in_the_trial_has_no_known_distance():
    assert trials("torch.relu(x)").distance(Profile.AS_GIVEN, "output[7]") is None


def test_a_busy_machine_measures_as_an_idle_one(monkeypatch):
    """Each reading of a clock here is an hour after the one before."""
    hours = itertools.count(step=3600.0)
    for clock in ("monotonic", "perf_counter", "time", "process_time"):
        monkeypatch.setattr(time, clock, lambda: next(hours))
    assert unusable("torch.relu(x)") == {}
    assert trials("torch.relu(x)").is_evidence(Profile.SIGNED_NORMAL)


def test_a_problem_too_slow_to_try_has_no_known_distances(monkeypatch):
    monkeypatch.setattr(distribution_trials, "_LONGEST_S", 1e-9)
    tried = trials("torch.log(x)")
    assert tried.distance(Profile.AS_GIVEN, "output") is None
    assert not tried.is_evidence(Profile.AS_GIVEN)
    assert unusable("torch.log(x)") == dict.fromkeys(PROFILES, TOO_SLOW)


def test_a_size_too_slow_to_try_has_the_distances_of_the_small_one(monkeypatch):
    sizes = {SizeName.SMALL: {}, SizeName.FULL: {}}
    slow = trials("torch.relu(x)", cases=cases_of(sizes), size=SizeName.FULL)
    nominal_s, tried = distribution_trials._nominal_s, []

    def nominal(of, inputs):
        tried.append(of)
        return 1e9 if len(tried) == 1 else nominal_s(of, inputs)

    monkeypatch.setattr(distribution_trials, "_nominal_s", nominal)
    assert slow.distance(Profile.AS_GIVEN, "output") > 0
    assert len(tried) == 2


def test_a_large_problem_is_tried_on_its_first_rows(monkeypatch):
    monkeypatch.setattr(distribution_trials, "_TRIED_ELEMENTS", 512)
    rows, first_block = [], distribution_trials._first_block

    def watched(of, inputs):
        rows.append(len(first_block(of, inputs).args[0]))
        return first_block(of, inputs)

    monkeypatch.setattr(distribution_trials, "_first_block", watched)
    tried = trials("self.linear(x)", "torch.randn(64, 64)", "self.linear = nn.Linear(64, 64)")
    assert tried.is_evidence(Profile.AS_GIVEN)
    assert set(rows) == {8}
    assert len(tried._reference.blocks(tried._reference.draw(1))) == 1  # A verdict compares whole calls.
    rows.clear()
    assert trials("x - x.mean(0)", "torch.randn(64, 64)").is_evidence(Profile.AS_GIVEN)
    assert set(rows) == {64}


@pytest.mark.parametrize(
    ("group", "tried_elements", "blocks"),
    [
        ("8", 48, 4),  # 16 rows: two groups
        ("8", 40, 2),  # 13 rows are no groups
        ("min(8, len(x))", 12, 2),  # 4 rows are another function
    ],
)
def test_smaller_blocks_must_follow_the_blocks_of_calls(monkeypatch, group, tried_elements, blocks):
    """Eight rows that belong together are whole in the two blocks of a call."""
    monkeypatch.setattr(agreement, "_BLOCK_BYTES", 64 * 3 * 8 // 2)
    monkeypatch.setattr(distribution_trials, "_TRIED_ELEMENTS", tried_elements)
    made = reference(f"x.view(-1, {group}, 3).sum(1)", "torch.randn(64, 3)", split={"x": 0})
    inputs = made.draw(1)
    made.settle(inputs, made.forward(inputs, 0))
    assert len(made.blocks(inputs)) == 2
    assert len(distribution_trials.first_rows(made).blocks(inputs)) == blocks


def test_a_matrix_of_weights_with_as_many_rows_stays_whole():
    made = reference("x @ y", "torch.randn(64, 64), torch.randn(64, 64)", forward="x, y")
    inputs = made.draw(1)
    made.split_rows(inputs, made.forward(inputs, 0), 8)
    assert {tuple(block.args[1].shape) for block in made.blocks(inputs)} == {(64, 64)}
    assert len(made.blocks(inputs)) > 1


@pytest.mark.parametrize("profile", [Profile.AS_GIVEN, Profile.SMALL])
def test_memory_that_a_submission_may_hold_is_no_evidence(monkeypatch, profile):
    """The problem's own values are tried before a submission exists: their distance is unknown then, and no proof."""
    run = Reference._run

    def short(self, model, *arguments):
        if model is self.exact_model:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 6.00 GiB.")
        return run(self, model, *arguments)

    tried = trials("torch.log(x)")
    with monkeypatch.context() as patch:
        patch.setattr(Reference, "_run", short)
        assert tried.distance(profile, "output") == (None if profile is Profile.AS_GIVEN else 0.0)
        assert not tried.is_evidence(profile)
    if profile is not Profile.AS_GIVEN:
        assert tried.distance(profile, "output") > 0, "a later submission may hold no memory"
    assert trials("torch.log(x)").distance(profile, "output") > 0, "a shortage is not kept"


MEAN_OF_NORM = {"given": "torch.rand(64, 32)", "init": "self.norm = nn.GroupNorm(4, 32)"}


def test_other_weights_are_tried_if_the_constructed_ones_spoil_the_output():
    """With weights of 1 and biases of 0, the mean of a norm is 0."""
    tried = trials("self.norm(x).mean(1)", **MEAN_OF_NORM)
    assert tried.is_evidence(Profile.AS_GIVEN)
    assert tried.is_evidence(Profile.SIGNED_NORMAL)
    assert tried.distance(Profile.AS_GIVEN, "output") > 0.01
    frozen = trials("self.norm(x).mean(1)", **MEAN_OF_NORM, may_change=False)
    assert frozen.distance(Profile.AS_GIVEN, "output") == 0.0
    assert not any(map(frozen.is_evidence, PROFILES))


def test_a_result_of_rounding_beside_another_output_is_no_evidence():
    two = "(n := self.norm(x), n.mean(0))"
    tried = trials(two, "torch.randn(64, 32)", "self.norm = nn.BatchNorm1d(32)", may_change=False)
    assert tried.distance(Profile.AS_GIVEN, "output[0]") > 0.1
    assert tried.distance(Profile.AS_GIVEN, "output[1]") == 0
    assert not any(map(tried.is_evidence, Profile))
