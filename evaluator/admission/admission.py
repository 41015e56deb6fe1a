"""Admission of a problem: whether the problem tells the bad submissions of `negative_controls` from good submissions.

Every control answers the calls of a grade: the problem's own inputs, and every distribution in use, under the problem's
own tolerance, with other weights in each call. KernelBench's rule is applied to the problem's own inputs and the
constructed weights. A control gets away if no call reveals the control. Passing controls answer some more calls, with
cancelling rows like timed calls. Controls in fewer bits also undergo the tests for reduced precision, like a timed
submission. Honest variants sum in other orders, and must pass all calls. As in a grade, an answer near the tolerance is
compared once more, with the call's own rounding.
"""

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from evaluator.admission.judged_calls import JudgedCall, rounding_shows
from evaluator.admission.negative_controls import (
    IN_FEWER_BITS,
    Answer,
    ControlCall,
    NegativeControl,
    answer,
    has_no_effect,
    input_paths,
    without_input,
    without_weight,
)
from evaluator.admission.numeric_controls import ONE_IN, off_by
from evaluator.errors import ProblemError
from evaluator.judge.compare.steps import FEW_ONE_IN
from evaluator.judge.numerics.arithmetic_modes import SummationOrder, in_order
from evaluator.judge.numerics.rounding_of_call import ORDERS
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.dependence import depends_on_random_numbers, settle_weights
from evaluator.judge.reference.reference import Reference, by_path
from evaluator.judge.setup.distribution_mix import DistributionMix, distribution_mix_for
from evaluator.records import (
    Admission,
    CaseName,
    CheckRule,
    ControlResult,
    Problem,
    Profile,
    RowSite,
    ToleranceRule,
    WeightsRule,
)

_WEIGHT_SEED = 0x5EED
_SEED = 11
_OTHER = 2
"""Added to a call's seed for the call whose inputs, weights and answer a control may have kept."""
_FURTHER_SEEDS = tuple(range(101, 109))
"""Seeds of further calls. A grade has more: two checked calls or more, and the timed calls."""

_ADVICE = {
    NegativeControl.IDENTITY: "draw inputs that the operation changes: negative ones, large ones",
    NegativeControl.ZEROS: "scale the inputs or weights so that the output is not small beside its tolerance",
    NegativeControl.ONES: "scale the inputs so that the output differs from 1",
    NegativeControl.MEAN: "let the output vary: a softmax or a norm over many equal values is flat",
    NegativeControl.RANK_ONE: "let the output vary: a long product of positive matrices is nearly constant",
    NegativeControl.SHUFFLED: "let the output vary from element to element",
    NegativeControl.HALF: "let the output differ from zero everywhere",
    NegativeControl.TAIL: "let the output differ from zero everywhere",
    NegativeControl.CACHED: "let the output depend on the inputs: weights and scales decide how much of them is left",
    NegativeControl.STALE_WEIGHTS: "let the output depend on the weights: draw them larger",
    NegativeControl.POSITIVE: "draw inputs of both signs (torch.randn)",
    NegativeControl.MAGNITUDES: "draw inputs of both signs (torch.randn)",
    NegativeControl.HALF_INPUT: "let every input matter: a sum over many equal values hides half of them",
    NegativeControl.TAIL_INPUT: "let every input matter: a sum over many equal values hides the last ones",
    NegativeControl.ROW_START: "let the output differ from zero everywhere: a long product of small numbers vanishes",
    NegativeControl.SEVEN_EIGHTHS: "let every term matter: a mean over many equal values hides an eighth of them",
    **dict.fromkeys(IN_FEWER_BITS, "draw inputs of both signs, so that sums cancel and rounding shows"),
    NegativeControl.CUT_OFF: "let more elements differ from zero, or lower tolerance.floor",
    NegativeControl.TWO_STEPS: "let more elements differ from zero, or lower tolerance.floor",
}
_EQUIVALENT = frozenset(
    {
        *(NegativeControl.POSITIVE, NegativeControl.MAGNITUDES, NegativeControl.HALF_INPUT),
        *(NegativeControl.TAIL_INPUT, NegativeControl.TF32, NegativeControl.RANK_ONE, NegativeControl.SEVEN_EIGHTHS),
    }
)
"""Controls that are no cheats if correct wherever the reference is meaningful: the square of |x| is the square of x."""


