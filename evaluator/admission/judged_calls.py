"""Calls of an admission: inputs, expected values, and the comparison of a control's answer, as in a grade."""

import functools

import torch

from evaluator.admission.negative_controls import Answer, ControlCall
from evaluator.judge.answer.call_limits import CallLimits
from evaluator.judge.compare.limits import limit_of, with_flips, with_scales
from evaluator.judge.compare.tensor_comparison import Limit, Sides, begin
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.setup.distribution_mix import DistributionMix
from evaluator.judge.tensors.number_formats import wide
from evaluator.records import Profile, TensorCheck, ToleranceRule


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
