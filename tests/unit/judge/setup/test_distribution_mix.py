"""Which value profiles a reference bears, and how calls are mixed."""

import collections
import itertools
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace

from evaluator.catalog.lock import Lock, RowSitesLock, SizeLock, fits, lock_text, read_lock
from evaluator.errors import ProblemError
from evaluator.judge.inputs.input_distributions import PROFILES, RULES
from evaluator.judge.reference.operation_cost import cost_of
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup import distribution_mix as mixtures
from evaluator.judge.setup.distribution_mix import (
    AS_GIVEN_ALONE,
    DistributionMix,
    decide,
    decided,
    distribution_mix_for,
)
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.records import (
    Profile,
    RowSite,
    SizeName,
    ToleranceRule,
    ValuesRule,
    WeightsRule,
)
from tests.unit.references import problem, reference

ALL = DistributionMix(PROFILES)
WITHOUT_FACTORS = [profile for profile in PROFILES if profile is not Profile.NEAR_ONE]
"""The distributions of a reference that multiplies no factors."""


def left_out(output, given="torch.rand(32, 64)", init="pass", **changes):
    found = decide(reference(output, given, init, **changes), SizeName.SMALL).left_out
    return {profile: why for profile, why in found.items() if not why.startswith("the reference multiplies no factors")}


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
    assert left_out("torch.relu(x - 100)")[Profile.SMALL] == "the output hardly depends on such inputs"


def test_a_profile_on_which_numbers_overflow_is_left_out():
    assert left_out("torch.exp(x.sum(1) * 0.05)")[Profile.LARGE] == "output is not finite"


def test_rounding_leaves_no_profile_out_but_where_float64_gives_something_else():
    """A call whose answer deviates measures its own rounding."""
    assert left_out("(x + 1e5) - 1e5") == {Profile.SMALL: "float64 gives something else"}


MIXED = "torch.ldexp(torch.randn(32, 96), torch.randint(-8, 9, (32, 96)))"


@pytest.mark.parametrize(("output", "factors"), [("x.prod(1)", 96), ("x.mT.prod(0)", 96), ("x.cumprod(1)", 4096)])
def test_a_profile_on_which_a_partial_product_overflows_is_left_out(output, factors):
    """A kernel that multiplied 256 mixed magnitudes by threads returned infinity in place of 1.8e24."""
    found = left_out(output, f"0.5 + torch.rand(32, {factors})")
    assert found[Profile.MIXED_MAGNITUDES].startswith("the order of factors decides: partial products of output")
    assert not {Profile.SIGNED_NORMAL, Profile.OUTLIERS} & set(found)


@pytest.mark.parametrize("output", ["torch.softmax(x, 1).topk(8, 1)", "torch.softmax(x, 1).sort(1)"])
def test_a_profile_on_which_equal_values_decide_is_left_out(output):
    """Where logits are large, most probabilities are 0, and PyTorch may return the place of any."""
    found = left_out(output, "torch.randn(32, 64)")
    assert found[Profile.LARGE] == "output[1] depends on the choice among equal values"
    assert Profile.SIGNED_NORMAL not in found
    assert Profile.LARGE not in left_out("torch.softmax(x, 1).topk(8, 1)[0]", "torch.randn(32, 64)")
    assert Profile.LARGE not in left_out("torch.softmax(x, 1).sort(stable=True, dim=1)", "torch.randn(32, 64)")


def test_the_least_favourable_order_of_factors_asks_no_author():
    said = {Profile.MIXED_MAGNITUDES: True}
    assert Profile.MIXED_MAGNITUDES in decide(reference("x.prod(1)", MIXED, profiles=said), SizeName.SMALL).use


def test_ties_are_left_out_where_any_of_equal_values_may_win_unless_the_author_asks_for_them():
    assert left_out("x.argmax(1)")[Profile.ZEROS_AND_TIES] == "output depends on the choice among equal values"
    assert Profile.ZEROS_AND_TIES not in left_out("x.argmax(1)", profiles={Profile.ZEROS_AND_TIES: True})
    said = "any of equal values may win"
    assert left_out("x.argmax(1)", profiles={Profile.ZEROS_AND_TIES: said})[Profile.ZEROS_AND_TIES] == said


