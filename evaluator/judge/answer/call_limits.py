"""Limits of a call's outputs: the usual tolerance, or a wider tolerance for the call's own rounding.

For the problem's own values, no tolerance is wide enough to let everything pass. For other distributions, the tolerance
follows the rounding, and a wide tolerance makes the call no evidence (`TensorCheck.power`). Where other orders of
summation change an output altogether, the output of the call is void: a void output neither refutes nor proves an
answer. A few integers, booleans or steps that rounding may have moved make a grade inconclusive.
"""

import contextlib
import math
from collections.abc import Sequence

import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.findings import Code, finding
from evaluator.findings.comparing import DECLARE_FLIPS
from evaluator.judge.compare.fill_values import fill_from
from evaluator.judge.compare.limits import limit_of
from evaluator.judge.compare.tensor_comparison import Comparison, Limit, begin
from evaluator.judge.compare.tolerance import Bounds, without_sums
from evaluator.judge.numerics.rounding_of_call import are_few, may_be_rounding, results_in_call, rounding_of_call
from evaluator.judge.numerics.summation_orders import decides, largest_error, rounds
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.distribution_mix import DistributionMix
from evaluator.judge.tensors.number_formats import wide
from evaluator.records import Finding, Profile, TensorCheck, ToleranceRule

_LARGEST = 1 / 16
"""Least rounding, relative to an element and the element's row, that leaves nothing of an output."""


class CallLimits:
    """Limits of the outputs of a call. The reference has the call's weights."""

    def __init__(
        self,
        reference: Reference,
        distribution_mix: DistributionMix,
        rule: ToleranceRule,
        profile: Profile,
        fills: dict[str, float],
    ) -> None:
        """Take the inputs' distribution. `fills` are sizes of fill values by path, from the first call of a grade."""
        self._reference = reference
        self._rule = rule
        self._profile = profile
        self._fills = fills
        self._elementwise = distribution_mix.elementwise if profile is Profile.AS_GIVEN else frozenset()
        self._of_call: dict[str, float] = {}
        self.void: set[str] = set()
        """Paths of outputs that rounding decides in this call: with the problem's own values, as a whole."""
        self.stepped: set[str] = set()
        """Paths of outputs with the problem's own values of which other orders move elements beyond any tolerance."""

    def of(self, path: str, honest: torch.Tensor) -> Limit:
        """Return the limit of an output; None for integers and booleans."""
        problem, rounding = self._reference.problem, self._of_call.get(path, 0.0)
        limit = limit_of(problem, path, honest, rounding, self._rule)
        if not isinstance(limit, Bounds) or self._rule is not ToleranceRule.MEASURED:
            return limit
        if path in self._elementwise:
            limit = without_sums(limit, problem, honest.dtype, rounding)
        if path not in self._fills:
            self._fills[path] = fill_from(honest)
        return limit._replace(fill=self._fills[path])

    def measure(
        self,
        plan: CallPlan,
        checks: Sequence[TensorCheck],
        *,
        in_float64: bool = True,
        compare: Comparison = begin,
    ) -> bool:
        """Measure the rounding of a call with wrong `checks`, and return whether an output may have another limit.

        With the problem's own values, many far errors are no rounding. But an output may be a result of rounding: then
        float64 disagrees with the plain reference, and the expected values are not `in_float64`.
        """
        is_own = self._profile is Profile.AS_GIVEN
        if self._rule is not ToleranceRule.MEASURED:
            return False
        if is_own and not in_float64:
            self.void |= results_in_call(plan)
        if not is_own:
            self.void |= self._newly_nonfinite(plan)
        if is_own and not may_be_rounding(check for check in checks if check.path not in self.void):
            return bool(self.void)
        for path, rounding in rounding_of_call(plan, compare).items():
            limit = limit_of(self._reference.problem, path, self._value(plan, path), rule=self._rule)
            if path in self.void:
                continue
            if is_own and isinstance(limit, Bounds):
                self._of_call[path] = min(rounding, largest_error(limit))
                self.stepped |= {path} if decides(rounding, limit) else set()
            elif rounding < _LARGEST:
                self._of_call[path] = rounding
            else:
                (self.stepped if is_own else self.void).add(path)
        return any(self._of_call.values()) or bool(self.void)

    def _newly_nonfinite(self, plan: CallPlan) -> set[str]:
        """Return the outputs with infinities or NaN in this call's first block, and not with the problem's own values.

        Sums of large values overflow in half precision at some sizes alone. A lack of memory excuses no answer.
        """
        with contextlib.suppress(MemoryError), out_of_memory():
            own = self._reference.values(next(CallPlan(self._reference, plan.seed).honest()).result)
            now = self._reference.values(next(plan.honest()).result)
            return {path for path, value in now.items() if not _is_finite(value) and _is_finite(own.get(path))}
        return set()

    def few_at_steps(self, plan: CallPlan, checks: Sequence[TensorCheck]) -> Finding | None:
        """Return the finding that rounding may decide all wrong elements of a call, which are few; else None.

        Floating-point elements count where other orders moved the reference (`stepped`). Integers and booleans count
        where the reference rounds at all: an order that moves one of a thousand integers is rarely among a few draws.
        """
        wrong = {check.path: check for check in checks if not check.ok}
        if not wrong or self._rule is not ToleranceRule.MEASURED or not all(map(are_few, wrong.values())):
            return None
        limits = {path: limit_of(self._reference.problem, path, self._value(plan, path)) for path in wrong}
        may_step = False
        # Neither an operation without support for the mode nor a submission that holds free memory decides.
        with contextlib.suppress(ProblemError, MemoryError), out_of_memory():
            may_step = all(
                path in self.stepped or (limit is None and rounds(self._reference, plan.blocks[0]))
                for path, limit in limits.items()
            )
        if not may_step:
            return None
        path, check = next(iter(wrong.items()))
        message = (
            f"{path}: {check.mismatches} of {math.prod(check.shape)} values differ, and may be on the other side of a "
            "step: rounding decides so few"
        )
        return finding(Code.ROUNDING_DECIDES, message, next_step=DECLARE_FLIPS, path=path)

    def _value(self, plan: CallPlan, path: str) -> object:
        return self._reference.values(next(plan.honest()).result).get(path)


def _is_finite(value: object) -> bool:
    """Return whether a floating-point tensor has finite values alone; true of other values."""
    return not isinstance(value, torch.Tensor) or bool(torch.isfinite(wide(value)).all())
