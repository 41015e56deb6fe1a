"""Memory of an answer's tensors in the output region, in the same order on both sides."""

from collections.abc import Iterator

import torch

from evaluator.protocol.frames import Done, Items, Node, Table, TensorView

_DTYPES = {name: kind for name, kind in vars(torch).items() if isinstance(kind, torch.dtype)}
"""By name. The attribute of another name can import a part of PyTorch (`torch._inductor`) into the judge."""


def answer_spans(done: Done) -> list[tuple[int, int]]:
    """Return offset and size in bytes of each tensor of an answer, gaps between elements included.

    Tensors without elements or without an offset are left out. The numbers of a runner's answer are hostile.
    """
    return [span for view in answer_views(done) if (span := _span(view)) is not None]


def answer_views(done: Done) -> list[TensorView]:
    """Return all tensors of an answer, gradients included."""
    nodes = [done.outputs, *(view for view in (done.gradients or {}).values() if view is not None)]
    return [view for node in nodes for view in _views(node)]


def _views(node: Node) -> Iterator[TensorView]:
    match node:
        case TensorView():
            yield node
        case Items(items=items) | Table(items=items):
            for item in items:
                yield from _views(item)
        case _:
            return


def _span(view: TensorView) -> tuple[int, int] | None:
    dtype = _DTYPES.get(view.dtype)
    if view.offset_bytes is None or 0 in view.shape or dtype is None:
        return None
    reach = sum((size - 1) * step for size, step in zip(view.shape, view.strides, strict=False))
    return view.offset_bytes, (1 + max(reach, 0)) * dtype.itemsize
