"""Refusal of a reference that keeps state between calls: its answers follow from more than inputs and weights."""

import torch

from evaluator.errors import ProblemError
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.pytree import tensors_of
from evaluator.records import Problem

_MOST = 0.01
"""Largest difference, relative to the output's size: far above any rounding, random orders of summation included. Of
integers and booleans, the largest part that differs."""
_LEAST = 1e-4
"""Absolute differences below are no proof: an output may be rounding alone, and rounding may differ between calls."""
_COMPARED = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})
_INTEGERS = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_HINT = "reset tensors kept between calls at the start of forward; draw random numbers with PyTorch"
_ELEMENTS = 1 << 18
"""Evenly spaced elements for the comparison."""


def refuse_state(problem: Problem, outputs: Value, again: Value) -> None:
    """Raise ProblemError if `again`, of a call with equal inputs, weights and random seed, differs from `outputs`.

    The judge computes several calls of the reference for one call of a submission, so both sides would be in different
    states. A row block, of another shape, is not compared.
    """
    for first, second in zip(tensors_of(outputs), tensors_of(again), strict=False):
        if first.shape != second.shape:
            continue
        if first.dtype in _INTEGERS:
            if float((first != second).double().mean()) > _MOST:
                raise ProblemError(f"{problem.name}: the reference's answers to two equal calls differ", hint=_HINT)
            continue
        if first.dtype not in _COMPARED:
            continue
        step = max(first.numel() // _ELEMENTS, 1)
        one, other = (side.reshape(-1)[::step].double() for side in (first, second))
        both = one.isfinite() & other.isfinite()
        size, distance = (float(values[both].square().mean().sqrt()) for values in (one, other - one))
        if distance > _LEAST and distance > _MOST * size:
            message = (
                f"{problem.name}: the reference's answers to two equal calls differ by {distance:.2g}, and their size "
                f"is {size:.2g} (root mean squares)"
            )
            raise ProblemError(message, hint=_HINT)
