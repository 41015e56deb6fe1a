"""Which value profiles a reference bears, and how calls are mixed."""

import collections

import pytest
from msgspec.structs import replace

from evaluator.catalog.lock import Lock, SizeLock, fits, lock_text, read_lock
from evaluator.errors import ProblemError
from evaluator.judge import mixture as mixtures
from evaluator.judge.mixture import AS_GIVEN_ALONE, Mixture, decide, decided, is_known, mixture_for
from evaluator.judge.profiles import PROFILES, RULES
from evaluator.judge.reference import Reference
from evaluator.judge.trial import fresh_seed
from evaluator.records import Precision, Profile, SizeName, ToleranceOverride, ToleranceRule
from tests.unit.references import problem, reference

ALL = Mixture(PROFILES)


def left_out(output, given="torch.rand(32, 64)", init="pass", **changes):
    return decide(reference(output, given, init, **changes), SizeName.SMALL).left_out


def test_what_every_input_suits_has_every_profile():
    assert left_out("torch.relu(x)") == {}
    assert left_out("self.linear(x)", init="self.linear = nn.Linear(64, 64)") == {}


def test_a_profile_on_which_the_reference_is_not_finite_is_left_out():
    found = left_out("torch.log(x)")
    assert found[Profile.SIGNED_NORMAL] == "output is not finite"
    assert Profile.SMALL not in found


def test_a_profile_that_the_reference_refuses_is_left_out():
    found = left_out("F.binary_cross_entropy(x, torch.ones_like(x))")
    assert found[Profile.SIGNED_NORMAL].startswith("the reference refuses it: ")


def test_a_profile_on_which_the_output_says_nothing_is_left_out():
    assert left_out("torch.softmax(x, -1)")[Profile.CONSTANT_ROWS] == "the output hardly depends on such inputs"


def test_a_profile_on_which_rounding_decides_is_left_out():
    assert left_out("torch.exp(x.sum(1) * 0.05)")[Profile.LARGE] == "output is not finite"
    assert left_out("(x + 1e5) - 1e5")[Profile.ILL_CONDITIONED].startswith("rounding decides")


def test_ties_are_left_out_of_whole_numbers_unless_the_author_says_who_wins():
    assert Profile.ZEROS_AND_TIES in left_out("x.argmax(1)")
    assert Profile.ZEROS_AND_TIES not in left_out("x.argmax(1)", profiles={Profile.ZEROS_AND_TIES: True})


def test_an_author_cannot_have_what_is_not_finite_and_can_leave_out_what_is():
    said = {Profile.SIGNED_NORMAL: True, Profile.SMALL: "logarithms of lengths, which are large"}
    found = left_out("torch.log(x)", profiles=said)
    assert found[Profile.SIGNED_NORMAL] == "output is not finite"
    assert found[Profile.SMALL] == said[Profile.SMALL]


def test_orders_are_measured_where_they_matter():
    long, linear = "torch.randn(32, 1 << 12)", "self.linear = nn.Linear(1 << 12, 32, bias=False)"
    summing = reference("self.linear(x)", long, linear, tolerance=ToleranceOverride(floor=1e-7))
    assert 1e-8 < decide(summing, SizeName.SMALL).rounding[Profile.AS_GIVEN]["output"] < 1e-4
    assert decide(reference("x + 1"), SizeName.SMALL).rounding == {}


def test_where_tf32_is_allowed_its_error_is_honest():
    init = "self.linear = nn.Linear(64, 64)"
    given = "torch.randn(32, 64)"
    errors = decide(reference("self.linear(x)", given, init, precision=Precision.TF32), SizeName.SMALL).rounding
    assert 3e-4 < errors[Profile.AS_GIVEN]["output"] < 5e-3
    assert decide(reference("self.linear(x)", given, init), SizeName.SMALL).rounding == {}


def test_deciding_leaves_no_trace_on_the_reference():
    made = reference("self.norm(x)", init="self.norm = nn.BatchNorm1d(64)")
    before = {name: value.clone() for name, value in made.state().items()}
    decide(made, SizeName.SMALL)
    assert all(value.equal(before[name]) for name, value in made.state().items())


