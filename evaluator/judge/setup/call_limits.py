"""Limits of a call's outputs: the tolerance, with the rounding measured beforehand, or of the call itself.

The rounding of a problem is measured with the constructed weights (`distribution_mix`), possibly a special case: the
mean of a group norm with weights of 1 and biases of 0 is 0, and rounding alone decides the output. With other weights
the mean is far from 0, and any answer would be within the rounding of the constructed weights. A rounding of this kind
does not hold for other weights, and proves no answer right for the constructed weights. Where all calls have the
constructed weights, such an output makes the verdict inconclusive (C426).

Other outputs are results of rounding under any weights, as the gradient of a bias before a batch norm is. Any answer of
their size is right, if another output proves the computation.
"""

from collections.abc import Collection, Sequence

import torch

from evaluator.judge.compare.limits import limit_of
from evaluator.judge.compare.tensor_comparison import Limit
from evaluator.judge.compare.tolerance import Bounds, Rounding, without_sums
from evaluator.judge.numerics.rounding_of_call import may_be_rounding, rounding_of_call
from evaluator.judge.numerics.summation_orders import decides, larger
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE, DistributionMix
from evaluator.records import Profile, TensorCheck, ToleranceRule

_PROVES_NOTHING = 0.25
"""A tolerance for rounding above this part of a row's root mean square proves no answer right: half the output passes
at 0.5, zeros at 1. The tolerance of half precision, the widest without rounding, is 1/16."""


class CallLimits:
    """Limits of the outputs of one call, whose weights the reference wears; calls may have `changing` weights."""

    def __init__(
        self,
        reference: Reference,
        distribution_mix: DistributionMix,
        rule: ToleranceRule,
        profile: Profile,
        cancelling: Collection[str],
        *,
        changing: bool,
    ) -> None:
        """Take the inputs' distribution, and the paths of the outputs with `cancelling` rows."""
        self._reference = reference
        self._distribution_mix = distribution_mix
        self._rule = rule
        self._profile = profile
        self._cancelling = cancelling
        self._changing = changing
        self._elementwise = distribution_mix.elementwise if profile is Profile.AS_GIVEN else frozenset()
        self.of_call: dict[str, Rounding] = {}
        """Measured rounding of the call, by path; empty before `measure`."""
        self._without_stored: set[str] = set()
        self._with_steps: set[str] = set()
        self.prove_nothing: set[str] = set()
        """Paths of outputs whose limit is so wide that an answer within the limit proves no computation."""

    def of(self, path: str, honest: torch.Tensor) -> Limit:
        """Return the limit of an output; None for integers and booleans."""
        problem = self._reference.problem
        known = self._distribution_mix.rounding_of(self._profile, path, cancelling=path in self._cancelling)
        usual = limit_of(problem, path, honest, rule=self._rule)
        if self._changing and isinstance(usual, Bounds) and decides(known.usual, usual):
            known = Rounding()
            self._without_stored.add(path)
        rounding = larger(known, self.of_call.get(path, known))
        limit = limit_of(problem, path, honest, rounding, self._rule)
        if path in self._elementwise and isinstance(limit, Bounds):
            limit = without_sums(limit, problem, honest.dtype, rounding)
        if isinstance(limit, Bounds) and limit.rare > 0:
            self._with_steps.add(path)
        if isinstance(usual, Bounds) and isinstance(limit, Bounds) and limit.floor > max(usual.floor, _PROVES_NOTHING):
            self.prove_nothing.add(path)
        return limit

    def measure(self, plan: CallPlan, checks: Sequence[TensorCheck]) -> bool:
        """Measure the rounding of a call with wrong `checks`, and return whether an output may have another limit.

        Far errors are no rounding, except in outputs with steps, and where the stored rounding does not hold. A call
        that is repeated with the constructed weights, to find the cause of wrong values, has no other rounding.
        """
        near = may_be_rounding(checks)
        far = self._without_stored | self._with_steps
        if self._rule is ToleranceRule.KERNELBENCH or not (near or far):
            return False
        if self._without_stored and self._reference.worn is None:
            return False
        if not self.of_call:
            measured = rounding_of_call(plan)
            self.of_call = {path: each for path, each in measured.items() if near or path in far}
        return bool(self.of_call)


def results_of_rounding(plan: CallPlan, rule: ToleranceRule) -> set[str]:
    """Return the paths of outputs that are results of rounding in a call, with the weights that the reference wears."""
    limits = CallLimits(plan.reference, AS_GIVEN_ALONE, rule, plan.profile, (), changing=False)
    limits.measure(plan, ())
    for path, value in plan.reference.values(next(plan.honest()).result).items():
        limits.of(path, value)
    return limits.prove_nothing
