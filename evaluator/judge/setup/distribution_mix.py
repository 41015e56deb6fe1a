"""Which value profiles a problem's calls have, and how they are mixed.

A profile is used where the reference is worth something on it: it gives finite numbers, float64 agrees with them,
other orders of summation do too (else rounding alone would decide), and other inputs give other outputs. That is
decided once for a problem and a size: beside the problem in `profiles.lock.toml`, or in the cache folder.
"""

import hashlib
import math
import secrets
from pathlib import Path
from typing import NamedTuple

import torch

from evaluator.cache.measurements import look_up, measured_once
from evaluator.catalog.lock import LOCK_FILE, SizeLock, fits, read_lock
from evaluator.catalog.origin import Origin
from evaluator.errors import ProblemError
from evaluator.judge.compare.tensor_comparison import Sides, begin
from evaluator.judge.compare.tolerance import Bounds, Rounding
from evaluator.judge.inputs.input_distributions import PROFILES, RULES
from evaluator.judge.numerics.arithmetic_modes import Order
from evaluator.judge.numerics.summation_orders import decides, error_of, larger, limits_of, other_orders
from evaluator.judge.reference.operation_cost import cost_of
from evaluator.judge.reference.reference import Expected, Reference, by_path
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.pytree import Value, tensors
from evaluator.records import Problem, Profile, SizeName, ToleranceRule

_ONE_IN = 5
"""Of so many timed calls, one has other values than the problem's own."""
_CHECKS = 5
_AS_GIVEN_CHECKS = 2
LOCK_SEED = 0x5EED
"""Decisions are made with fixed seeds: a lock comes out the same wherever it is made."""
_LONGEST_S = 60.0
"""How long a grade may wait for a decision on a nominal machine (`Cost.nominal_s`). Beyond it `problems validate`
decides. Counted, not timed: how many kinds of values a call may have is a fact of the problem."""
_FORWARDS = 20
"""How many forwards a profile takes, about."""
_SLOW_S = 0.5
"""A forward is run some sixty times. Where its nominal time is longer than this, a smaller size has to do."""
_LARGE_ELEMENTS = 1 << 26
"""So do sixty comparisons; and float64 at its full size may not fit twice."""
_TOO_LARGE = "too large to try before a grade: `warpgrade problems validate` does, or give the problem a small size"
_CHANGED_PART = 0.01
_FAR = 0.1


