"""Proofs of a runner's outputs: whether a wrong answer would have failed."""

import math
from collections import Counter
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.judge.answer.output_checks import follows
from evaluator.judge.compare.limits import limit_of
from evaluator.judge.compare.tensor_comparison import Limit, Sides
from evaluator.judge.compare.tolerance import Bounds
from evaluator.judge.numerics.rounding_of_call import results_in_call
from evaluator.judge.reference.author_check import refusal, refuses_wrong_answers
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.distribution_mix import DistributionMix
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.setup.wrong_answers import PROOF, means_distance, power_of
from evaluator.judge.tensors.output_views import OutputViews
from evaluator.records import Check, CheckRule, Profile, TensorCheck

OWN_CHECK = "check(inputs, outputs)"
"""Stands for all outputs where the problem's own check decides."""

_ENOUGH_PROOFS = 2
"""Calls with power that prove an output: one may have been answered by chance."""


class _OutputFacts(NamedTuple):
    """Facts of a right output, read from its values, from which the power of the call follows.

    `distance`: of answers made of means. `limit`: the tolerance without the call's rounding. `has_bits`: the output has
    the bits of the reference's output, where equal bits are a proof.
    """

    distance: float
    limit: Limit
    has_bits: bool


class Evidence:
    """Proofs of a runner's outputs over its checked calls.

    A call proves an output if surely wrong answers are far beyond the tolerance (`TensorCheck.power`).
    """

    def __init__(
        self, reference: Reference, distribution_mix: DistributionMix, *, counts: bool = True, unquoted: bool
    ) -> None:
        """Begin without calls. By KernelBench's rule, power never `counts`.

        `unquoted`: no speedup is quoted, and the plain reference's bits are a proof too.
        """
        self.unquoted = unquoted
        self.powers: dict[str, float] = {}
        """The largest power by path."""
        self._reference = reference
        self._distribution_mix = distribution_mix
        self._counts = counts
        self._means: dict[str, float] = {}
        self._facts: dict[str, _OutputFacts] = {}
        self._rounding: dict[Profile, set[str]] = {}
        self._proofs: Counter[str] = Counter()
        self._other_bits: set[str] = set()

    def see(self, path: str, sides: Sides, limit: Limit) -> None:
        """Measure the distance of answers made of an output's means, from the first block of a call."""
        usual = limit_of(self._reference.problem, path, sides.honest) if self._needs_power(path) else None
        if isinstance(usual, Bounds) and isinstance(limit, Bounds):
            self._means[path] = means_distance(sides.exact, usual._replace(fill=limit.fill))

    def look(
        self, plan: CallPlan, checks: list[TensorCheck], snapshots: list[OutputViews], *, in_float64: bool
    ) -> None:
        """Look at a call with right comparisons, for `measured`.

        The problem's own check, where it decides instead, proves an answer if it refuses surely wrong ones.
        """
        self._facts = {}
        if self._counts and self._reference.problem.check is CheckRule.INSTEAD:
            self._note_check(plan)
            return
        paths = {check.path for check in checks if self._needs_power(check.path)}
        rounding = self._results_of_rounding(plan) if paths and not in_float64 else set()
        for view in snapshots:
            if view.path in paths:
                limit = limit_of(self._reference.problem, view.path, view.tensor)
                distance = 0.0 if view.path in rounding else self._means.get(view.path, math.inf)
                has_bits = self.unquoted and follows(plan.honest(), view, self._reference.values)
                self._facts[view.path] = _OutputFacts(distance, limit, has_bits)

    def measured(self, check: Check) -> Check:
        """Return the call last looked at, if right, with the powers: distances of wrong answers from the tolerance.

        A distance may need a draw of inputs, so the call's own are no longer in memory.
        """
        facts, self._facts = self._facts, {}
        if not check.ok or not facts:
            return check
        tensors = [self._measured(check.profile, tensor, facts.get(tensor.path)) for tensor in check.tensors]
        return replace(check, tensors=tensors)

    def _measured(self, profile: Profile, check: TensorCheck, facts: _OutputFacts | None) -> TensorCheck:
        if facts is None:
            return check
        distance, limit, has_bits = facts
        known = self._distribution_mix.distance(profile, check.path) if distance else None
        distance = distance if known is None else min(distance, known)
        power = power_of(distance, check.tolerance or 0.0, limit.floor) if isinstance(limit, Bounds) else distance
        if check.power is None and math.isfinite(power):
            check = replace(check, power=power)
        self.note(check, has_bits_of_reference=has_bits)
        return check

    def _note_check(self, plan: CallPlan) -> None:
        if not self._needs_power(OWN_CHECK):
            return
        inputs = self._reference.draw(fresh_seed(), plan.profile)
        other = self._reference.honest(inputs, 0, None).result.outputs
        right = self._reference.honest(plan.inputs, plan.random_seed, None).result.outputs
        accepts = refusal(self._reference, plan.inputs, right) is None
        proves = accepts and refuses_wrong_answers(self._reference, plan.inputs, right, other)
        self.powers[OWN_CHECK] = max(self.powers.get(OWN_CHECK, 0.0), math.inf if proves else 0.0)
        self._proofs[OWN_CHECK] += proves
        self._other_bits.add(OWN_CHECK)

    def note(self, check: TensorCheck, *, has_bits_of_reference: bool) -> None:
        """Note a right comparison. A missing power, of a problem too large to try, counts as a proof."""
        power = math.inf if check.power is None else check.power
        self.powers[check.path] = max(self.powers.get(check.path, 0.0), power)
        self._proofs[check.path] += power >= PROOF
        if not has_bits_of_reference:
            self._other_bits.add(check.path)

    def has_proofs(self, path: str) -> bool:
        """Return whether enough calls prove an output: the power of further calls cannot change the verdict."""
        return self._proofs[path] >= _ENOUGH_PROOFS

    @property
    def unproven(self) -> list[str]:
        """Paths of outputs for which a wrong answer would have passed all calls, or nearly."""
        return [path for path in self.powers if not self._is_proven(path)]

    @property
    def proves_any(self) -> bool:
        """Whether an output is proven right."""
        return any(map(self._is_proven, self.powers))

    def _is_proven(self, path: str) -> bool:
        return self.has_proofs(path) or path not in self._other_bits

    def _needs_power(self, path: str) -> bool:
        """Return whether the power of a call counts for an output."""
        return self._counts and not self.has_proofs(path)

    def _results_of_rounding(self, plan: CallPlan) -> set[str]:
        """Return the paths of outputs that are results of rounding with the constructed weights.

        Other weights were tried before (`DistributionTrials.distance`).
        """
        if self._reference.weights_seed is not None:
            return set()
        if plan.profile not in self._rounding:
            self._rounding[plan.profile] = results_in_call(plan)
        return self._rounding[plan.profile]