def test_an_author_cannot_have_what_is_not_finite_and_can_leave_out_what_is():
    said = {Profile.SIGNED_NORMAL: True, Profile.SMALL: "logarithms of lengths, which are large"}
    found = left_out("torch.log(x)", profiles=said)
    assert found[Profile.SIGNED_NORMAL] == "output is not finite"
    assert found[Profile.SMALL] == said[Profile.SMALL]


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
    planned = DistributionMix(tuple(use)).checks()
    assert planned[0] is Profile.AS_GIVEN
    assert set(planned) == {Profile.AS_GIVEN, *use}
    assert len(planned) >= 5
    assert planned.count(Profile.AS_GIVEN) >= 2
    assert [planned.count(profile) for profile in use] == [1 + 2 * (profile is Profile.OUTLIERS) for profile in use]


@pytest.mark.parametrize(
    ("use", "evidence", "most"),
    [
        ((), (Profile.AS_GIVEN,), 5),
        ((Profile.SMALL,), (Profile.SMALL,), 7),
        ((Profile.SMALL, Profile.LARGE), (Profile.SMALL, Profile.LARGE), 6),
        (PROFILES, (), 15),
    ],
)
def test_three_checks_at_least_are_evidence_if_any_distribution_is(use, evidence, most):
    planned = DistributionMix(use, evidence=evidence).checks()
    assert sum(planned.count(profile) for profile in evidence) >= 3 * bool(evidence)
    assert len(planned) == most


def test_kernelbenchs_rule_goes_with_its_inputs():
    assert distribution_mix_for(reference("torch.relu(x)"), SizeName.SMALL, ToleranceRule.KERNELBENCH) == AS_GIVEN_ALONE


def test_a_decision_is_made_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    first = decided(reference("torch.relu(x)"), SizeName.SMALL)
    monkeypatch.setattr(mixtures, "decide", lambda *_: pytest.fail("it was decided again"))
    assert decided(reference("torch.relu(x)"), SizeName.SMALL) == first


def test_a_gpu_takes_the_cached_decision_of_a_cpu_about_the_small_size_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    plain = problem("torch.relu(x)", sizes={SizeName.SMALL: {"n": 1}, SizeName.FULL: {"n": 2}})
    on_cpu, on_gpu = (
        SimpleNamespace(problem=plain, device=torch.device(device), state=dict) for device in ("cpu", "cuda")
    )
    made = []
    monkeypatch.setattr(mixtures, "decide", lambda of, *_: made.append(of) or SizeLock([Profile.SMALL]))
    for size in (SizeName.SMALL, SizeName.FULL):
        decided(on_cpu, size)
    assert made == [on_cpu] * 2
    decided(on_gpu, SizeName.SMALL)
    assert made == [on_cpu] * 2
    decided(on_gpu, SizeName.FULL)
    assert made == [on_cpu, on_cpu, on_gpu]


def test_a_busy_machine_decides_as_an_idle_one(monkeypatch):
    """Each reading of a clock here is an hour after the one before."""
    idle = decide(reference("torch.relu(x)"), SizeName.SMALL, 60.0)
    hours = itertools.count(step=3600.0)
    for clock in ("monotonic", "perf_counter", "time", "process_time"):
        monkeypatch.setattr(time, clock, lambda: next(hours))
    assert decide(reference("torch.relu(x)"), SizeName.SMALL, 60.0) == idle
    assert idle.use == WITHOUT_FACTORS