class DistributionMix(NamedTuple):
    """The profiles in use beside the problem's own values, and for each what rounding alone does to outputs.

    `untried` are those left untried because the problem is too large.
    """

    use: tuple[Profile, ...] = ()
    rounding: dict[Profile, dict[str, float]] = {}
    rare: dict[Profile, dict[str, float]] = {}
    untried: tuple[Profile, ...] = ()

    def pick(self, seed: int) -> Profile:
        """Say which profile a timed call has. It follows from the call's seed, which no runner knows."""
        number = _number(seed)
        return self.use[number // _ONE_IN % len(self.use)] if self.use and number % _ONE_IN == 0 else Profile.AS_GIVEN

    def seed_for(self, profile: Profile) -> int:
        """Draw a seed from the operating system that has `profile`: one of some forty has the one that is meant."""
        while True:
            seed = secrets.randbits(63)
            if self.pick(seed) is profile:
                return seed

    def decoy(self, seed: int) -> Profile:
        """Name a profile to be drawn and thrown away, so that drawing takes as long whatever a call has."""
        return self.use[_number(seed) // _ONE_IN % len(self.use)] if self.use else Profile.AS_GIVEN

    def checks(self) -> list[Profile]:
        """Order the checked calls: as given first, for what fails there is easiest to follow, then all in any order."""
        given = max(_AS_GIVEN_CHECKS, _CHECKS - len(self.use))
        rest = [*self.use, *[Profile.AS_GIVEN] * (given - 1)]
        secrets.SystemRandom().shuffle(rest)
        return [Profile.AS_GIVEN, *rest]

    def rounding_of(self, profile: Profile, path: str) -> Rounding:
        """Give the errors of other orders; 0 where they are little."""
        usual, rare = (known.get(profile, {}).get(path, 0.0) for known in (self.rounding, self.rare))
        return Rounding(usual, rare)


AS_GIVEN_ALONE = DistributionMix()
"""No other values: KernelBench's rule goes with KernelBench's inputs."""


def distribution_mix_for(reference: Reference, size: SizeName, rule: ToleranceRule) -> DistributionMix:
    """Look up what was decided, or decide."""
    if rule is ToleranceRule.KERNELBENCH:
        return AS_GIVEN_ALONE
    return distribution_mix_of(decided(reference, size))


def distribution_mix_of(lock: SizeLock) -> DistributionMix:
    """Mix the calls of a grade as was decided."""
    return DistributionMix(tuple(lock.use), lock.rounding, lock.rare, _untried(lock))


def _untried(lock: SizeLock) -> tuple[Profile, ...]:
    return tuple(profile for profile, why in lock.left_out.items() if why == _TOO_LARGE)


def decided(reference: Reference, size: SizeName, *, thorough: bool = False) -> SizeLock:
    """Return the decision of the problem's own lock, or of the cache, or make it; a `thorough` one at any size.

    One that leaves values untried is not kept: `problems validate` makes the whole one, which is.

    Raises:
        ProblemError: the lock is broken.
    """
    problem, device = reference.problem, reference.device.type
    if (known := _known(problem, size, device)) is not None:
        return known
    made = decide(reference, size, math.inf if thorough else _LONGEST_S)
    return made if _untried(made) else measured_once(_parts(problem, size, device), SizeLock, lambda: made)


def _known(problem: Problem, size: SizeName, device: str) -> SizeLock | None:
    lock = read_lock(Path(problem.path) / LOCK_FILE, shipped=problem.origin == Origin.WARPGRADE)
    if lock is not None and fits(lock, problem, RULES) and size in lock.sizes:
        return lock.sizes[size]
    return look_up(_parts(problem, size, device), SizeLock)


def _parts(problem: Problem, size: SizeName, device: str) -> list[object]:
    """Name all that a decision depends on."""
    return [problem.sha256, dict(sorted(problem.sizes[size].items())), RULES, torch.__version__, device]


def decide(reference: Reference, size: SizeName, limit_s: float = math.inf) -> SizeLock:
    """Try every profile on the reference. What an author says of one goes before what is seen.

    Where this size is too much for that, the small one has to do. Where trying all profiles would take more than
    `limit_s` on a nominal machine, none is tried.
    """
    try:
        scratch = reference.twin()
    except Exception as error:  # noqa: BLE001 - a model that cannot be copied, for whatever reason of its own
        return SizeLock([], dict.fromkeys(PROFILES, f"the reference's model cannot be copied: {error}"))
    if size is not SizeName.SMALL and (instead := _of_the_small_size(scratch, limit_s)) is not None:
        return instead
    if _FORWARDS * len(PROFILES) * _forward_s(scratch) > limit_s:
        return SizeLock([], dict.fromkeys(PROFILES, _TOO_LARGE))
    given = _seen(scratch, Profile.AS_GIVEN, None)
    use: list[Profile] = []
    left_out: dict[Profile, str] = {}
    seen_on = {Profile.AS_GIVEN: given}
    for profile in PROFILES:
        said = reference.problem.profiles.get(profile)
        if isinstance(said, str):
            left_out[profile] = said
            continue
        seen = _seen(scratch, profile, given)
        if seen.why_not is not None and (said is not True or seen.fatal):
            left_out[profile] = seen.why_not
            continue
        use.append(profile)
        seen_on[profile] = seen
    return SizeLock(
        use,
        left_out,
        {profile: seen.rounding for profile, seen in seen_on.items() if seen.rounding},
        {profile: seen.rare for profile, seen in seen_on.items() if seen.rare},
    )


def _of_the_small_size(reference: Reference, limit_s: float) -> SizeLock | None:
    """Return the decision for the small size, where this one is too large or too slow; None where it is neither."""
    problem = reference.problem
    if SizeName.SMALL not in problem.sizes:
        return None
    if not _is_large(reference) and _forward_s(reference) <= _SLOW_S:
        return None
    small = Reference(problem, SizeName.SMALL, LOCK_SEED)
    known = decided(small, SizeName.SMALL, thorough=limit_s == math.inf)
    return SizeLock(known.use, known.left_out)


def _is_large(reference: Reference) -> bool:
    """Say whether inputs or outputs are."""
    inputs = reference.draw(LOCK_SEED)
    if _elements([inputs.args, inputs.kwargs]) > _LARGE_ELEMENTS:
        return True
    return _elements(reference.forward(inputs, 0)) > _LARGE_ELEMENTS


def _forward_s(reference: Reference) -> float:
    """Return how long a forward takes on a nominal machine, in seconds."""
    inputs = reference.draw(LOCK_SEED)
    return cost_of(lambda: reference.forward(inputs, 0)).nominal_s(reference.device.type)


def _elements(value: Value) -> int:
    return sum(leaf.numel() for leaf in tensors(value))


class _Seen(NamedTuple):
    """What a profile looks like: why it should not be used, if so, and what rounding does where that matters.

    `rounding` and `rare` are a lock's; `fatal` is what no author can overrule.
    """

    expected: Expected | None
    rounding: dict[str, float] = {}
    rare: dict[str, float] = {}
    why_not: str | None = None
    fatal: bool = False


def _seen(reference: Reference, profile: Profile, given: _Seen | None) -> _Seen:
    try:
        inputs = _first_block(reference, reference.draw(LOCK_SEED, profile))
        others = _first_block(reference, reference.draw(LOCK_SEED + 1, profile))
        gradients = _gradients(reference, inputs)
        expected = reference.expected(inputs, 0, gradients)
        other = reference.expected(others, 0, _gradients(reference, others))
    except ProblemError as refusal:
        return _Seen(None, why_not=f"the reference refuses it: {refusal.message}"[:200], fatal=True)
    if given is not None and given.expected is not None:
        if (path := _newly_nonfinite(expected, given.expected)) is not None:
            return _Seen(expected, why_not=f"{path} is not finite", fatal=True)
        if given.expected.in_float64 and not expected.in_float64:
            return _Seen(expected, why_not="float64 gives something else", fatal=True)
    limits = {path: limits_of(reference.problem, value) for path, value in reference.values(expected.honest).items()}
    # Where rounding decides, a profile is left out; unless it is the problem's own, or its author insists.
    insisted = profile is Profile.AS_GIVEN or reference.problem.profiles.get(profile) is True
    found = other_orders(reference, inputs, gradients, expected, limits, list(Order), closely=insisted)
    # Where few large values decide, one draw says little: the second one is looked at for the plainest order alone.
    again = other_orders(
        reference, others, _gradients(reference, others), other, limits, [Order.ROUNDED], closely=insisted
    )
    seen = _matter(reference, expected, limits, {path: larger(each, again[path]) for path, each in found.items()})
    if seen.why_not is not None:
        return seen
    if not _differ(expected, other, limits):
        return seen._replace(why_not="the output hardly depends on such inputs")
    return seen


def _matter(
    reference: Reference, expected: Expected, limits: dict[str, Bounds | None], found: dict[str, Rounding]
) -> _Seen:
    """Say of which outputs it matters what other orders do to them, and whether rounding decides."""
    exact, plain = reference.values(expected.exact), reference.values(expected.honest)
    rounding: dict[str, float] = {}
    rare: dict[str, float] = {}
    why_not, fatal = None, False
    for path, (usual, largest) in found.items():
        limit = limits[path]
        if limit is None:
            if largest > 0:
                why_not = why_not or f"rounding decides: a unit in the last place changes {path}"
            continue
        if decides(largest, limit):
            moved_by = f"{largest:.1e} of its row's size"
            why_not = why_not or f"rounding decides: another order of summation moves {path} by {moved_by}"
            fatal = fatal or not math.isfinite(largest)
            rare |= {path: _short(largest)} if math.isfinite(largest) else {}
        honest = error_of(path, Sides(plain[path], exact[path], plain[path]), limit)
        # Not a number is no measure of what rounding does.
        if math.isfinite(usual) and usual * limit.multiple > limit.floor and (path in rare or usual > honest):
            rounding[path] = _short(usual)
    return _Seen(expected, rounding, rare, why_not, fatal)


def _short(error: float) -> float:
    return float(f"{error:.2e}")


def _newly_nonfinite(expected: Expected, given: Expected) -> str | None:
    before = by_path(given.honest)
    for path, tensor in by_path(expected.honest).items():
        if not isinstance(tensor, torch.Tensor) or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        known = before.get(path)
        if isinstance(known, torch.Tensor) and bool(torch.isfinite(known).all()) and not _finite(tensor):
            return path
    return None


def _finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def _differ(expected: Expected, other: Expected, limits: dict[str, Bounds | None]) -> bool:
    """Say whether other inputs give outputs that a comparison tells apart, in some part of some output."""
    exact, honest, instead = by_path(expected.exact), by_path(expected.honest), by_path(other.honest)
    for path, plain in honest.items():
        if not isinstance(plain, torch.Tensor) or instead[path].shape != plain.shape:
            continue
        wanted = exact[path] if limits[path] is not None else exact[path].to(plain.dtype)
        check = begin(path, Sides(instead[path], wanted, plain), limits[path])()
        many = check.mismatches >= max(_CHANGED_PART * plain.numel(), 1)
        if many or (check.mismatches > 0 and _far(instead[path], wanted)):
            return True
    return False


def _far(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Say whether two outputs are far apart although few elements differ: those of a softmax that is nearly one-hot."""
    wide = torch.promote_types(one.dtype, torch.float64)
    one, other = (torch.where(torch.isfinite(each), each, 0.0).to(wide) for each in (one, other))
    return bool((one - other).abs().square().sum() > _FAR**2 * other.abs().square().sum())


def _gradients(reference: Reference, inputs: Arguments) -> list[torch.Tensor] | None:
    if not reference.problem.backward:
        return None
    return reference.output_gradients(reference.forward(inputs, 0), LOCK_SEED)


def _first_block(reference: Reference, inputs: Arguments) -> Arguments:
    return inputs if reference.problem.backward else reference.blocks(inputs)[0]


def _number(seed: int) -> int:
    return int.from_bytes(hashlib.blake2b(seed.to_bytes(8, "big"), digest_size=8, person=b"profile").digest(), "big")
