"""Calls of negative controls, judged like the calls of a grade, and the visibility of rounding.

The test finds the rounding in the errors of a single call, or of several calls if an output has few elements
(`reduced_precision`).
"""

import functools
from collections.abc import Callable, Sequence

import torch

from evaluator.admission.negative_controls import IN_FEWER_BITS, Answer, ControlCall, NegativeControl, in_fewer_bits
from evaluator.judge.answer.call_limits import CallLimits
from evaluator.judge.compare.limits import limit_of, with_flips, with_scales
from evaluator.judge.compare.tensor_comparison import Limit, Sides, begin
from evaluator.judge.numerics.error_size import outsized
from evaluator.judge.numerics.reduced_precision import (
    ENOUGH,
    ENOUGH_CALLS,
    coarser_than,
    format_of,
    sampled,
    sampled_slices,
)
from evaluator.judge.numerics.rounded_reference import CallErrors, Errors, ReferenceCall
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import Reference, by_path
from evaluator.judge.setup.distribution_mix import DistributionMix
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.number_formats import wide
from evaluator.records import Profile, RowSite, TensorCheck, ToleranceRule


class JudgedCall:
    """A call of a grade. The reference has the call's weights. `used`: grades use the distribution of the inputs."""

    def __init__(self, plan: CallPlan, case: ControlCall, exact: Answer, distribution_mix: DistributionMix) -> None:
        """Take a call's case, and the expected values in float64."""
        self.case = case
        self.honest = case.exact
        self.profile = plan.profile
        self.used = plan.profile is Profile.AS_GIVEN or plan.profile in distribution_mix.use
        self._plan = plan
        self._exact = exact
        self._limits = CallLimits(plan.reference, distribution_mix, ToleranceRule.MEASURED, plan.profile, {})

    def fits(self, answer: Answer) -> bool:
        """Return whether an answer has the tensors of the expected answer."""
        return all(
            isinstance(answer.get(path), torch.Tensor) and answer[path].shape == value.shape
            for path, value in self.honest.items()
            if isinstance(value, torch.Tensor)
        )

    def accepts(self, answer: Answer) -> bool:
        """Return whether a grade accepts an answer. An answer near the tolerance is compared again, as in a grade."""
        problem = self._plan.reference.problem
        checks = [with_flips(check, problem) for check in self._checks(answer, self._usual_limits)]
        if all(check.ok for check in checks):
            return True
        if not self._limits.measure(self._plan, checks):
            return False
        checks = [with_flips(check, problem) for check in self._checks(answer, self._closer_limits)]
        return all(check.ok or check.path in self._limits.void for check in checks)

    def kernelbench_accepts(self, answer: Answer) -> bool:
        """Return whether KernelBench's rule accepts an answer. The rule uses the plain reference alone."""
        rule, problem = ToleranceRule.KERNELBENCH, self._plan.reference.problem
        limits = {path: limit_of(problem, path, value, rule=rule) for path, value in self.honest.items()}
        return all(check.ok for check in self._checks(answer, limits))

    @property
    def is_finite(self) -> bool:
        """Whether all expected values are finite."""
        tensors = [value for value in self.honest.values() if isinstance(value, torch.Tensor)]
        return all(bool(torch.isfinite(wide(value)).all()) for value in tensors)

    @functools.cached_property
    def _usual_limits(self) -> dict[str, Limit]:
        """Usual limits."""
        return self._current()

    @functools.cached_property
    def _closer_limits(self) -> dict[str, Limit]:
        """Limits with the rounding of the call itself."""
        return self._current()

    def _current(self) -> dict[str, Limit]:
        values = self.honest.items()
        return {path: self._limits.of(path, value) for path, value in values if isinstance(value, torch.Tensor)}

    def _checks(self, answer: Answer, limits: dict[str, Limit]) -> list[TensorCheck]:
        checks = []
        for path, plain in self.honest.items():
            if not isinstance(plain, torch.Tensor):
                continue
            sides = {at: Sides(answer[at], self._exact[at], value) for at, value in self.honest.items()}
            limit = with_scales(limits[path], self._plan.reference.problem, path, sides)
            exact = self._exact[path] if limit is not None else self._exact[path].to(plain.dtype)
            checks.append(begin(path, Sides(answer[path].to(plain.dtype), exact, plain), limit)())
        return checks