def test_a_problem_too_large_to_try_is_left_to_a_thorough_decision(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    monkeypatch.setattr(mixtures, "_LONGEST_S", 1e-9)
    made = reference("torch.relu(x)")
    within_a_grade = decided(made, SizeName.SMALL)
    assert within_a_grade.use == []
    assert "problems validate" in within_a_grade.left_out[Profile.SMALL]
    assert distribution_mix_for(made, SizeName.SMALL, ToleranceRule.MEASURED).untried == PROFILES
    assert decided(made, SizeName.SMALL, thorough=True).use == WITHOUT_FACTORS
    assert decided(made, SizeName.SMALL).use == WITHOUT_FACTORS
    assert distribution_mix_for(made, SizeName.SMALL, ToleranceRule.MEASURED).untried == ()


def test_nothing_is_tried_of_a_problem_too_large_to_try(monkeypatch):
    monkeypatch.setattr(mixtures, "_try_profile", lambda *_: pytest.fail("it was tried"))
    left = decide(reference("torch.relu(x)"), SizeName.SMALL, 1e-9)
    assert (left.use, list(left.left_out)) == ([], list(PROFILES))


def test_a_large_problem_of_one_size_is_tried_on_its_first_rows(monkeypatch):
    monkeypatch.setattr(mixtures, "_TRIED_ELEMENTS", 512)
    rows, seen = [], mixtures._first_block

    def watched(of, inputs):
        rows.append(len(seen(of, inputs).args[0]))
        return seen(of, inputs)

    monkeypatch.setattr(mixtures, "_first_block", watched)
    init = "self.linear = nn.Linear(64, 64)"
    made = reference("self.linear(x)", "torch.randn(64, 64)", init)
    assert decide(made, SizeName.SMALL).use == WITHOUT_FACTORS
    assert set(rows) == {8}
    assert len(made.blocks(made.draw(1))) == 1  # A verdict compares whole calls.
    rows.clear()
    decide(reference("x - x.mean(0)", "torch.randn(64, 64)"), SizeName.SMALL)
    assert set(rows) == {64}


def test_a_matrix_of_weights_with_as_many_rows_stays_whole():
    made = reference("x @ y", "torch.randn(64, 64), torch.randn(64, 64)", forward="x, y")
    inputs = made.draw(1)
    made.split_rows(inputs, made.forward(inputs, 0), 8)
    assert {tuple(block.args[1].shape) for block in made.blocks(inputs)} == {(64, 64)}
    assert len(made.blocks(inputs)) > 1


def test_a_trial_that_does_not_fit_into_memory_leaves_the_problem_untried(monkeypatch):
    def does_not_fit(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 6.00 GiB.")

    monkeypatch.setattr(mixtures, "_try_profile", does_not_fit)
    left = decide(reference("torch.relu(x)"), SizeName.SMALL)
    assert mixtures.distribution_mix_of(left).untried == PROFILES


FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 6.00 GiB.")


def mix():
    made = reference("self.linear(x)", "torch.rand(32, 64)", "self.linear = nn.Linear(64, 64)")
    return distribution_mix_for(made, SizeName.SMALL, ToleranceRule.MEASURED)


def running_out(monkeypatch, calls):
    """Let the numbered calls of the float64 model run out of memory, as beside another program on the GPU."""
    run, numbers = Reference._run, itertools.count()

    def short(self, model, *arguments):
        if model is self.exact_model and next(numbers) in calls:
            raise FULL
        return run(self, model, *arguments)

    monkeypatch.setattr(Reference, "_run", short)


def assert_decided():
    later = mix()
    assert later.untried == ()
    assert {Profile.SIGNED_NORMAL, Profile.OUTLIERS} <= set(later.use)
    assert later.row_sites


@pytest.mark.parametrize("after", [0, 1, 2, 3, 5, 9])
def test_a_decision_beside_other_users_of_the_memory_is_not_kept(tmp_path, monkeypatch, after):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    with monkeypatch.context() as short:
        running_out(short, range(after, 10_000))
        assert mix().untried == PROFILES
    assert_decided()


def test_a_passing_shortage_does_not_choose_the_weights_of_the_decision(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    with monkeypatch.context() as short:
        running_out(short, [0])
        assert mix().untried == PROFILES
    assert_decided()


@pytest.mark.parametrize("which", ["every copy", "float64"])
def test_a_copy_that_does_not_fit_leaves_the_problem_untried(tmp_path, monkeypatch, which):
    """The grade's own reference is there already; the decision constructs and copies others."""
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))

    def does_not_fit(*_):
        raise FULL

    with monkeypatch.context() as short:
        made = reference("self.linear(x)", "torch.rand(32, 64)", "self.linear = nn.Linear(64, 64)")
        if which == "every copy":
            short.setattr("evaluator.judge.reference.reference.copy.deepcopy", does_not_fit)
        else:
            short.setattr(torch.nn.Module, "double", does_not_fit)
        assert distribution_mix_for(made, SizeName.SMALL, ToleranceRule.MEASURED).untried == PROFILES
    assert_decided()


def test_a_model_that_cannot_be_copied_is_not_tried():
    made = reference("torch.relu(x)", "torch.rand(4, 4)")
    made.model.lock = threading.Lock()
    (why,) = set(decide(made, SizeName.SMALL).left_out.values())
    assert "cannot be copied" in why


def test_what_is_of_no_use_is_tried_whole():
    left = decide(reference("torch.zeros_like(x)"), SizeName.SMALL, 60.0)
    assert left.use == []
    assert not any("problems validate" in why for why in left.left_out.values())


def test_an_untried_small_size_leaves_the_larger_one_untried(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    monkeypatch.setattr(mixtures, "_LONGEST_S", 1e-9)
    monkeypatch.setattr(mixtures, "_is_large", lambda _: True)
    made = reference("torch.relu(x)", sizes={SizeName.SMALL: {}, SizeName.FULL: {}})
    assert distribution_mix_for(made, SizeName.FULL, ToleranceRule.MEASURED).untried == PROFILES
    assert decided(made, SizeName.FULL, thorough=True).use == WITHOUT_FACTORS
    assert distribution_mix_for(made, SizeName.FULL, ToleranceRule.MEASURED).untried == ()


def test_the_problems_own_values_alone_keep_the_distances_of_wrong_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    made = reference("torch.softmax(x, 1)", "torch.randn(4, 512)")
    everything = distribution_mix_for(made, SizeName.SMALL, ToleranceRule.MEASURED)
    own = distribution_mix_for(made, SizeName.SMALL, ToleranceRule.MEASURED, ValuesRule.OWN)
    assert everything.use
    assert (own.use, own.distances) == ((), everything.distances)
    assert own.distances[Profile.AS_GIVEN]["output"] > 0.01


def test_a_size_that_is_slow_by_count_is_decided_at_the_small_one(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    long, linear = "torch.randn(32, n << 12)", "self.linear = nn.Linear(n << 12, 32, bias=False)"
    sizes = {SizeName.SMALL: {"n": 1}, SizeName.FULL: {"n": 2}}
    plain = problem("self.linear(x)", long, linear, sizes=sizes)
    made = Reference(replace(plain, source=f"n = 2\n{plain.source}"), SizeName.FULL, 1)
    slow = cost_of(lambda: made.forward(made.draw(1), 0)).nominal_s("cpu") / 2
    tried, seen = [], mixtures._try_profile

    def watched(of, *rest):
        tried.append(of.draw(1).args[0].shape[1])
        return seen(of, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            mixtures, "_try_profile", lambda of, *rest: [tried.append(of.draw(1).args[0].shape[1]), seen(of, *rest)][1]
        )
        decide(made, SizeName.FULL)
        assert set(tried) == {2 << 12}
        tried.clear()
        patch.setattr(mixtures, "_SLOW_S", slow)
        decide(made, SizeName.FULL)
    assert set(tried) == {1 << 12}


def test_a_lock_goes_before_the_cache_and_only_for_its_own_text(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))
    made = reference("torch.relu(x)", path=str(tmp_path))
    only = SizeLock(use=[Profile.SMALL])
    lock = Lock(problem=made.problem.sha256, rules=RULES, sizes={SizeName.SMALL: only})
    (tmp_path / "profiles.lock.toml").write_text(lock_text(lock))
    assert decided(made, SizeName.SMALL) == only
    (tmp_path / "profiles.lock.toml").write_text(lock_text(replace(lock, problem="1" * 64)))
    assert decided(made, SizeName.SMALL).use == WITHOUT_FACTORS


def test_a_lock_is_written_as_it_is_read(tmp_path):
    size = SizeLock(
        use=[Profile.LARGE, Profile.SMALL],
        left_out={Profile.OUTLIERS: 'a "reason"\nof two lines \x7f'},
        distances={Profile.AS_GIVEN: {"output": 2.5e-2, 'a "key"': 1e30}, Profile.LARGE: {"output[0].mask": 0.0}},
        evidence=[Profile.AS_GIVEN, Profile.LARGE],
    )
    sizes = {SizeName.SMALL: size, SizeName.FULL: SizeLock(use=[])}
    sites = [
        RowSite(0, 1, {"output[0]": 1, 'a "key"': 0}),
        RowSite(2, 0, {}, signs=False),
        RowSite(3, 0, {"output": 0}, concentrated=False),
        RowSite(3, 1, {"output": 0}, signs=False, concentrated=False),
    ]
    lock = Lock(problem=problem("x").sha256, rules=RULES, sizes=sizes, row_sites=RowSitesLock(rules=3, sites=sites))
    path = tmp_path / "profiles.lock.toml"
    rows = [
        RowSitesLock(rules=3),
        RowSitesLock(rules=3, elementwise=[]),
        RowSitesLock(rules=3, elementwise=["a", 'b"']),
    ]
    for each in (lock, *(replace(lock, row_sites=known) for known in (None, *rows))):
        path.write_text(lock_text(each))
        assert read_lock(path) == each
    assert fits(lock, problem("x"), RULES)
    assert not fits(lock, problem("x"), RULES + 1)
    assert not fits(None, problem("x"), RULES)
    assert read_lock(tmp_path / "none") is None


EARLIER = """\
problem = "{problem}"
rules = 7

[sizes.small]
use = ["signed_normal", "large"]
[sizes.small.left_out]
small = "rounding decides: another order of summation moves output by 1"
[sizes.small.rounding.large]
"output" = 1.50e-05
[sizes.small.rare.as_given]
"output" = 2.50e-02

[row_sites]
rules = 3
sites = [
    {{ tensor = 0, dim = 0, outputs = {{ "output" = 0 }} }},
]
"""


def test_an_earlier_lock_is_read_without_its_rounding_and_decides_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))
    made = reference("torch.relu(x)", path=str(tmp_path))
    path = tmp_path / "profiles.lock.toml"
    path.write_text(EARLIER.format(problem=made.problem.sha256))
    lock = read_lock(path)
    why = {Profile.SMALL: "rounding decides: another order of summation moves output by 1"}
    assert lock.sizes == {SizeName.SMALL: SizeLock([Profile.SIGNED_NORMAL, Profile.LARGE], why)}
    assert lock.row_sites == RowSitesLock(3, [RowSite(0, 0, {"output": 0})])
    assert not fits(lock, made.problem, RULES)
    assert decided(made, SizeName.SMALL).use == WITHOUT_FACTORS


