"""Agreement of two ways to compute the reference: in float64 beside the problem's precision, and in blocks of rows.

The results decide. The problem's `split` cuts the inputs into blocks, and a trial shows whether the blocks reproduce
the whole call.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch

from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.number_formats import elements, format_of
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol import model_call
from evaluator.protocol.pytree import leaves, tensors_of

_NEAR = 0.1
_NEAR_ELEMENTS = 1 << 18
"""Evenly spaced elements for the comparison."""


def same_function(exact: model_call.Result, honest: model_call.Result) -> bool:
    """Return whether float64 computed the same function: equal structure and shapes, and values near the plain result.

    A reference with random numbers, or with casts by dtype, computes another function in float64.
    """
    pairs = list(
        zip(leaves([exact.outputs, exact.gradients]), leaves([honest.outputs, honest.gradients]), strict=False)
    )
    if len(list(leaves(exact.outputs))) != len(list(leaves(honest.outputs))):
        return False
    for (wide_path, wide), (path, plain) in pairs:
        if wide_path != path or isinstance(wide, torch.Tensor) != isinstance(plain, torch.Tensor):
            return False
        if isinstance(wide, torch.Tensor) and not near(wide, plain):
            return False
        if isinstance(wide, float) != isinstance(plain, float):
            return False
        if isinstance(plain, float) and not near(torch.tensor(wide).double(), torch.tensor(plain)):
            return False
    return True


def near(wide: torch.Tensor, plain: torch.Tensor) -> bool:
    """Return whether a float64 tensor has the shape of `plain`, and as a whole is close to `plain`."""
    if wide.shape != plain.shape:
        return False
    if not (plain.is_floating_point() or plain.is_complex()):
        return True
    if (form := format_of(plain.dtype)) is not None:
        return wide.dtype == plain.dtype and near(elements(wide, form).values, elements(plain, form).values)
    if wide.dtype not in (torch.float64, torch.complex128):  # the reference casts: the extra precision is lost
        return False
    if plain.numel() == 0:
        return True
    step = max(wide.numel() // _NEAR_ELEMENTS, 1)
    wide, plain = wide.reshape(-1)[::step], plain.reshape(-1)[::step]
    distance_square, square = _squares(wide, plain.to(wide.dtype))
    # Rounding in the problem's own precision stays far below a tenth of the outputs' size.
    return bool(distance_square <= _NEAR**2 * square)


def _squares(wide: torch.Tensor, plain: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the squared distance of two vectors, and the squared size of the first, where both are finite."""
    distance = wide - plain
    # On the CPU, products are much faster than masks, and show NaN and infinity themselves. On a GPU, the host would
    # wait for the products, and large outputs call `near` for every block.
    if wide.device.type == "cpu" and not wide.is_complex():
        products = distance @ distance, wide @ wide
        if all(math.isfinite(float(product)) for product in products):
            return products
    both = torch.isfinite(wide) & torch.isfinite(plain)
    zero = torch.zeros_like(wide)
    distance, size = torch.where(both, distance, zero), torch.where(both, wide, zero)
    return distance.abs().square().sum(), size.abs().square().sum()


_BLOCK_BYTES = 192 << 20


def cut(model: Any, inputs: Arguments, split: Mapping[str, int], pieces: int = 0) -> list[Arguments]:
    """Return the inputs cut along `split` into `pieces`, or so that a block's float64 copies are within `_BLOCK_BYTES`.

    The outputs of blocks are consecutive along dimension 0. Without a `split`, all inputs form a single block.
    """
    whole = sum(leaf.numel() * 8 for leaf in tensors_of(inputs.args) + tensors_of(inputs.kwargs))
    pieces = pieces or -(-whole // _BLOCK_BYTES)
    if not split or pieces <= 1:
        return [inputs]
    names = forward_parameters(model, inputs)
    pieces_of = {
        name: value.chunk(pieces, split[name])
        for name, value in names
        if name in split and isinstance(value, torch.Tensor) and split[name] < value.dim()
    }
    if len(pieces_of) < len(split) or len({len(parts) for parts in pieces_of.values()}) != 1:
        return [inputs]
    count = len(next(iter(pieces_of.values())))
    return [
        Arguments(
            [pieces_of[name][index] if name in pieces_of else value for name, value in names[: len(inputs.args)]],
            {name: pieces_of[name][index] if name in pieces_of else value for name, value in names[len(inputs.args) :]},
        )
        for index in range(count)
    ]


def begins_and_ends_with(outputs: Value, first: Value, last: Value) -> bool:
    """Return whether a call's outputs begin with the first block's rows and end with the last block's rows."""
    output_leaves = list(leaves(outputs))
    for whole, one, other in zip(output_leaves, leaves(first), leaves(last), strict=False):
        values = [value for _, value in (whole, one, other)]
        if not isinstance(whole[1], torch.Tensor):
            if any(isinstance(value, torch.Tensor) or value != whole[1] for value in values):
                return False  # For example the mean of all rows.
            continue
        if any(not isinstance(value, torch.Tensor) or value.dim() == 0 for value in values):
            return False
        tensor, head, tail = values
        if not (near(tensor[: len(head)].double(), head) and near(tensor[-len(tail) :].double(), tail)):
            return False
    return len(list(leaves(first))) == len(output_leaves)


def row_splits(model: Any, inputs: Arguments, outputs: Value) -> list[dict[str, int]]:
    """Return splits to try where the author gives none: inputs with as many rows as every output; all, or the first.

    A matrix with as many rows as the other input may be a matrix of weights: only a call shows which.
    """
    rows = {tensor.shape[0] if tensor.dim() else 1 for tensor in tensors_of(outputs)}
    names = [
        name
        for name, value in forward_parameters(model, inputs)
        if isinstance(value, torch.Tensor) and value.dim() and {value.shape[0]} == rows and value.shape[0] > 1
    ]
    splits = [dict.fromkeys(names, 0), dict.fromkeys(names[:1], 0)]
    return splits[: min(len(names), 2)]


def forward_parameters(model: Any, inputs: Arguments) -> list[tuple[str, Value]]:
    """Return forward's parameter names with values: positional arguments first, then keywords.

    A positional argument of a forward without Python code has its number for a name.
    """
    code = getattr(getattr(type(model), "forward", None), "__code__", None)
    names = () if code is None else code.co_varnames[1 : code.co_argcount]
    padded = list(names) + [str(index) for index in range(len(names), len(inputs.args))]
    return [*zip(padded, inputs.args, strict=False), *inputs.kwargs.items()]
