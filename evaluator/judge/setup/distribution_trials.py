"""Trials of input distributions on the reference, each made when a call needs the result.

A call is evidence if wrong answers are far beyond the tolerance (`wrong_answers`). Distances of wrong answers are
measured once for a problem, size and distribution, and cached: the seeds of a trial are fixed. Of most problems, two
calls with the problem's own values are evidence enough, and no other distribution is tried.

A distribution is unusable if the reference refuses the inputs, or if outputs are not finite, say nothing, or depend on
an arbitrary choice. The question arises only if a call fails: a right answer needs no excuse.
"""

import contextlib
import copy
from collections.abc import Iterator
from typing import NamedTuple

import torch

from evaluator.cache.measurements import measured_once
from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.compare.tensor_comparison import Comparison, begin
from evaluator.judge.formats.elements import wide
from evaluator.judge.inputs.input_distributions import RULES
from evaluator.judge.reference.operation_cost import cost_of
from evaluator.judge.reference.reference import Expected, Reference, by_path
from evaluator.judge.setup.equal_values import changed_by_choice, has_ambiguity
from evaluator.judge.setup.product_range import beyond_range, multiplies
from evaluator.judge.setup.wrong_answers import PROOF, distances_of
from evaluator.judge.tensors.call_arguments import Arguments, are_equal
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.pytree import tensors_of
from evaluator.records import Profile, Record, SizeName

TRIAL_SEED = 0x5EED
"""Fixed seed of all trials: results are the same in every grade."""
_LONGEST_S = 10.0
"""Time limit of a trial on a nominal machine (`Cost.nominal_s`), counted from operations: how busy the machine is
decides nothing."""
_FORWARDS = 6
"""Approximate number of forwards of a trial."""
_TRIED_ELEMENTS = 1 << 22
"""Limit of elements in a trial. Of a larger tensor, a trial takes the first rows, if rows are independent."""
_TESTS = ((multiplies, beyond_range), (has_ambiguity, changed_by_choice))


class _Distances(Record, frozen=True):
    """Distances of wrong answers by path; None if the problem is too slow to try."""

    by_path: dict[str, float] | None = None


class _Trial(NamedTuple):
    """Expected values of a distribution, distances of wrong answers, and the reason against use, if any.

    With `fatal`, the author cannot overrule the reason.
    """

    expected: Expected | None
    distances: dict[str, float] = {}
    why_not: str | None = None
    fatal: bool = False


