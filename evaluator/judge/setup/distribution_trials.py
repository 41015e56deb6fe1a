"""Trials of input distributions on the reference: which distributions are usable, and which calls are evidence.

A distribution is unusable if the reference refuses the inputs, or if outputs are not finite, disagree with float64, or
depend on an arbitrary choice. The answer is a trait of the problem (`problem_traits`). A product is out of range if its
partial products overflow or underflow in the least favourable order: a bound, which never widens a tolerance.

A call is evidence if wrong answers are far beyond the tolerance (`wrong_answers`). Distances of wrong answers are
measured when a call needs them: of most problems, two calls with the problem's own values are evidence enough. If rows
are independent, a trial has one draw of the inputs in memory at a time, and of a reference in blocks no whole output.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence

import torch

from evaluator.cache.build_cache import measured_once
from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.compare.tensor_comparison import Comparison, begin
from evaluator.judge.compare.tolerance import Bounds
from evaluator.judge.numerics.products import OPERATIONS, PartialProduct
from evaluator.judge.numerics.summation_orders import decides, limits_of, other_orders, uses
from evaluator.judge.reference.author_check import refusal
from evaluator.judge.reference.input_distributions import PROFILES, RULES
from evaluator.judge.reference.reference import Expected, Reference, by_path
from evaluator.judge.setup.equal_values import changed_by_choice, has_ambiguity
from evaluator.judge.setup.operation_cost import cost_of
from evaluator.judge.setup.wrong_answers import PROOF, WrongAnswers, distances_of
from evaluator.judge.tensors.call_arguments import Arguments, are_equal, cloned
from evaluator.judge.tensors.number_formats import wide
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.pytree import tensors_of
from evaluator.records import CaseName, Profile, Record, SizeName


def multiplies(reference: Reference, inputs: Arguments) -> bool:
    """Return whether a call of the reference multiplies many factors."""
    return uses(reference, inputs, OPERATIONS)


def beyond_range(
    reference: Reference, inputs: Arguments, gradients: list[torch.Tensor] | None, compare: Comparison
) -> str | None:
    """Return why the order of products decides about an output of a call; None if no order moves any output."""
    expected = reference.expected(inputs, 0, gradients)
    limits = limits_of(reference.problem, reference.values(expected.honest))
    orders = list(PartialProduct)
    errors = other_orders(reference, inputs, gradients, expected, limits, orders, compare=compare)
    for path, largest in errors.items():
        limit = limits[path]
        if decides(largest, limit) if isinstance(limit, Bounds) else largest > 0:
            return f"the order of factors decides: partial products of {path} overflow or underflow"
    return None


TRIAL_SEED = 0x5EED
"""Fixed seed of all trials: results are the same in every grade."""
_LONGEST_S = 60.0
"""Time limit of all trials about distributions, on a nominal machine (`Cost.nominal_s`), counted from operations: how
busy the machine is decides nothing."""
_FORWARDS_OF_USE, _FORWARDS_OF_DISTANCES = 2 * len(Profile), 6
"""Approximate numbers of forwards: to find the usable distributions, and to measure one distribution's distances."""
_TRIED_ELEMENTS = 1 << 22
"""Limit of elements in a trial. Of a larger tensor, a trial takes the first rows, if rows are independent."""
_Test = Callable[[Reference, Arguments, list[torch.Tensor] | None, Comparison], str | None]
_TESTS: tuple[tuple[Callable[[Reference, Arguments], bool], _Test], ...] = (
    (multiplies, beyond_range),
    (has_ambiguity, changed_by_choice),
)
NO_FACTORS = "the reference multiplies no factors, and long sums of equal terms have a bias in any single accumulator"
TOO_SLOW = "too slow to try: give the problem a small size"


class _Distances(Record, frozen=True):
    """Distances of wrong answers by path; None if the problem is too slow to try."""

    by_path: dict[str, float] | None = None