@pytest.mark.parametrize("text", ["rules = ", "rules = 1", 'problem = "x"\nrules = 1', b"\xff"], ids=str)
def test_a_broken_lock_says_how_to_mend_it(tmp_path, text):
    path = tmp_path / "profiles.lock.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ProblemError) as raised:
        read_lock(path)
    assert str(path) in raised.value.message
    assert "--write" in raised.value.hint


MEAN_OF_NORM = {"given": "torch.rand(64, 32)", "init": "self.norm = nn.GroupNorm(4, 32)"}


def test_where_the_constructed_weights_make_rounding_of_the_output_other_weights_decide():
    """With weights of 1 and biases of 0, the mean of a norm is 0."""
    made = decide(reference("self.norm(x).mean(1)", **MEAN_OF_NORM), SizeName.SMALL)
    assert {Profile.AS_GIVEN, Profile.SIGNED_NORMAL} <= set(made.evidence)
    assert made.distances[Profile.AS_GIVEN]["output"] > 0.01
    frozen = decide(reference("self.norm(x).mean(1)", **MEAN_OF_NORM, weights=WeightsRule.FROZEN), SizeName.SMALL)
    assert "the output is a result of rounding" in frozen.left_out.values()
    assert (frozen.distances, frozen.evidence) == ({Profile.AS_GIVEN: {"output": 0.0}}, [])


