"""Whether a problem is worth grading against: does it tell the bad submissions of `controls` from good ones?

Every control answers the calls of a grade, as given and on every profile in use, under the problem's own tolerance. It
gets away where no call shows it. Those that compute in fewer bits are looked at closely too, as a submission is that is
timed. Honest variants, which sum in other orders, must pass them all.
"""

import contextlib
from typing import NamedTuple

import torch

from evaluator.admission.negative_controls import (
    Answer,
    Case,
    NegativeControl,
    answer,
    input_paths,
    without_input,
    without_weight,
)
from evaluator.admission.rounding_visibility import rounding_shows
from evaluator.errors import ProblemError
from evaluator.judge.compare.tensor_comparison import Sides, begin
from evaluator.judge.compare.tolerance import Bounds, Rounding, bounds
from evaluator.judge.numerics.arithmetic_modes import Order, in_order
from evaluator.judge.reference.reference import Reference, by_path
from evaluator.judge.setup.distribution_mix import DistributionMix, decided, distribution_mix_of
from evaluator.records import Admission, ControlResult, Problem, Profile, SizeName, ToleranceRule

_WEIGHT_SEED = 0x5EED
_SEED = 11
_OTHER_SEED = 13

_ADVICE = {
    NegativeControl.IDENTITY: "draw inputs that the operation changes: negative ones, large ones",
    NegativeControl.ZEROS: "scale the inputs or weights so that the output is not small beside its tolerance",
    NegativeControl.ONES: "scale the inputs so that the output differs from 1",
    NegativeControl.MEAN: "let the output vary: a softmax or a norm over many equal values is flat",
    NegativeControl.SHUFFLED: "let the output vary from element to element",
    NegativeControl.HALF: "let the output differ from zero everywhere",
    NegativeControl.TAIL: "let the output differ from zero everywhere",
    NegativeControl.CACHED: "let the output depend on the inputs: weights and scales decide how much of them is left",
    NegativeControl.STALE_WEIGHTS: "let the output depend on the weights: draw them larger",
    NegativeControl.POSITIVE: "draw inputs of both signs (torch.randn)",
    NegativeControl.MAGNITUDES: "draw inputs of both signs (torch.randn)",
    NegativeControl.HALF_INPUT: "let every input matter: a sum over many equal values hides half of them",
    NegativeControl.TF32: "draw inputs of both signs, so that sums cancel and rounding shows",
    NegativeControl.BF16: "draw inputs of both signs, so that sums cancel and rounding shows",
    NegativeControl.FP16: "draw inputs of both signs, so that sums cancel and rounding shows",
}
_EQUIVALENT = frozenset(
    {NegativeControl.POSITIVE, NegativeControl.MAGNITUDES, NegativeControl.HALF_INPUT, NegativeControl.TF32}
)
"""What is right wherever the reference is meaningful is no cheat: the square of |x| is that of x."""


class _Call(NamedTuple):
    """A case with the profile of its inputs and the bounds of its outputs; `used`: grades have such calls."""

    case: Case
    honest: Answer
    wide: Answer
    profile: Profile
    used: bool
    limits: dict[str, Bounds | None]


def admit(problem: Problem, size: SizeName, device: str = "cpu") -> Admission:
    """Run every control against the problem at one size.

    Raises:
        ProblemError: the problem's own code fails, or its lock is broken.
    """
    reference = Reference(problem, size, _WEIGHT_SEED, device)
    locked = decided(reference, size, thorough=True)
    distribution_mix = distribution_mix_of(locked)
    stale = Reference(problem, size, _WEIGHT_SEED + 1, device)
    # What grades have first: most controls are caught on the problem's own values.
    order = sorted(Profile, key=lambda profile: not _is_used(profile, distribution_mix))
    trials: list[_Trial] = []
    failures: list[str] = []
    # One call at a time: at full size no GPU holds those of all profiles.
    for profile in order:
        call = _call(reference, stale, profile, distribution_mix)
        if call is None:
            continue
        trials = trials or _trials(call.case)
        for trial in trials:
            trial.see(call)
        failures += _honest_failures(call)
        del call  # Before the next one is made.
    for trial in trials:
        trial.look_closely(reference)
    return Admission(
        problem=problem.name,
        size=size,
        profiles=list(distribution_mix.use),
        left_out=locked.left_out,
        controls=[result for trial in trials if (result := trial.result()) is not None],
        honest_failures=list(dict.fromkeys(failures)),
    )


def _is_used(profile: Profile, distribution_mix: DistributionMix) -> bool:
    return profile is Profile.AS_GIVEN or profile in distribution_mix.use


def _trials(first: Case) -> list["_Trial"]:
    """List what is tried on a problem, whose inputs and weights `first` has."""
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


