"""Other choices of a reference among equal values.

topk, an unstable sort, median, kthvalue and mode may return the place of any of several equal values (PyTorch's
documentation of each). A kernel that takes the lowest place is right, and differs from PyTorch: many probabilities of a
softmax are 0, and logits in bf16 are often equal. argmax, and max and min along a dimension, return the first place.
"""

import contextlib
import functools
from collections.abc import Callable
from enum import Enum
from typing import Any

import torch

from evaluator.errors import ProblemError
from evaluator.judge.compare.tensor_comparison import Comparison
from evaluator.judge.numerics.arithmetic_modes import with_handlers
from evaluator.judge.numerics.summation_orders import limits_of, refused_output, uses
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.call_arguments import Arguments

aten = torch.ops.aten


class TieBreak(Enum):
    """Choice of an operation among equal values."""

    FIRST = "first"
    LAST = "last"


def choosing(choice: TieBreak) -> contextlib.AbstractContextManager[None]:
    """Return a context in which operations take the first or the last of equal values."""
    return with_handlers({func: functools.partial(form, choice) for func, form in _FORMS.items()})


def has_choice(reference: Reference, inputs: Arguments) -> bool:
    """Return whether a call of the reference may choose among equal values."""
    return uses(reference, inputs, frozenset(_FORMS))


def has_ambiguity(reference: Reference, inputs: Arguments) -> bool:
    """Return whether equal values may decide a call of the reference, by a choice or by the place of the first."""
    return uses(reference, inputs, frozenset(_AMBIGUOUS))


def changed_by_choice(
    reference: Reference, inputs: Arguments, gradients: list[torch.Tensor] | None, compare: Comparison
) -> str | None:
    """Return why inputs are left out: another choice among equal values changes an output; else None."""
    expected = reference.expected(inputs, 0, gradients)
    limits = limits_of(reference.problem, reference.values(expected.honest))
    for choice in TieBreak:
        try:
            other = reference.values(reference.altered(inputs, 0, gradients, _choosing_any(choice)))
        except ProblemError:  # An operation without support for the mode is no fault of the problem.
            return None
        if (path := refused_output(reference, other, expected, limits, compare)) is not None:
            return f"{path} depends on the choice among equal values"
    return None


def _choosing_any(choice: TieBreak) -> contextlib.AbstractContextManager[None]:
    """Return a context in which operations that return the first of equal values choose too.

    Kernels with another choice are published as right: no problem of KernelBench draws equal inputs. Equal inputs are
    therefore left out, unless the author draws equal inputs. The answer then has the place that PyTorch documents.
    """
    return with_handlers({func: functools.partial(form, choice) for func, form in _AMBIGUOUS.items()})


def _in_order(tie: TieBreak, values: torch.Tensor, dim: int, *, descending: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sorted values and places; equal values by place, upwards or downwards."""
    if not values.dim():
        return values.clone(), torch.zeros((), dtype=torch.int64, device=values.device)
    if tie is TieBreak.FIRST:
        ordered, places = aten.sort.stable(values, stable=True, dim=dim, descending=descending)
        return ordered, places
    ordered, places = aten.sort.stable(values.flip(dim), stable=True, dim=dim, descending=descending)
    return ordered, values.shape[dim] - 1 - places


def _topk(
    choice: TieBreak,
    func: Any,  # noqa: ARG001 - handlers are called with the operation
    values: torch.Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,  # noqa: FBT001, FBT002 - the arguments of PyTorch's operation
    sorted: bool = True,  # noqa: A002, ARG001, FBT001, FBT002
) -> tuple[torch.Tensor, torch.Tensor]:
    ordered, places = _in_order(choice, values, dim, descending=largest)
    if not values.dim():
        return ordered, places
    return ordered.narrow(dim, 0, k).contiguous(), places.narrow(dim, 0, k).contiguous()


def _sort(
    choice: TieBreak,
    func: Any,
    values: torch.Tensor,
    dim: int = -1,
    descending: bool = False,  # noqa: FBT001, FBT002
    *,
    stable: bool | None = None,
) -> Any:
    if stable:
        return func(values, stable=stable, dim=dim, descending=descending)
    ordered, places = _in_order(choice, values, dim, descending=descending)
    return (ordered, places) if func.overloadpacket is aten.sort else places


def _values_and_index(choice: TieBreak, func: Any, values: torch.Tensor, *args: Any, **options: Any) -> Any:
    """Return the operation's values, and of each the index of the first or the last equal value."""
    results, indices = func(values, *args, **options)
    if not values.dim():
        return results, indices
    names = [argument.name for argument in func._schema.arguments][1:]  # noqa: SLF001
    arguments = {"dim": -1, "keepdim": False} | dict(zip(names, args, strict=False)) | options
    dim, keeps = arguments["dim"], arguments["keepdim"]
    wide = results if keeps else results.unsqueeze(dim)
    is_equal = ((values == wide) | (values.isnan() & wide.isnan())).byte()
    if choice is TieBreak.FIRST:
        return results, is_equal.argmax(dim, keepdim=keeps)
    return results, values.shape[dim] - 1 - is_equal.flip(dim).argmax(dim, keepdim=keeps)


_FORMS: dict[Any, Callable[..., Any]] = {
    aten.topk.default: _topk,
    **dict.fromkeys((aten.sort.default, aten.sort.stable, aten.argsort.stable), _sort),
    **dict.fromkeys((aten.median.dim, aten.nanmedian.dim, aten.kthvalue.default, aten.mode.default), _values_and_index),
}
"""Operations with a choice among equal values. `median` without a dimension returns no place."""


def _first_index(choice: TieBreak, func: Any, values: torch.Tensor, dim: int | None = None, *rest: Any) -> Any:
    """Return the index of the largest or least value, the first or the last of equal values."""
    if choice is TieBreak.FIRST or not values.dim():
        return func(values, dim, *rest)
    if dim is None:
        return values.numel() - 1 - func(values.flatten().flip(0), None, *rest)
    return values.shape[dim] - 1 - func(values.flip(dim), dim, *rest)


_AMBIGUOUS: dict[Any, Callable[..., Any]] = {
    **_FORMS,
    **dict.fromkeys((aten.argmax.default, aten.argmin.default), _first_index),
    **dict.fromkeys((aten.max.dim, aten.min.dim), _values_and_index),
}
"""Operations whose result depends on the places of equal values."""
