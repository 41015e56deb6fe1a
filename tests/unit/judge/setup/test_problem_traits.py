"""Traits of a problem: found once, at the small size on the CPU."""

import pytest
import torch
from msgspec.structs import replace

from evaluator.errors import ProblemError
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup import problem_traits
from evaluator.judge.setup.distribution_mix import distribution_mix_for
from evaluator.judge.setup.distribution_trials import NO_FACTORS
from evaluator.judge.setup.problem_traits import ProblemTraits, traits_of
from evaluator.records import Precision, Profile, RowSite, SizeName, ToleranceRule, ValuesRule, cases_of
from tests.unit.references import problem, reference

ROWS, COLUMNS = RowSite(0, 0, {"output": 0}), RowSite(0, 1, {"output": 1})
DOUBLED = ProblemTraits([ROWS, COLUMNS], ["output"], {Profile.NEAR_ONE: NO_FACTORS})
GIVEN = "torch.rand(32, 64)"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))


def traits(output, **changes):
    return traits_of(problem(output, GIVEN, **changes), SizeName.SMALL, "cpu")


def test_traits_are_found_once(monkeypatch):
    assert traits("x * 2") == DOUBLED
    monkeypatch.setattr(problem_traits, "Reference", lambda *_: pytest.fail("it was tried again"))
    assert traits("x * 2") == DOUBLED


@pytest.mark.parametrize(
    ("sizes", "tried"),
    [
        ({SizeName.FULL: {}}, (SizeName.FULL, "cuda")),
        ({SizeName.FULL: {}, SizeName.SMALL: {}}, (SizeName.SMALL, "cpu")),
    ],
)
def test_a_problem_without_a_small_size_is_tried_at_its_own(monkeypatch, sizes, tried):
    places = []
    monkeypatch.setattr(problem_traits, "_by_trials", lambda _, *place: places.append(place) or DOUBLED)
    traits_of(problem("x * 2", GIVEN, cases=cases_of(sizes)), SizeName.FULL, "cuda")
    assert places == [tried]


def test_a_reference_that_refuses_its_own_inputs_is_broken():
    with pytest.raises(ProblemError):
        traits("x.view(7)")


def test_a_reference_for_a_gpu_alone_is_tried_there(monkeypatch):
    def by_trials(_, size, device):
        if device == "cpu":
            raise ProblemError("x.cuda()")
        return DOUBLED

    monkeypatch.setattr(problem_traits, "_by_trials", by_trials)
    sizes = {SizeName.FULL: {}, SizeName.SMALL: {}}
    assert traits_of(problem("x * 2", GIVEN, cases=cases_of(sizes)), SizeName.FULL, "cuda") == DOUBLED


@pytest.mark.parametrize("calls", [None, 0, 1, 3])
def test_traits_missing_for_lack_of_memory_are_not_kept(monkeypatch, calls):
    """Memory may be short when the model is converted, or in a later call."""
    run, left = Reference._run, iter(range(calls or 0))

    def does_not_fit(_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    def short(self, model, *arguments):
        if model is self.exact_model and next(left, None) is None:
            does_not_fit(model)
        return run(self, model, *arguments)

    made = reference("x * 2", GIVEN)
    with monkeypatch.context() as patch:
        if calls is None:
            patch.setattr(torch.nn.Module, "double", does_not_fit)
        else:
            patch.setattr(Reference, "_run", short)
        with pytest.raises(MemoryError):
            traits("x * 2")
        mix = distribution_mix_for(made, SizeName.SMALL, ToleranceRule.MEASURED)
        assert (mix.row_sites, mix.elementwise) == ((), frozenset())
    assert traits("x * 2") == DOUBLED


def mix(output="torch.relu(x)", rule=ToleranceRule.MEASURED, values=ValuesRule.ALL, **changes):
    return distribution_mix_for(reference(output, GIVEN, **changes), SizeName.SMALL, rule, values)


def test_rows_cancel_where_the_precision_and_the_rule_allow_it():
    assert mix().row_sites == (ROWS, COLUMNS)
    assert mix(precision=Precision.BF16).row_sites == (ROWS, COLUMNS)
    assert mix(precision=Precision.TF32).row_sites == ()
    assert mix(rule=ToleranceRule.KERNELBENCH).row_sites == ()
    assert mix(values=ValuesRule.OWN).row_sites == ()
    unsigned = [replace(site, signs=False) for site in (ROWS, COLUMNS)]
    assert mix("torch.log(x)").row_sites == tuple(unsigned)


@pytest.mark.parametrize("values", list(ValuesRule))
def test_functions_that_take_random_signs_have_the_smaller_floor(values):
    """Textbook forms of logarithms and roots have more rounding, near 1 and 0."""
    for output, paths in (("torch.exp(x)", {"output"}), ("torch.log(x)", set()), ("torch.acos(x)", set())):
        assert mix(output, values=values).elementwise == paths


def test_other_precisions_and_rules_have_no_smaller_floor():
    assert mix("torch.exp(x)", precision=Precision.TF32).elementwise == set()
    assert mix("torch.exp(x)", rule=ToleranceRule.KERNELBENCH).elementwise == set()


def test_a_reference_that_fails_in_float64_has_traits():
    """A matrix product needs one dtype: the reference makes the other factor in fp32."""
    made = problem("x @ torch.ones(64, 8)", precision=Precision.FP32)
    assert traits_of(made, SizeName.SMALL, "cpu").elementwise == []
