"""Mix of input distributions: the distributions (profiles) of a problem's calls, and their frequencies.

A distribution is used if the reference's outputs are meaningful: finite, in agreement with float64, and different for
different inputs. It is evidence if wrong answers are far beyond the tolerance (`wrong_answers`). The decision is made
once for a problem and a size, and stored in the problem's lock (`evaluator/catalog/stored_locks.py`) or in the cache
folder. Nothing about rounding is decided beforehand.
"""

import hashlib
import itertools
import math
import secrets
from collections.abc import Iterator
from typing import NamedTuple

import torch

from evaluator.cache.measurements import forget, look_up, measured_once
from evaluator.catalog.lock import SizeLock, fits
from evaluator.catalog.stored_locks import stored_lock
from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.compare.tensor_comparison import Comparison, begin
from evaluator.judge.inputs.input_distributions import PROFILES, RULES
from evaluator.judge.reference.accepted_weights import settle_weights
from evaluator.judge.reference.operation_cost import cost_of
from evaluator.judge.reference.reference import Expected, Reference
from evaluator.judge.setup.elementwise import elementwise_outputs
from evaluator.judge.setup.equal_values import changed_by_choice, has_ambiguity
from evaluator.judge.setup.output_changes import newly_nonfinite
from evaluator.judge.setup.product_range import beyond_range, multiplies
from evaluator.judge.setup.row_sites import row_sites_for
from evaluator.judge.setup.wrong_answers import PROOF, distances_of
from evaluator.judge.tensors.call_arguments import Arguments, are_equal
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.pytree import tensors_of
from evaluator.records import Precision, Problem, Profile, RowSite, SizeName, ToleranceRule, ValuesRule, WeightsRule

_ONE_IN = 5
"""A fifth of the timed calls use a distribution other than the problem's own."""
_CHECKS = 5
_AS_GIVEN_CHECKS = 2
LOCK_SEED = 0x5EED
"""Fixed seed of all decisions: a lock is the same on every machine."""
_LONGEST_S = 60.0
"""Time limit for a decision inside a grade, on a nominal machine (`Cost.nominal_s`): counted from operations, for the
usable distributions are a property of the problem. Longer decisions are left to `problems validate`."""
_FORWARDS = 6
"""Approximate number of forwards to try a distribution."""
_SLOW_S = 0.5
"""With a longer nominal time of a forward, the decision uses a smaller size."""
_LARGE_ELEMENTS = 1 << 26
"""Larger tensors also use a smaller size: float64 may not fit twice."""
_LEAST_EVIDENCE = 3
"""Checked calls with wrong answers far beyond the tolerance, if any distribution is evidence."""
_TRIED_ELEMENTS = 1 << 22
"""Limit of elements in a trial. Of a larger tensor, a trial takes the first rows, if rows are independent."""
_TESTS = ((multiplies, beyond_range), (has_ambiguity, changed_by_choice))
_NO_FACTORS = "the reference multiplies no factors, and long sums of equal terms have a bias in any single accumulator"
_TOO_LARGE = "too large to try before a grade: `warpgrade problems validate` does, or give the problem a small size"