def test_a_call_in_five_has_other_values_and_all_of_them_come():
    seen = collections.Counter(ALL.pick(fresh_seed()) for _ in range(4000))
    assert set(seen) == set(Profile)
    assert 3000 < seen[Profile.AS_GIVEN] < 3400
    assert all(ALL.pick(seed) is profile for profile in Profile for seed in [ALL.seed_for(profile)])


def test_a_call_as_given_draws_a_decoy():
    assert {ALL.decoy(fresh_seed()) for _ in range(400)} == set(PROFILES)
    assert AS_GIVEN_ALONE.decoy(fresh_seed()) is Profile.AS_GIVEN


@pytest.mark.parametrize("use", [(), PROFILES[:1], PROFILES], ids=len)
def test_the_checks_have_every_profile_and_begin_as_given(use):
    planned = Mixture(tuple(use)).checks()
    assert planned[0] is Profile.AS_GIVEN
    assert set(planned) == {Profile.AS_GIVEN, *use}
    assert len(planned) >= 5
    assert planned.count(Profile.AS_GIVEN) >= 2


def test_kernelbenchs_rule_goes_with_its_inputs():
    assert mixture_for(reference("torch.relu(x)"), SizeName.SMALL, ToleranceRule.KERNELBENCH) == AS_GIVEN_ALONE


def test_a_decision_is_made_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    first = decided(reference("torch.relu(x)"), SizeName.SMALL)
    monkeypatch.setattr(mixtures, "decide", lambda *_: pytest.fail("it was decided again"))
    assert decided(reference("torch.relu(x)"), SizeName.SMALL) == first