def admit(problem: Problem, size: CaseName, device: str = "cpu") -> Admission:
    """Test a problem at a given size with every control.

    Raises:
        ProblemError: the problem's own code fails.
    """
    reference = Reference(problem, size, _WEIGHT_SEED, device)
    reference.check_formats()
    mix = distribution_mix_for(reference, size, ToleranceRule.MEASURED)
    stale = Reference(problem, size, _WEIGHT_SEED + 1, device)
    if problem.check is not CheckRule.INSTEAD and depends_on_random_numbers(reference, _SEED):
        raise ProblemError(
            f"{problem.name}: random numbers that forward draws decide about the reference's values",
            hint="draw random numbers in get_inputs, and pass them to forward",
        )
    if problem.weights is WeightsRule.FROZEN:
        reference.weights.leave("the problem asks for constant weights")
    settle_weights(reference, reference.draw(_SEED))
    sites, distribution_mix = mix.row_sites, mix._replace(row_sites=())
    # Distributions of a grade come first: the problem's own values reveal most controls.
    order = sorted(Profile, key=lambda profile: profile not in (Profile.AS_GIVEN, *distribution_mix.use))
    failures: list[str] = []
    trials: list[_Trial] = []
    if (plain := _call(reference, stale, distribution_mix, Profile.AS_GIVEN, changing=False)) is not None:
        trials = _trials(plain.case)
        for trial in trials:
            trial.see_plain(plain)
    del plain
    # A single call at a time: at full size, no GPU holds the calls of all distributions.
    for profile in order:
        call = _call(reference, stale, distribution_mix, profile)
        if call is None:
            continue
        for trial in trials:
            trial.see(call)
        failures += _honest_failures(call)
        del call  # Frees the memory for the next call.
    _see_further_calls(trials, reference, stale, distribution_mix, sites)
    for trial in trials:
        trial.look_closely(reference, sites)
    return Admission(
        problem=problem.name,
        size=size,
        profiles=list(distribution_mix.use),
        left_out=dict(mix.left_out),
        controls=[result for trial in trials if (result := trial.result()) is not None],
        honest_failures=list(dict.fromkeys(failures)),
        cases=list(problem.cases),
    )


def _see_further_calls(
    trials: list["_Trial"],
    reference: Reference,
    stale: Reference,
    distribution_mix: DistributionMix,
    sites: Sequence[RowSite],
) -> None:
    """Test unrevealed controls with calls like timed calls: own values, and cancelling rows."""
    for seed in _FURTHER_SEEDS:
        if not any(trial.passes for trial in trials):
            return
        call = _call(reference, stale, distribution_mix, Profile.AS_GIVEN, seed=seed, row_sites=sites)
        if call is None:
            return
        for trial in trials:
            trial.see(call)
        del call


def _trials(first: ControlCall) -> list["_Trial"]:
    """Return the trials for a problem with the inputs and weights of `first`."""
    trials = [_Trial(control.value, _ADVICE[control], control) for control in NegativeControl]
    for path in input_paths(first.inputs):
        name = f"ignores input {_input_name(path)}"
        trials.append(_Trial(name, "let the output depend on every input, or leave this one out", path))
    for name, _ in first.reference.model.named_parameters():
        advice = "draw the weight at random: one that is 0 or 1 everywhere can be left out"
        trials.append(_Trial(f"ignores weight {name}", advice, _Weight(name)))
    return trials


class _Weight(NamedTuple):
    name: str


def _call(
    reference: Reference,
    stale: Reference,
    distribution_mix: DistributionMix,
    profile: Profile,
    *,
    seed: int = _SEED,
    row_sites: Sequence[RowSite] = (),
    changing: bool = True,
) -> JudgedCall | None:
    """Return a call with the distribution `profile`, and new weights if `changing`; the reference has the weights.

    None if the reference rejects the inputs. A reference that rejects other weights keeps the constructed weights.
    """
    changing = changing and bool(reference.weights.names)
    try:
        plan = CallPlan(reference, seed, profile=profile, random_seed=0, row_sites=row_sites)
        other_inputs = reference.draw(seed + _OTHER, profile)
        reference.set_weights(seed + _OTHER if changing else None)
        other_answer = by_path(reference.expected(other_inputs, 0, None).honest)
        reference.set_weights(seed if changing else None)
        expected = reference.expected(plan.inputs, 0, None)
    except ProblemError:
        if profile is Profile.AS_GIVEN:
            raise
        return None
    case = ControlCall(reference, stale, plan.inputs, other_inputs, by_path(expected.honest), other_answer)
    return JudgedCall(plan, case, by_path(expected.exact), distribution_mix)