class DistributionMix(NamedTuple):
    """Distributions in use beside the problem's own.

    `distances` are the distances of wrong answers by distribution and path (`wrong_answers`). With the distributions in
    `evidence`, wrong answers are far beyond the tolerance. `untried` are distributions not tried because the problem is
    too large. `row_sites` are where rows cancel in calls with the problem's own values. `elementwise` are the paths of
    outputs without sums.
    """

    use: tuple[Profile, ...] = ()
    distances: dict[Profile, dict[str, float]] = {}
    evidence: tuple[Profile, ...] = ()
    untried: tuple[Profile, ...] = ()
    row_sites: tuple[RowSite, ...] = ()
    elementwise: frozenset[str] = frozenset()

    def pick(self, seed: int) -> Profile:
        """Return the distribution of a timed call, determined by the call's seed: no runner knows the seed."""
        number = _number(seed)
        return self.use[number // _ONE_IN % len(self.use)] if self.use and number % _ONE_IN == 0 else Profile.AS_GIVEN

    def seed_for(self, profile: Profile) -> int:
        """Return a random seed with the given `profile`, from the operating system. About 1 of 40 seeds fits."""
        while True:
            seed = secrets.randbits(63)
            if self.pick(seed) is profile:
                return seed

    def decoy(self, seed: int) -> Profile:
        """Return a distribution to draw and discard: drawing then takes equally long for all calls."""
        return self.use[_number(seed) // _ONE_IN % len(self.use)] if self.use else Profile.AS_GIVEN

    def checks(self) -> list[Profile]:
        """Return the distributions of checked calls: as given first, for easy diagnosis, then all; outliers thrice.

        Distributions with evidence occur until enough calls are evidence.
        """
        as_given = [Profile.AS_GIVEN] * (max(_AS_GIVEN_CHECKS, _CHECKS - len(self.use)) - 1)
        rest = [*self.use, *[Profile.OUTLIERS] * (2 * self.use.count(Profile.OUTLIERS)), *as_given]
        missing = _LEAST_EVIDENCE - sum(profile in self.evidence for profile in [Profile.AS_GIVEN, *rest])
        rest += itertools.islice(self.proofs(), max(missing, 0))
        secrets.SystemRandom().shuffle(rest)
        return [Profile.AS_GIVEN, *rest]

    def proofs(self) -> Iterator[Profile]:
        """Yield the distributions that are evidence again and again; none without any.

        A replay and `--values own` may use fewer distributions than the decision.
        """
        yield from itertools.cycle(each for each in self.evidence if each in (Profile.AS_GIVEN, *self.use))


AS_GIVEN_ALONE = DistributionMix()
"""Only the problem's own values: KernelBench's rule goes with KernelBench's inputs."""


def distribution_mix_for(
    reference: Reference,
    size: SizeName,
    rule: ToleranceRule,
    values: ValuesRule = ValuesRule.ALL,
    compare: Comparison = begin,
) -> DistributionMix:
    """Return the stored decision, or decide.

    `compare` compares tensors on the reference's device.
    """
    if rule is ToleranceRule.KERNELBENCH:
        return AS_GIVEN_ALONE
    mix = distribution_mix_of(decided(reference, size, compare=compare))
    # TF32 cut off, as tensor cores do, is off by a third of bf16: size does not separate the two.
    if reference.problem.precision is not Precision.TF32:
        sites = () if values is ValuesRule.OWN else row_sites_for(reference, size)
        mix = mix._replace(row_sites=sites)
    # Logarithms and roots take no random signs, and their textbook forms round near 1 and 0.
    if Profile.SIGNED_NORMAL in mix.use and reference.problem.precision is Precision.FP32:
        mix = mix._replace(elementwise=elementwise_outputs(reference, size))
    return mix._replace(use=(), untried=()) if values is ValuesRule.OWN else mix


def distribution_mix_of(lock: SizeLock) -> DistributionMix:
    """Return the mix of a decision."""
    return DistributionMix(tuple(lock.use), lock.distances, tuple(lock.evidence), _untried(lock))


def _untried(lock: SizeLock) -> tuple[Profile, ...]:
    return tuple(profile for profile, reason in lock.left_out.items() if reason == _TOO_LARGE)


def decided(reference: Reference, size: SizeName, *, thorough: bool = False, compare: Comparison = begin) -> SizeLock:
    """Return the decision from the problem's lock or the cache, else decide; if `thorough`, for a problem of any size.

    The decision is made with fixed weights: the cache serves later grades, and a replayed card names its own weights. A
    decision with untried distributions is not cached; `problems validate` makes and caches a complete decision.

    Raises:
        ProblemError: the lock is broken.
    """
    problem, device = reference.problem, reference.device.type
    if (stored := _stored(problem, size, device)) is not None:
        return stored
    limit_s = math.inf if thorough else _LONGEST_S
    if not reference.state():
        lock = decide(reference, size, limit_s, compare)
    else:
        lock = decide(Reference(problem, size, LOCK_SEED, device), size, limit_s, compare)
        if not lock.use and not _untried(lock):  # A single drawn bias may saturate the output.
            lock = decide(Reference(problem, size, LOCK_SEED + 1, device), size, limit_s, compare)
    return lock if _untried(lock) else measured_once(decision_key(problem, size, device), SizeLock, lambda: lock)


def remember(problem: Problem, size: SizeName, device: str, lock: SizeLock) -> None:
    """Store a decision in the cache, in place of an earlier decision; with untried distributions, store nothing."""
    if not _untried(lock):
        forget(decision_key(problem, size, device), SizeLock)
        measured_once(decision_key(problem, size, device), SizeLock, lambda: lock)


def _stored(problem: Problem, size: SizeName, device: str) -> SizeLock | None:
    lock = stored_lock(problem)
    if lock is not None and fits(lock, problem, RULES) and not {size, SizeName.SMALL}.isdisjoint(lock.sizes):
        # Seldom does a decision depend on the size.
        return lock.sizes.get(size) or lock.sizes[SizeName.SMALL]
    # As in a lock, a decision about the small size serves every device: `problems decide` makes it without a GPU.
    devices = [device, "cpu"] if size is SizeName.SMALL else [device]
    return next(filter(None, (look_up(decision_key(problem, size, device), SizeLock) for device in devices)), None)


def decision_key(problem: Problem, size: SizeName, device: str) -> list[object]:
    """Return all inputs of a decision, as the key of its cache entry."""
    return [problem.sha256, dict(sorted(problem.sizes[size].items())), RULES, torch.__version__, device]


def decide(reference: Reference, size: SizeName, limit_s: float = math.inf, compare: Comparison = begin) -> SizeLock:
    """Try every distribution on the reference. The author's declarations take precedence over observations.

    If the size is too large to try, the small size decides; without a small size, the first rows of a call decide, if
    rows are independent. If all trials would take more than `limit_s` on a nominal machine, or more memory than is
    free, no distribution is used.
    """
    try:
        with out_of_memory():
            try:
                scratch = reference.twin()
            except ProblemError as error:
                return SizeLock([], dict.fromkeys(PROFILES, f"the reference's model cannot be copied: {error}"))
            scratch.float64_must_fit = True  # A cached decision must not depend on memory free at the moment.
            scratch.check_formats()
            instead = None if size is SizeName.SMALL else _decision_for_small_size(scratch, limit_s, compare)
            return instead or _decision_by_trials(scratch, limit_s, compare)
    except MemoryError:
        return SizeLock([], dict.fromkeys(PROFILES, _TOO_LARGE))


def _decision_by_trials(scratch: Reference, limit_s: float, compare: Comparison) -> SizeLock:
    """Return the decision by trials on `scratch`. The trials may change the split of `scratch`."""
    _split_if_large(scratch)
    if _FORWARDS * len(PROFILES) * _forward_s(scratch) > limit_s:
        return SizeLock([], dict.fromkeys(PROFILES, _TOO_LARGE))
    usual = _try_profile(scratch, Profile.AS_GIVEN, None, compare)
    is_special = usual.why_not is not None and _is_usual_with_other_weights(scratch, compare)
    if is_special:
        other = _with_other_weights(scratch, Profile.AS_GIVEN, None, compare)
        usual = usual._replace(distances=other.distances, is_evidence=other.is_evidence)
    usual_inputs = _first_block(scratch, scratch.draw(LOCK_SEED))
    tests = [test for has, test in _TESTS if has(scratch, usual_inputs)]
    has_factors = multiplies(scratch, usual_inputs)
    left_out: dict[Profile, str] = {}
    trials = {Profile.AS_GIVEN: usual}
    for profile in PROFILES:
        declared = scratch.problem.profiles.get(profile)
        if declared is None and profile is Profile.NEAR_ONE and not has_factors:
            declared = _NO_FACTORS
        if isinstance(declared, str):
            left_out[profile] = declared
            continue
        trial = _try_profile(scratch, profile, usual, compare)
        if trial.why_not is not None and not trial.fatal and is_special:
            trial = _with_other_weights(scratch, profile, usual, compare)
        why_not = trial.why_not
        if why_not is None and tests:
            inputs = _first_block(scratch, scratch.draw(LOCK_SEED, profile))
            reasons = (test(scratch, inputs, _gradients(scratch, inputs), compare) for test in tests)
            why_not = next(filter(None, reasons), None)
        if why_not is not None and (declared is not True or trial.fatal):
            left_out[profile] = why_not
        else:
            trials[profile] = trial
    return SizeLock(
        [profile for profile in PROFILES if profile in trials],
        left_out,
        {profile: trial.distances for profile, trial in trials.items()},
        [profile for profile, trial in trials.items() if trial.is_evidence],
    )


def _is_usual_with_other_weights(scratch: Reference, compare: Comparison) -> bool:
    """Return whether the constructed weights alone make the output meaningless for the problem's values.

    For example, the mean of a group norm with weights of 1 and biases of 0 is 0. Calls have other weights.
    """
    if scratch.problem.weights is WeightsRule.FROZEN:
        return False
    settle_weights(scratch, scratch.draw(LOCK_SEED))
    return bool(scratch.weights.names) and _with_other_weights(scratch, Profile.AS_GIVEN, None, compare).why_not is None


def _with_other_weights(
    scratch: Reference, profile: Profile, usual: "_ProfileTrial | None", compare: Comparison
) -> "_ProfileTrial":
    scratch.set_weights(LOCK_SEED)
    try:
        return _try_profile(scratch, profile, usual, compare)
    finally:
        scratch.set_weights(None)


def _decision_for_small_size(reference: Reference, limit_s: float, compare: Comparison) -> SizeLock | None:
    """Return the decision for the small size if this size is too large or too slow, else None."""
    problem = reference.problem
    if SizeName.SMALL not in problem.sizes or not (_is_large(reference) or _forward_s(reference) > _SLOW_S):
        return None
    small = Reference(problem, SizeName.SMALL, LOCK_SEED, reference.device.type)
    return decided(small, SizeName.SMALL, thorough=limit_s == math.inf, compare=compare)


def _is_large(reference: Reference) -> bool:
    """Return whether inputs or outputs are too large to try."""
    inputs = reference.draw(LOCK_SEED)
    if _elements([inputs.args, inputs.kwargs]) > _LARGE_ELEMENTS:
        return True
    return _elements(reference.forward(inputs, 0)) > _LARGE_ELEMENTS


def _split_if_large(reference: Reference) -> None:
    """Cut large inputs into rows if rows are independent. A backward pass takes whole calls."""
    if reference.problem.backward:
        return
    inputs = reference.draw(LOCK_SEED)
    outputs = reference.forward(inputs, 0)
    pieces = -(-max(_elements([inputs.args, inputs.kwargs]), _elements(outputs)) // _TRIED_ELEMENTS)
    if pieces > 1:
        reference.split_rows(inputs, outputs, pieces)


def _forward_s(reference: Reference) -> float:
    """Return the duration of a forward of the tried rows on a nominal machine, in seconds."""
    inputs = _first_block(reference, reference.draw(LOCK_SEED))
    return cost_of(lambda: reference.forward(inputs, 0)).nominal_s(reference.device.type)


def _elements(value: Value) -> int:
    return sum(leaf.numel() for leaf in tensors_of(value))


class _ProfileTrial(NamedTuple):
    """Result of trying a distribution: the reason against use, if any, and the distances of wrong answers.

    With `fatal`, the author cannot overrule the reason.
    """

    expected: Expected | None
    distances: dict[str, float] = {}
    is_evidence: bool = False
    why_not: str | None = None
    fatal: bool = False


def _try_profile(
    reference: Reference, profile: Profile, usual: _ProfileTrial | None, compare: Comparison
) -> _ProfileTrial:
    try:
        inputs = _first_block(reference, reference.draw(LOCK_SEED, profile))
        other_inputs = _first_block(reference, reference.draw(LOCK_SEED + 1, profile))
        gradients = _gradients(reference, inputs)
        expected = reference.expected(inputs, 0, gradients)
        is_fixed = are_equal(inputs, other_inputs) and reference.weights.why_not is None
        other_expected = None if is_fixed else reference.expected(other_inputs, 0, _gradients(reference, other_inputs))
    except ProblemError as refusal:
        return _ProfileTrial(None, why_not=f"the reference refuses it: {refusal.message}"[:200], fatal=True)
    if usual is not None and usual.expected is not None:
        if (path := newly_nonfinite(expected, usual.expected)) is not None:
            return _ProfileTrial(expected, why_not=f"{path} is not finite", fatal=True)
        if usual.expected.in_float64 and not expected.in_float64:
            return _ProfileTrial(expected, why_not="float64 gives something else", fatal=True)
    wrong = distances_of(reference, inputs, gradients, expected, other_expected, compare)
    trial = _ProfileTrial(expected, wrong.distances, bool(wrong.powers) and min(wrong.powers.values()) >= PROOF)
    if not expected.in_float64 and wrong.powers and not any(wrong.powers.values()):
        return trial._replace(why_not="the output is a result of rounding")
    if not wrong.are_told_apart:
        return trial._replace(why_not="the output hardly depends on such inputs")
    return trial


def _gradients(reference: Reference, inputs: Arguments) -> list[torch.Tensor] | None:
    if not reference.problem.backward:
        return None
    return reference.output_gradients(reference.forward(inputs, 0), LOCK_SEED)


def _first_block(reference: Reference, inputs: Arguments) -> Arguments:
    return inputs if reference.problem.backward else reference.blocks(inputs)[0]


def _number(seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(seed.to_bytes(8, "big"), digest_size=8, person=b"profile").digest(), "big")