def unusable(reference: Reference, compare: Comparison = begin) -> dict[Profile, str]:
    """Return the distributions left out of a problem's calls, with reasons. The author's declarations take precedence.

    Raises:
        ProblemError: the reference refuses its own inputs.
    """
    tried = first_rows(reference)
    usual_inputs = _first_block(tried, tried.draw(TRIAL_SEED))
    if _nominal_s(tried, usual_inputs) * _FORWARDS_OF_USE > _LONGEST_S:
        return dict.fromkeys(PROFILES, TOO_SLOW)
    usual = tried.expected(usual_inputs, 0, _gradients(tried, usual_inputs))
    tests = [test for has, test in _TESTS if has(tried, usual_inputs)]
    has_factors = multiplies(tried, usual_inputs)
    reasons: dict[Profile, str] = {}
    for profile in PROFILES:
        declared = tried.problem.profiles.get(profile)
        reason = declared if isinstance(declared, str) else None
        if profile is Profile.NEAR_ONE and not has_factors and declared is None:
            reason = NO_FACTORS
        reason = reason or _refusal(tried, profile, usual, [] if declared else tests, compare)
        if reason is not None:
            reasons[profile] = reason
    return reasons


def _refusal(
    reference: Reference, profile: Profile, usual: Expected, tests: Sequence[_Test], compare: Comparison
) -> str | None:
    """Return why a distribution is unusable; None if usable. `tests` look for arbitrary choices."""
    try:
        inputs = _first_block(reference, reference.draw(TRIAL_SEED, profile))
        gradients = _gradients(reference, inputs)
        expected = reference.expected(inputs, 0, gradients)
    except ProblemError as error:
        return f"the reference refuses it: {error.message}"[:200]
    if (reason := _disagreement(expected, usual)) is not None:
        return reason
    if (message := refusal(reference, inputs, expected.honest.outputs)) is not None:
        return f"check refuses the answer of Model itself: {message}"[:200]
    return next(filter(None, (test(reference, inputs, gradients, compare) for test in tests)), None)


def _disagreement(expected: Expected, usual: Expected) -> str | None:
    if (path := newly_nonfinite(expected, usual)) is not None:
        return f"{path} is not finite"
    return "float64 gives something else" if usual.in_float64 and not expected.in_float64 else None


class DistributionTrials:
    """Distances of wrong answers, measured on a reference after the first call."""

    def __init__(
        self, reference: Reference, size: CaseName, compare: Comparison = begin, *, may_change: bool = True
    ) -> None:
        """Try on `reference`, of a problem at `size`. `compare` compares tensors on the reference's device.

        Without `may_change`, all calls have the constructed weights.
        """
        self._reference = reference
        self._size = size
        self._compare = compare
        self._may_change = may_change
        self._distances: dict[Profile, dict[str, float] | None] = {}

    def distance(self, profile: Profile, path: str) -> float | None:
        """Return the distance of wrong answers of an output; None if unknown.

        The problem's own values come first, before a submission: without memory, distances are unknown then. Later, a
        submission may hold the memory, so a lack of memory counts as a distance of 0: no call is evidence.
        """
        try:
            distances = self._of(profile)
        except MemoryError:
            if profile is not Profile.AS_GIVEN:
                return 0.0
            distances = self._distances[profile] = None
        return None if distances is None else distances.get(path)

    def is_evidence(self, profile: Profile) -> bool:
        """Return whether wrong answers are far beyond the usual tolerance of every output."""
        self.distance(profile, "")
        distances = self._distances.get(profile) or {}
        return min(distances.values(), default=0.0) >= PROOF

    def _of(self, profile: Profile) -> dict[str, float] | None:
        if profile not in self._distances:
            with out_of_memory():
                self._distances[profile] = self._kept(profile)
        return self._distances[profile]

    def _kept(self, profile: Profile) -> dict[str, float] | None:
        """Measure; without weights, once for a problem: weights differ from session to session."""
        reference = self._reference
        problem = reference.problem
        if [*reference.model.parameters(), *reference.model.buffers()]:
            return self._measured(profile)
        constants = dict(sorted(problem.cases[self._size].axes.items()))
        parts = ["distances", RULES, problem.sha256, constants, torch.__version__, reference.device.type, profile]
        return measured_once(parts, _Distances, lambda: _Distances(self._measured(profile))).by_path

    def _measured(self, profile: Profile) -> dict[str, float] | None:
        tried = first_rows(self._reference)
        tried.float64_must_fit = True  # A cached distance must not depend on memory free at the moment.
        inputs = _first_block(tried, tried.draw(TRIAL_SEED))
        if _nominal_s(tried, inputs) * _FORWARDS_OF_DISTANCES > _LONGEST_S:
            return self._at_small_size(profile)
        with self._weights(None):
            wrong = _wrong_answers(tried, profile, self._compare)
        if wrong.are_told_apart or not (self._may_change and self._reference.weights.names):
            return wrong.distances
        # The constructed weights alone may spoil the output: the mean of a group norm with weights of 1 and biases of 0
        # is 0. Calls have other weights.
        with self._weights(TRIAL_SEED):
            return _wrong_answers(tried, profile, self._compare).distances

    def _at_small_size(self, profile: Profile) -> dict[str, float] | None:
        problem = self._reference.problem
        if self._size == SizeName.SMALL or SizeName.SMALL not in problem.cases:
            return None
        small = Reference(problem, SizeName.SMALL, TRIAL_SEED, "cpu")
        return DistributionTrials(small, SizeName.SMALL, may_change=self._may_change)._of(profile)  # noqa: SLF001

    @contextlib.contextmanager
    def _weights(self, seed: int | None) -> Iterator[None]:
        before = self._reference.weights_seed
        self._reference.set_weights(seed)
        try:
            yield
        finally:
            self._reference.set_weights(before)


