"""Blocks of rows: inputs cut by the problem's `split`, and a test whether blocks reproduce the whole call."""

from collections.abc import Mapping
from typing import Any

import torch

from evaluator.judge.reference.float64_agreement import near
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.pytree import leaves, tensors_of

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