class _Trial:
    """State of a control, which answers call after call until a call reveals the control."""

    def __init__(self, name: str, advice: str, control: NegativeControl | _Weight | str) -> None:
        self._name = name
        self._advice = advice
        self._control = control
        self._passed: list[Profile] = []
        self._caught: Profile | None = None
        self._wrong_elsewhere = self._passes_kernelbench = self._rounding_shows = self._has_no_effect = False

    @property
    def passes(self) -> bool:
        """Whether the control applies to the problem, and no call has revealed the control."""
        return bool(self._passed) and self._caught is None

    def see_plain(self, call: JudgedCall) -> None:
        """Test a call as in KernelBench: the problem's own inputs and the constructed weights."""
        control_answer = _answer(self._control, call.case)
        if control_answer is not None and call.fits(control_answer):
            self._passes_kernelbench = call.kernelbench_accepts(control_answer)

    def see(self, call: JudgedCall) -> None:
        """Test a further call, unless the control is already revealed or does not apply to the problem."""
        if self._caught is not None:
            return
        control_answer = _answer(self._control, call.case)
        if control_answer is None or not call.fits(control_answer):
            return
        passes = call.accepts(control_answer)
        if not call.used:
            self._wrong_elsewhere |= not passes and call.is_finite
        elif passes:
            self._passed += [call.profile] if call.profile not in self._passed else []
        else:
            self._caught = call.profile

    def look_closely(self, reference: Reference, sites: Sequence[RowSite]) -> None:
        """Test passed answers for the rounding of fewer bits, like timed calls with cancelling rows at `sites`.

        A weight without any effect on the output is left out by no cheat.
        """
        if not self.passes or Profile.AS_GIVEN not in self._passed:
            return
        match self._control:
            case NegativeControl():
                self._rounding_shows = rounding_shows(self._control, reference, sites)
            case _Weight(name=name):
                self._has_no_effect = has_no_effect(reference, reference.draw(_SEED), name)
            case str():
                pass

    def result(self) -> ControlResult | None:
        """Return the result of the control; None if the control does not apply to the problem."""
        if not self._passed and self._caught is None:
            return None
        control = self._control
        honest = self._has_no_effect or (
            self._caught is None
            and not self._wrong_elsewhere
            and isinstance(control, NegativeControl)
            and control in _EQUIVALENT
        )
        return ControlResult(
            control=self._name,
            gets_away=self._caught is None and not self._rounding_shows and not honest,
            passes_on=self._passed,
            caught_on=self._caught,
            caught_by_rounding=self._rounding_shows,
            advice=self._advice,
            passes_kernelbench=self._passes_kernelbench and not honest,
        )


def _answer(control: NegativeControl | _Weight | str, case: ControlCall) -> Answer | None:
    match control:
        case NegativeControl():
            return answer(control, case)
        case _Weight(name=name):
            return without_weight(case, name)
        case str():
            return without_input(case, control)


def _honest_failures(call: JudgedCall) -> list[str]:
    """Return the honest variants that fail a call: a problem with failures says nothing about a kernel."""
    if not call.used:
        return []
    variants: dict[str, Answer] = {"the reference": call.honest}
    for order in (SummationOrder.REVERSED, *ORDERS[call.case.reference.problem.precision]):
        with contextlib.suppress(ProblemError):
            result = call.case.reference.altered(call.case.inputs, 0, None, in_order(order))
            variants[f"another order ({order.value})"] = by_path(result)
    # Small outputs may be off in no element.
    if (few := off_by(call.case.reference.problem, call.honest, 1, ONE_IN, fewest=FEW_ONE_IN)) is not None:
        variants["a step of the format in a few elements"] = few
    return [
        f"{name} on {call.profile.value}"
        for name, values in variants.items()
        if call.fits(values) and not call.accepts(values)
    ]


def _input_name(path: str) -> str:
    """Return an input's name in forward: the number or the keyword.

    >>> _input_name("[0][1]"), _input_name("[1].mask")
    ('1', 'mask')
    """
    inside = path[3:]
    return inside.removeprefix(".") if path.startswith("[1]") else inside[1:].replace("]", "", 1)