def _wrong_answers(reference: Reference, profile: Profile, compare: Comparison) -> WrongAnswers:
    inputs = _first_block(reference, reference.draw(TRIAL_SEED, profile))
    other_inputs = _first_block(reference, reference.draw(TRIAL_SEED + 1, profile))
    gradients = _gradients(reference, inputs)
    expected = reference.expected(inputs, 0, gradients)
    is_fixed = are_equal(inputs, other_inputs) and reference.weights.why_not is None
    other = None if is_fixed else reference.expected(other_inputs, 0, _gradients(reference, other_inputs))
    wrong = distances_of(reference, inputs, gradients, expected, other, compare)
    is_rounding = not expected.in_float64 and wrong.powers and not any(wrong.powers.values())
    return wrong._replace(are_told_apart=wrong.are_told_apart and not is_rounding)


def first_rows(reference: Reference) -> Reference:
    """Return a reference with the same models, for the first rows of large inputs, if rows are independent.

    A backward pass takes whole calls.
    """
    tried = copy.copy(reference)
    if not tried.problem.backward:
        inputs = tried.draw(TRIAL_SEED)
        outputs = tried.outline if tried.is_in_blocks(inputs) else tried.forward(inputs, 0)
        elements = max(_elements([inputs.args, inputs.kwargs]), _elements(outputs))
        if (pieces := -(-elements // _TRIED_ELEMENTS)) > 1:
            tried.split_rows(inputs, outputs, pieces)
    return tried


def _nominal_s(reference: Reference, inputs: Arguments) -> float:
    """Return the duration of a forward on a nominal machine, in seconds."""
    return cost_of(lambda: reference.forward(inputs, 0)).nominal_s(reference.device.type)


def _elements(value: Value) -> int:
    return sum(leaf.numel() for leaf in tensors_of(value))


def _gradients(reference: Reference, inputs: Arguments) -> list[torch.Tensor] | None:
    if not reference.problem.backward:
        return None
    return reference.output_gradients(reference.forward(inputs, 0), TRIAL_SEED)


def _first_block(reference: Reference, inputs: Arguments) -> Arguments:
    """Return a call's first block, as a copy beside which the rest of large inputs can be freed."""
    blocks = [inputs] if reference.problem.backward else reference.blocks(inputs)
    return inputs if len(blocks) == 1 else cloned(blocks[0])


def newly_nonfinite(expected: Expected, as_given: Expected) -> str | None:
    """Return the path of an output with NaN or infinity in `expected`, and only finite values in `as_given`."""
    before = by_path(as_given.honest)
    for path, tensor in by_path(expected.honest).items():
        if not isinstance(tensor, torch.Tensor) or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        earlier = before.get(path)
        if isinstance(earlier, torch.Tensor) and _finite(earlier) and not _finite(tensor):
            return path
    return None


def _finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(wide(tensor)).all())
