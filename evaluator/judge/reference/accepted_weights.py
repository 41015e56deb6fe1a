"""Whether a reference accepts other weights: finite outputs stay finite."""

import torch

from evaluator.errors import ProblemError
from evaluator.judge.formats.elements import wide
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.pytree import tensors_of

_SEEDS = (1, 2, 3)


def settle_weights(reference: Reference, inputs: Arguments) -> None:
    """Fix the weights of a reference that gives finite outputs with its constructed weights alone.

    If the reference accepts other magnitudes but no other signs, only the signs stay fixed. A reference whose
    output does not depend on the weights accepts any weights.
    """
    weights = reference.weights
    if not weights.names:
        return
    first = _finite_parts(reference.forward(inputs, 0))
    why_not = _refusal(reference, inputs, first)
    if why_not is not None and weights.keep_signs():
        why_not = _refusal(reference, inputs, first)
    if why_not is not None:
        weights.leave(why_not)


def _refusal(reference: Reference, inputs: Arguments, first: list[torch.Tensor]) -> str | None:
    """Return the reason why the reference accepts no other weights; None if accepted."""
    try:
        for seed in _SEEDS:
            reference.set_weights(seed)
            if not _still_finite(first, reference.forward(inputs, 0)):
                return "the reference gives no finite numbers with other weights"
    except ProblemError as refusal:
        return f"the reference refuses other weights: {refusal.message}"[:200]
    finally:
        reference.set_weights(None)
    return None


def _finite_parts(value: Value) -> list[torch.Tensor]:
    """Return where each tensor of a value is finite, as booleans in its shape."""
    return [torch.isfinite(wide(leaf)) for leaf in tensors_of(value)]


def _still_finite(before: list[torch.Tensor], value: Value) -> bool:
    """Return whether all formerly finite elements are still finite."""
    now = _finite_parts(value)
    same = len(now) == len(before) and all(one.shape == other.shape for one, other in zip(before, now, strict=True))
    return same and all(bool((other | ~one).all()) for one, other in zip(before, now, strict=True))