def _call(reference: Reference, stale: Reference, profile: Profile, distribution_mix: DistributionMix) -> _Call | None:
    """Make a call of a profile; None where the reference refuses it."""
    try:
        inputs, others = (reference.draw(seed, profile) for seed in (_SEED, _OTHER_SEED))
        expected = reference.expected(inputs, 0, None)
        honest, wide = by_path(expected.honest), by_path(expected.exact)
        case = Case(reference, stale, inputs, others, honest, by_path(reference.expected(others, 0, None).honest))
    except ProblemError:
        if profile is Profile.AS_GIVEN:
            raise
        return None
    limits = {
        path: _limit(reference.problem, value, distribution_mix.rounding_of(profile, path))
        for path, value in honest.items()
    }
    return _Call(case, honest, wide, profile, _is_used(profile, distribution_mix), limits)


def _limit(
    problem: Problem, value: object, rounding: Rounding, rule: ToleranceRule = ToleranceRule.MEASURED
) -> Bounds | None:
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return None
    real = torch.empty(0, dtype=value.dtype).real.dtype if value.is_complex() else value.dtype
    return bounds(rule, problem, real, rounding)


class _Trial:
    """What one control has come to so far: it answers call after call, until one shows it."""

    def __init__(self, name: str, advice: str, what: NegativeControl | _Weight | str) -> None:
        self._name = name
        self._advice = advice
        self._what = what
        self._passed: list[Profile] = []
        self._caught: Profile | None = None
        self._wrong_elsewhere = self._passes_kernelbench = self._rounding_shows = False

    def see(self, call: _Call) -> None:
        """Let it answer one more call, unless it is caught already or makes no sense for the problem."""
        if self._caught is not None:
            return
        found = _answer(self._what, call.case)
        if found is None or not _comparable(found, call.honest):
            return
        if call.profile is Profile.AS_GIVEN:
            self._passes_kernelbench = _passes_kernelbench(found, call)
        passes = _passes(found, call, call.limits)
        if not call.used:
            self._wrong_elsewhere |= not passes and _all_finite(call.honest)
        elif passes:
            self._passed.append(call.profile)
        else:
            self._caught = call.profile

    def look_closely(self, reference: Reference) -> None:
        """Look for the rounding of fewer bits in the errors of answers that passed, as it is done with timed calls."""
        passed = self._caught is None and Profile.AS_GIVEN in self._passed
        self._rounding_shows = (
            passed and isinstance(self._what, NegativeControl) and rounding_shows(self._what, reference)
        )

    def result(self) -> ControlResult | None:
        """Say what came of it; None where it makes no sense for the problem."""
        if not self._passed and self._caught is None:
            return None
        what = self._what
        honest = (
            self._caught is None
            and not self._wrong_elsewhere
            and isinstance(what, NegativeControl)
            and what in _EQUIVALENT
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


def _passes_kernelbench(found: Answer, call: _Call) -> bool:
    """Say whether an answer passes KernelBench's own rule, which knows the plain reference alone."""
    rule, problem = ToleranceRule.KERNELBENCH, call.case.reference.problem
    return _passes(found, call, {path: _limit(problem, value, Rounding(), rule) for path, value in call.honest.items()})


def _answer(what: NegativeControl | _Weight | str, case: Case) -> Answer | None:
    match what:
        case NegativeControl():
            return answer(what, case)
        case _Weight(name=name):
            return without_weight(case, name)
        case str():
            return without_input(case, what)


def _comparable(found: Answer, honest: Answer) -> bool:
    tensors = [path for path, value in honest.items() if isinstance(value, torch.Tensor)]
    return all(
        isinstance(found.get(path), torch.Tensor) and found[path].shape == honest[path].shape for path in tensors
    )


def _passes(found: Answer, call: _Call, limits: dict[str, Bounds | None]) -> bool:
    """Hold an answer against what the call should give."""
    for path, plain in call.honest.items():
        if not isinstance(plain, torch.Tensor):
            continue
        limit = limits[path]
        exact = call.wide[path] if limit is not None else call.wide[path].to(plain.dtype)
        if not begin(path, Sides(found[path].to(plain.dtype), exact, plain), limit)().ok:
            return False
    return True


def _all_finite(honest: Answer) -> bool:
    found = [value for value in honest.values() if isinstance(value, torch.Tensor)]
    return all(bool(torch.isfinite(value).all()) for value in found)


def _honest_failures(call: _Call) -> list[str]:
    """Say which honest variants do not pass a call: a problem that fails them says nothing about a kernel."""
    if not call.used:
        return []
    found: dict[str, Answer] = {"the reference": call.honest}
    for order in Order:
        with contextlib.suppress(ProblemError):
            result = call.case.reference.altered(call.case.inputs, 0, None, in_order(order))
            found[f"another order ({order.value})"] = by_path(result)
    return [
        f"{name} on {call.profile.value}"
        for name, values in found.items()
        if _comparable(values, call.honest) and not _passes(values, call, call.limits)
    ]


def _input_name(path: str) -> str:
    """Name an input as forward has it: by its number, or by its keyword.

    >>> _input_name("[0][1]"), _input_name("[1].mask")
    ('1', 'mask')
    """
    inside = path[3:]
    return inside.removeprefix(".") if path.startswith("[1]") else inside[1:].replace("]", "", 1)