def test_a_result_of_rounding_beside_another_output_is_no_evidence():
    two = "(n := self.norm(x), n.mean(0))"
    norm = "self.norm = nn.BatchNorm1d(32)"
    made = decide(reference(two, "torch.randn(64, 32)", norm, weights=WeightsRule.FROZEN), SizeName.SMALL)
    assert Profile.SIGNED_NORMAL in made.use
    assert made.distances[Profile.AS_GIVEN]["output[0]"] > 0.1
    assert made.distances[Profile.AS_GIVEN]["output[1]"] == 0
    assert made.evidence == []


def test_a_decision_depends_on_no_grades_weights(tmp_path, monkeypatch):
    """A replayed card names its weights, and the cache serves later grades."""
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    made = []
    real = mixtures.decide
    monkeypatch.setattr(mixtures, "decide", lambda of, *rest: made.append(of.parameters()) or real(of, *rest))
    found = reference("self.linear(x)", "torch.rand(3, 4)", "self.linear = nn.Linear(4, 4)")
    decided(found, SizeName.SMALL)
    assert not torch.equal(made[0]["linear.weight"], found.parameters()["linear.weight"])


def test_where_nothing_is_usable_other_weights_decide(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    answers = iter([SizeLock([]), SizeLock([Profile.SMALL])])
    monkeypatch.setattr(mixtures, "decide", lambda *_: next(answers))
    found = reference("self.linear(x)", "torch.rand(3, 4)", "self.linear = nn.Linear(4, 4)")
    assert decided(found, SizeName.SMALL).use == [Profile.SMALL]