def test_a_grade_waits_for_a_part_and_a_thorough_decision_goes_before_it(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    monkeypatch.setattr(mixtures, "_BUDGET_S", 1e-9)
    made = reference("torch.relu(x)")
    in_time = decided(made, SizeName.SMALL)
    assert in_time.use == [PROFILES[0]]  # One is tried whatever the time.
    assert "problems validate" in in_time.left_out[Profile.SMALL]
    assert decided(made, SizeName.SMALL, thorough=True).use == list(PROFILES)
    assert decided(made, SizeName.SMALL).use == list(PROFILES)
    assert mixture_for(made, SizeName.SMALL, ToleranceRule.MEASURED).untried == ()


def test_a_reference_that_is_far_too_slow_is_graded_on_its_own_values(monkeypatch):
    monkeypatch.setattr(mixtures, "_forward_s", lambda *_: 5.0)
    monkeypatch.setattr(mixtures, "_seen", lambda *_: pytest.fail("it was tried"))
    cut = decide(reference("torch.relu(x)"), SizeName.SMALL, 6.0)
    assert (cut.use, list(cut.left_out)) == ([], list(PROFILES))


def test_what_is_of_no_use_is_not_looked_for_for_ever():
    cut = decide(reference("torch.zeros_like(x)"), SizeName.SMALL, 1e-9)
    assert cut.use == []
    assert list(cut.left_out) == list(PROFILES)
    assert sum("problems validate" in why for why in cut.left_out.values()) == len(PROFILES) - 2


def test_a_decision_that_was_cut_short_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    made = reference("torch.relu(x)")
    with monkeypatch.context() as patch:
        patch.setattr(mixtures, "_BUDGET_S", 1e-9)
        assert mixture_for(made, SizeName.SMALL, ToleranceRule.MEASURED).untried == PROFILES[1:]
    monkeypatch.setattr(mixtures, "_BUDGET_S", 1000.0)
    assert mixture_for(made, SizeName.SMALL, ToleranceRule.MEASURED) == Mixture(PROFILES)


def test_a_cut_short_decision_of_the_small_size_is_no_decision_of_a_larger_one(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    monkeypatch.setattr(mixtures, "_BUDGET_S", 1e-9)
    monkeypatch.setattr(mixtures, "_is_large", lambda _: True)
    made = reference("torch.relu(x)", sizes={SizeName.SMALL: {}, SizeName.FULL: {}})
    assert mixture_for(made, SizeName.FULL, ToleranceRule.MEASURED).untried == PROFILES[1:]
    assert decided(made, SizeName.FULL, thorough=True).use == list(PROFILES)
    assert mixture_for(made, SizeName.FULL, ToleranceRule.MEASURED).untried == ()


def test_that_a_forward_was_slow_once_is_not_kept(tmp_path, monkeypatch):
    """Of the small size no errors of rounding are taken over, so every later tolerance would be too narrow."""
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    long, linear = "torch.randn(32, 1 << 12)", "self.linear = nn.Linear(1 << 12, 32, bias=False)"
    sizes = {SizeName.SMALL: {"n": 1}, SizeName.FULL: {"n": 2}}
    plain = problem("self.linear(x)", long, linear, tolerance=ToleranceOverride(floor=1e-7), sizes=sizes)
    made = Reference(replace(plain, source=f"{plain.source}\nn = 2\n"), SizeName.FULL, 1)
    with monkeypatch.context() as patch:
        patch.setattr(mixtures, "_SLOW_S", 0.0)
        assert mixture_for(made, SizeName.FULL, ToleranceRule.MEASURED).rounding == {}
        assert not is_known(made.problem, SizeName.FULL, ToleranceRule.MEASURED, "cpu")
    assert mixture_for(made, SizeName.FULL, ToleranceRule.MEASURED).rounding != {}
    assert is_known(made.problem, SizeName.FULL, ToleranceRule.MEASURED, "cpu")


def test_a_function_with_steps_moves_few_elements_far_and_the_others_hardly():
    made = decide(reference("torch.floor(x * 100) / 100", "torch.randn(256, 512)"), SizeName.SMALL)
    assert 5e-3 < made.rare[Profile.AS_GIVEN]["output"] < 2e-2
    assert Profile.AS_GIVEN not in made.rounding
    rounding = mixtures.mixture_of(made).rounding_of(Profile.AS_GIVEN, "output")
    assert (rounding.usual, rounding.rare) == (0.0, made.rare[Profile.AS_GIVEN]["output"])


def test_a_sum_that_cancels_everywhere_is_off_everywhere():
    made = decide(reference("(x + 1e5) - 1e5", "torch.randn(256, 512)"), SizeName.SMALL)
    usual, largest = made.rounding[Profile.AS_GIVEN]["output"], made.rare[Profile.AS_GIVEN]["output"]
    assert 1e-3 < usual <= largest < 0.1


def test_a_number_is_measured_like_a_tensor_of_one_element():
    found = decide(reference("(x, ((x + 1e6) - 1e6).mean().item())"), SizeName.SMALL)
    assert found.rare[Profile.AS_GIVEN]["output[1]"] > 1e-4


def test_a_lock_goes_before_the_cache_and_only_for_its_own_text(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))
    made = reference("torch.relu(x)", path=str(tmp_path))
    only = SizeLock(use=[Profile.SMALL])
    lock = Lock(problem=made.problem.sha256, rules=RULES, sizes={SizeName.SMALL: only})
    (tmp_path / "profiles.lock.toml").write_text(lock_text(lock))
    assert decided(made, SizeName.SMALL) == only
    (tmp_path / "profiles.lock.toml").write_text(lock_text(replace(lock, problem="1" * 64)))
    assert decided(made, SizeName.SMALL).use == list(PROFILES)


def test_a_lock_is_written_as_it_is_read(tmp_path):
    size = SizeLock(
        use=[Profile.LARGE, Profile.SMALL],
        left_out={Profile.OUTLIERS: 'a "reason"\nof two lines \x7f'},
        rounding={Profile.LARGE: {"output[0].mask": 1.5e-4}},
        rare={Profile.AS_GIVEN: {"output": 2.5e-2}},
    )
    lock = Lock(problem="0" * 64, rules=RULES, sizes={SizeName.SMALL: size, SizeName.FULL: SizeLock(use=[])})
    path = tmp_path / "profiles.lock.toml"
    path.write_text(lock_text(lock))
    assert read_lock(path) == lock
    assert fits(lock, problem("x"), RULES)
    assert not fits(lock, problem("x"), RULES + 1)
    assert not fits(None, problem("x"), RULES)
    assert read_lock(tmp_path / "none") is None


@pytest.mark.parametrize("text", ["rules = ", "rules = 1", 'problem = "x"\nrules = 1', b"\xff"], ids=str)
def test_a_broken_lock_says_how_to_mend_it(tmp_path, text):
    path = tmp_path / "profiles.lock.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ProblemError) as raised:
        read_lock(path)
    assert str(path) in raised.value.message
    assert "--write" in raised.value.hint