class DistributionTrials:
    """Trials on a reference after the first call. Restores the reference's weights after each trial."""

    def __init__(self, reference: Reference, size: SizeName, compare: Comparison = begin) -> None:
        """Try on `reference`, of a problem at `size`. `compare` compares tensors on the reference's device."""
        self._reference = reference
        self._size = size
        self._compare = compare
        self._scratch: Reference | None = None
        self._distances: dict[Profile, dict[str, float] | None] = {}
        self._has_other_weights: bool | None = None

    def distance(self, profile: Profile, path: str) -> float | None:
        """Return the distance of wrong answers of an output; None if unknown.

        Without enough memory, known distances are those of the problem's own values alone. A submission may hold the
        memory, so distances of other distributions count as 0 then: no call is evidence.
        """
        if profile not in self._distances:
            try:
                with out_of_memory():
                    self._distances[profile] = self._measured(profile)
            except MemoryError:
                self._distances[profile] = None if profile is Profile.AS_GIVEN else {}
        distances = self._distances[profile]
        return None if distances is None else distances.get(path, 0.0)

    def is_evidence(self, profile: Profile) -> bool:
        """Return whether wrong answers are far beyond the usual tolerance of every output."""
        self.distance(profile, "")
        distances = self._distances[profile] or {}
        return min(distances.values(), default=0.0) >= PROOF

    def why_not(self, profile: Profile) -> str | None:
        """Return the reason why a distribution is unusable; None if usable, or if memory is too small for the trial.

        The author's declaration takes precedence over observations.
        """
        if profile is Profile.AS_GIVEN:
            return None
        with contextlib.suppress(MemoryError), out_of_memory(), self._weights_of_trials():
            scratch = self._tried_rows()
            if self._is_too_slow(scratch):
                return None
            usual = self._try(scratch, Profile.AS_GIVEN, None)
            trial = self._try(scratch, profile, usual)
            reason = trial.why_not or self._arbitrary(scratch, profile)
            is_declared = scratch.problem.profiles.get(profile) is True
            return None if is_declared and not trial.fatal else reason
        return None

    def _measured(self, profile: Profile) -> dict[str, float] | None:
        reference = self._reference
        problem = reference.problem
        constants = dict(sorted(problem.sizes[self._size].items()))
        parts = ["distances", RULES, problem.sha256, constants, torch.__version__, reference.device.type, profile]

        def measure() -> _Distances:
            with self._weights_of_trials():
                scratch = self._tried_rows()
                return _Distances() if self._is_too_slow(scratch) else _Distances(self._try(scratch, profile).distances)

        return measured_once(parts, _Distances, measure).by_path

    def _tried_rows(self) -> Reference:
        """Return a reference with the same models, for the first rows of large inputs, if rows are independent.

        A backward pass takes whole calls.
        """
        if self._scratch is None:
            scratch = copy.copy(self._reference)
            scratch.float64_must_fit = True  # A cached distance must not depend on memory free at the moment.
            if not scratch.problem.backward:
                inputs = scratch.draw(TRIAL_SEED)
                outputs = scratch.forward(inputs, 0)
                elements = max(_elements([inputs.args, inputs.kwargs]), _elements(outputs))
                if (pieces := -(-elements // _TRIED_ELEMENTS)) > 1:
                    scratch.split_rows(inputs, outputs, pieces)
            self._scratch = scratch
        return self._scratch

    def _is_too_slow(self, scratch: Reference) -> bool:
        inputs = _first_block(scratch, scratch.draw(TRIAL_SEED))
        forward_s = cost_of(lambda: scratch.forward(inputs, 0)).nominal_s(scratch.device.type)
        return forward_s * _FORWARDS > _LONGEST_S

    @contextlib.contextmanager
    def _weights_of_trials(self) -> Iterator[None]:
        """Context with the constructed weights, or with others if only the constructed weights spoil the output.

        For example, the mean of a group norm with weights of 1 and biases of 0 is 0. Calls have other weights.
        """
        reference = self._reference
        before = reference.weights_seed
        reference.set_weights(None)
        try:
            if self._has_other_weights is None:
                self._has_other_weights = self._needs_other_weights()
            if self._has_other_weights:
                reference.set_weights(TRIAL_SEED)
            yield
        finally:
            reference.set_weights(before)

    def _needs_other_weights(self) -> bool:
        reference = self._reference
        if not reference.weights.names:
            return False
        scratch = self._tried_rows()
        if self._is_too_slow(scratch) or self._try(scratch, Profile.AS_GIVEN).why_not is None:
            return False
        reference.set_weights(TRIAL_SEED)
        try:
            return self._try(scratch, Profile.AS_GIVEN).why_not is None
        finally:
            reference.set_weights(None)

    def _try(self, scratch: Reference, profile: Profile, usual: _Trial | None = None) -> _Trial:
        try:
            inputs = _first_block(scratch, scratch.draw(TRIAL_SEED, profile))
            other_inputs = _first_block(scratch, scratch.draw(TRIAL_SEED + 1, profile))
            gradients = _gradients(scratch, inputs)
            expected = scratch.expected(inputs, 0, gradients)
            is_fixed = are_equal(inputs, other_inputs) and scratch.weights.why_not is None
            other = None if is_fixed else scratch.expected(other_inputs, 0, _gradients(scratch, other_inputs))
        except ProblemError as refusal:
            return _Trial(None, why_not=f"the reference refuses it: {refusal.message}"[:200], fatal=True)
        if usual is not None and usual.expected is not None:
            if (path := newly_nonfinite(expected, usual.expected)) is not None:
                return _Trial(expected, why_not=f"{path} is not finite", fatal=True)
            if usual.expected.in_float64 and not expected.in_float64:
                return _Trial(expected, why_not="float64 gives something else", fatal=True)
        wrong = distances_of(scratch, inputs, gradients, expected, other, self._compare)
        trial = _Trial(expected, wrong.distances)
        if not expected.in_float64 and wrong.powers and not any(wrong.powers.values()):
            return trial._replace(why_not="the output is a result of rounding")
        if not wrong.are_told_apart:
            return trial._replace(why_not="the output hardly depends on such inputs")
        return trial

    def _arbitrary(self, scratch: Reference, profile: Profile) -> str | None:
        """Return why the order of factors or the choice among equal values decides about an output."""
        usual_inputs = _first_block(scratch, scratch.draw(TRIAL_SEED))
        tests = [test for has, test in _TESTS if has(scratch, usual_inputs)]
        if not tests:
            return None
        inputs = _first_block(scratch, scratch.draw(TRIAL_SEED, profile))
        gradients = _gradients(scratch, inputs)
        return next(filter(None, (test(scratch, inputs, gradients, self._compare) for test in tests)), None)


def _elements(value: Value) -> int:
    return sum(leaf.numel() for leaf in tensors_of(value))


def _gradients(reference: Reference, inputs: Arguments) -> list[torch.Tensor] | None:
    if not reference.problem.backward:
        return None
    return reference.output_gradients(reference.forward(inputs, 0), TRIAL_SEED)


def _first_block(reference: Reference, inputs: Arguments) -> Arguments:
    return inputs if reference.problem.backward else reference.blocks(inputs)[0]


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
