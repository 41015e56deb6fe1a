"""Evidence that a wrong answer comes from weights of an earlier call, from records of comparisons alone.

With weights of an earlier call, the submission answered the same inputs correctly. The fact alone proves little: an
error just above the tolerance passes with other weights by chance, and an output that hardly depends on the weights is
within the tolerance for all weights. A stale answer does not follow the change of the weights, so the error is a part
of the change. Three comparisons show the part, in each wrong output:

- `wrong`: the wrong answer with the expected values of the call;
- `own`: the correct answer for earlier weights with the expected values for earlier weights;
- `moved`: the same correct answer with the expected values of the call: the error of a completely stale answer.
"""

import math
from collections.abc import Sequence

from evaluator.records import TensorCheck

_NEARER = 8.0
"""Least error of the wrong answer, in errors of the correct answer. A completely stale answer is as far from the
earlier expected values as the correct answer, and 8 times as far from the call's. Let e be the error, and d the
difference of both expected values: |e - d| < |e| / 8, and hence |e - d| < |d| / 7. The error is the effect of the
weights, up to a seventh. A random error of n elements is so near with a probability below 7**(1 - n)."""
_HONEST_PART = 0.25
"""Least error of a correct answer, in tolerances: the honest reference's, where the honest error sets the tolerance."""
_ROUNDING = 1 / 64
"""Least error of a wrong answer, as a part of the error of a completely stale answer. Weights change by 15 to 25 %,
or 3000 to 5000 tolerances in fp32; up to 64 tolerances may be rounding (`rounding_of_call`). A submission may keep
only a small weight, as a bias beside a long sum."""
_MOST = 0.5
"""Least number of wrong elements, as a part of the elements that a completely stale answer has wrong."""


def is_stale(wrong: Sequence[TensorCheck], earlier: Sequence[TensorCheck], current: Sequence[TensorCheck]) -> bool:
    """Return whether the errors of all wrong outputs are a part of the change of the weights."""
    right = {check.path: check for check in earlier}
    stale = {check.path: check for check in current}
    wrong_checks = [check for check in wrong if not check.ok]
    return bool(wrong_checks) and all(
        check.path in right and check.path in stale and _is_of_weights(check, right[check.path], stale[check.path])
        for check in wrong_checks
    )


def is_nearer_to_earlier(earlier: Sequence[TensorCheck], current: Sequence[TensorCheck]) -> bool:
    """Return whether an answer that is the same for two sets of weights follows the earlier set.

    `earlier` is the comparison with the expected values for the earlier weights, `current` with the call's. Every wrong
    output is nearer to the earlier values, by half of the error and by several tolerances. Zeros, and an output that
    hardly depends on the weights, are as far from both.
    """
    ratios = {check.path: _ratio(check) for check in earlier}
    pairs = [(ratios.get(check.path), _ratio(check)) for check in current if not check.ok]
    return bool(pairs) and all(
        near is not None and far is not None and near <= far / 2 and far - near >= _NEARER for near, far in pairs
    )


def is_beyond_chance(wrong: Sequence[TensorCheck]) -> bool:
    """Return whether all outputs are finite, and wrong ones too far off to be right by chance with other weights."""
    ratios = [_ratio(check) for check in wrong if not check.ok]
    return bool(ratios) and all(ratio is not None and ratio >= _NEARER for ratio in ratios)


def _is_of_weights(wrong: TensorCheck, earlier: TensorCheck, current: TensorCheck) -> bool:
    error, least, most = (_ratio(check) for check in (wrong, earlier, current))
    if error is None or least is None or most is None:
        return False
    is_far = error >= _NEARER * max(least, _HONEST_PART) and error >= most * _ROUNDING
    return is_far and most > 1 and wrong.mismatches >= current.mismatches * _MOST


def _ratio(check: TensorCheck) -> float | None:
    """Return the largest error in tolerances; infinite for integers that differ, None if an element is not finite."""
    if check.nonfinite:
        return None
    return math.inf if check.error_ratio is None else check.error_ratio
