"""Refusal of a reference that keeps state between calls: its answers follow from more than inputs and weights."""

import torch

from evaluator.errors import ProblemError
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.model_call import tensors_of

_MOST = 0.01
"""Largest difference, relative to the output's size: far above any rounding, random orders of summation included."""
_LEAST = 1e-4
"""Absolute differences below are no proof: an output may be rounding alone, and rounding may differ between calls."""
_COMPARED = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})
_ELEMENTS = 1 << 18
"""Evenly spaced elements for the comparison."""


def refuse_state(reference: Reference, inputs: Arguments, outputs: Value) -> None:
    """Raise ProblemError if a second call with equal inputs, weights and random seed answers differently.

    The judge computes several calls of the reference for one call of a submission, so both sides would be in different
    states. Row blocks need no second call: they have answered as the whole.
    """
    if len(reference.blocks(inputs)) > 1:
        return
    for first, again in zip(tensors_of(outputs), tensors_of(reference.forward(inputs, 0)), strict=False):
        if first.shape != again.shape or first.dtype not in _COMPARED:
            continue
        step = max(first.numel() // _ELEMENTS, 1)
        one, other = (side.reshape(-1)[::step].double() for side in (first, again))
        both = one.isfinite() & other.isfinite()
        size, distance = (float(values[both].square().mean().sqrt()) for values in (one, other - one))
        if distance > _LEAST and distance > _MOST * size:
            message = (
                f"{reference.problem.name}: the reference's answers to two equal calls differ by {distance:.2g}, and "
                f"their size is {size:.2g} (root mean squares)"
            )
            hint = "reset in forward what a call keeps for the next one; draw random numbers by PyTorch's generators"
            raise ProblemError(message, hint=hint)