_FIRST_SEED = 17
_CALLS = 8


def rounding_shows(control: NegativeControl, reference: Reference, sites: Sequence[RowSite]) -> bool:
    """Return whether a control's errors on the problem's own inputs contain a rounding, or its size at `sites`."""
    return (
        _shows(control, reference, 1, large=True)
        or _shows(control, reference, ENOUGH_CALLS, large=False)
        or _is_outsized(control, reference, sites)
    )


def _is_outsized(control: NegativeControl, reference: Reference, sites: Sequence[RowSite]) -> bool:
    """Return whether a control's errors are too large for fp32 where rows cancel."""
    formats = coarser_than(reference.problem.precision)
    if control not in IN_FEWER_BITS or not sites or not formats:
        return False
    answers = [_errors_where_rows_cancel(control, reference, sites, _FIRST_SEED + number) for number in range(_CALLS)]
    sampled_answers = [answered for answered in answers if answered is not None]
    return bool(sampled_answers) and outsized(sampled_answers, formats[0]) is not None


def _errors_where_rows_cancel(
    control: NegativeControl, reference: Reference, sites: Sequence[RowSite], seed: int
) -> CallErrors | None:
    def plan() -> CallPlan:
        return CallPlan(reference, seed, row_sites=sites, random_seed=0)

    first = plan()

    def sample(path: str, actual: torch.Tensor, exact: torch.Tensor, plain: torch.Tensor) -> Errors | None:
        fitting = [rows for rows in first.slices.get(path, ()) if rows.fit(plain.shape)]
        return sampled_slices(fitting, actual, exact, plain) if path in first.slices else None

    return _errors(control, reference, first.inputs, lambda: plan().inputs, sample)


def _shows(control: NegativeControl, reference: Reference, calls: int, *, large: bool) -> bool:
    if control not in IN_FEWER_BITS:
        return False
    samples: list[CallErrors] = []
    for number in range(calls):
        answered = _sampled_errors(control, reference, _FIRST_SEED + number, large=large)
        if answered is None:
            return False
        samples.append(answered)
    return format_of(samples, coarser_than(reference.problem.precision)) is not None


def _sampled_errors(control: NegativeControl, reference: Reference, seed: int, *, large: bool) -> CallErrors | None:
    """Return sampled errors of a control's answer, of `large` outputs or of the rest; None without samples."""

    def sample(_: str, actual: torch.Tensor, exact: torch.Tensor, plain: torch.Tensor) -> Errors | None:
        return sampled(actual, exact, plain) if (plain.numel() >= ENOUGH) == large else None

    found = _errors(control, reference, reference.draw(seed), lambda: reference.draw(seed), sample)
    return found if found is None or not large else CallErrors(functools.cache(found.again), found.outputs)


_Sample = Callable[[str, torch.Tensor, torch.Tensor, torch.Tensor], Errors | None]
"""Samples the errors of an output: the path, the control's values, the exact ones, and the reference's."""


def _errors(
    control: NegativeControl, reference: Reference, inputs: Arguments, draw: Callable[[], Arguments], sample: _Sample
) -> CallErrors | None:
    """Return the sampled errors of a control's answer to `inputs`, which `draw` makes anew; None without samples."""
    answer = in_fewer_bits(control, reference, inputs)
    if answer is None:
        return None
    expected = reference.expected(inputs, 0, None)
    if not expected.in_float64:
        return None
    honest, exact = by_path(expected.honest), by_path(expected.exact)
    outputs: dict[str, Errors] = {}
    for path, plain in honest.items():
        actual, wide = answer.get(path), exact.get(path)
        if isinstance(actual, torch.Tensor) and isinstance(wide, torch.Tensor) and isinstance(plain, torch.Tensor):
            errors = sample(path, actual, wide, plain)
            outputs |= {} if errors is None else {path: errors}

    def again() -> ReferenceCall:
        return ReferenceCall(reference, draw(), 0, None, in_float64=True)

    return CallErrors(again, outputs) if outputs else None
