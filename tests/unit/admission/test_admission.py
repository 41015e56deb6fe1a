"""Admission of problems that need more than one call, or other weights than the constructed ones, to show a control."""

import pytest

from evaluator.admission import admission
from evaluator.admission.admission import admit
from evaluator.admission.judged_calls import JudgedCall
from evaluator.errors import ProblemError
from evaluator.judge.answer.call_limits import CallLimits
from evaluator.records import Formats, OutputFormat, Precision, Profile, RowSite, SizeName, WeightsRule
from tests.unit.references import problem

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))


def admitted(output, **made):
    found = admit(problem(output, **made), SizeName.SMALL)
    return {each.control: each for each in found.controls}, found.honest_failures


def test_an_output_of_rounding_alone_is_judged_with_the_weights_of_each_call():
    """With weights of 1 and biases of 0, the mean of a norm is 0; `test_call_limits` has the limit."""
    norm = "self.norm = nn.GroupNorm(4, 32)"
    found, failures = admitted("self.norm(x).mean(1)", given="torch.randn(64, 32)", init=norm)
    assert failures == []
    assert not found["answers zeros"].gets_away
    assert not found["ignores input 0"].gets_away
    assert not found["ignores weight norm.bias"].gets_away


SIGN = "torch.tensor(1.0 if torch.rand(()) < 0.5 else -1.0)"


def test_a_control_that_one_call_cannot_show_is_shown_by_further_ones(monkeypatch):
    """A sign is the same in two calls of four."""
    found, _ = admitted("x * sign", given=f"torch.randn(8, 16), {SIGN}", forward="x, sign")
    assert not found["ignores input 1"].gets_away
    monkeypatch.setattr(admission, "_FURTHER_SEEDS", ())
    known = []
    for seed in range(4):
        monkeypatch.setattr(admission, "_SEED", seed)
        found, _ = admitted("x * sign", given=f"torch.randn(8, 16), {SIGN}", forward="x, sign", profiles=NO_PROFILES)
        known.append(found["ignores input 1"].gets_away)
    assert any(known)


NO_PROFILES = {profile: "a test" for profile in Profile if profile is not Profile.AS_GIVEN}


NEARLY_EQUAL = {
    "output": "self.weight * x - (self.weight * x).mean(1, keepdim=True)",
    "init": "self.weight = nn.Parameter(torch.ones(1))",
    "profiles": NO_PROFILES,
}
"""The spread is a small difference, and the norm's weights of the call change its rounding."""


def test_an_honest_order_near_the_tolerance_is_compared_again_as_in_a_grade(monkeypatch):
    given = "1 + 3e-2 * torch.rand(16, 2048)"
    assert admitted(given=given, **NEARLY_EQUAL)[1] == []
    monkeypatch.setattr(CallLimits, "measure", lambda *_: False)
    failures = admitted(given=given, **NEARLY_EQUAL)[1]
    assert failures
    assert set(failures) == {"another order (sequential) on as_given"}


def test_an_honest_order_that_moves_the_problems_own_outputs_altogether_is_told():
    """Rounding is 1 % of the spread; no tolerance may be as wide for the problem's own values."""
    failures = admitted(given="1 + 3e-5 * torch.rand(16, 2048)", **NEARLY_EQUAL)[1]
    assert set(failures) == {"another order (sequential) on as_given"}


def test_an_honest_order_moves_whole_numbers_that_the_author_lets_flip():
    whole = {"output": "(x * 1000).floor().int()", "given": "torch.rand(16, 2048)", "profiles": NO_PROFILES}
    assert admitted(**whole)[1] == ["another order (rounded) on as_given"]
    controls, failures = admitted(**whole, formats=Formats(outputs={"output": OutputFormat(flips=1e-3)}))
    assert failures == []
    assert not any(control.gets_away for control in controls.values())


def test_half_precision_has_the_honest_orders_of_a_grade_alone():
    """A result moved by half a unit after its rounding is no result of any kernel."""
    half = {"given": "torch.rand(64, 64).bfloat16(), torch.rand(64, 64).bfloat16()", "precision": Precision.BF16}
    controls, failures = admitted("x @ y", forward="x, y", **half)
    assert failures == []
    assert not any(control.gets_away for control in controls.values())


SCALE = "self.scale = nn.Parameter(torch.ones(64))"


def test_an_elementwise_map_is_compared_as_in_a_grade(monkeypatch):
    """On the problem's own values, that is."""
    compared = []
    checks = JudgedCall._checks

    def seen(call, found, limits):
        compared.append((call.profile, limits["output"].floor))
        return checks(call, found, limits)

    monkeypatch.setattr(JudgedCall, "_checks", seen)
    admitted("torch.exp(x)", given="torch.rand(16, 64)")
    floors = {profile: {floor for each, floor in compared if each is profile} for profile, _ in compared}
    assert floors[Profile.AS_GIVEN] == {1e-5, 1e-4}  # The second is KernelBench's.
    assert 1e-5 not in floors[Profile.SIGNED_NORMAL]


def test_further_calls_have_the_secret_rows_of_a_grade(monkeypatch):
    given = []
    monkeypatch.setattr(admission, "_see_further_calls", lambda *arguments: given.append(arguments[-1]))
    admitted("torch.softmax(x, 1)", given="torch.rand(16, 64)")
    assert given == [(RowSite(0, 0, {"output": 0}), RowSite(0, 1, {"output": 1}))]


def test_a_random_reference_is_refused():
    with pytest.raises(ProblemError, match="random numbers that forward draws decide about the reference's values"):
        admitted("torch.multinomial(x, 1)", given="torch.rand(16, 64)")
    admitted("torch.dropout(x, 0.0, True)", given="torch.randn(16, 64)")


def test_weights_stay_constant_where_calls_of_a_grade_have_no_others():
    """A reference may refuse other weights. A frozen weight of ones can be left out."""
    ignored = "ignores weight scale"
    assert not admitted("x * self.scale", init=SCALE)[0][ignored].gets_away
    assert admitted("x * self.scale", init=SCALE, weights=WeightsRule.FROZEN)[0][ignored].gets_away
    picky = "x * (self.scale if bool((self.scale == 1).all()) else torch.nan)"
    found, failures = admitted(picky, init=SCALE)
    assert (found[ignored].gets_away, failures) == (True, [])
