"""Views of a runner's outputs in shared memory. Every number of an answer is hostile."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from evaluator.devices.memory import Region, strided
from evaluator.findings import Code, finding
from evaluator.findings.running import FREE_TEMPORARIES
from evaluator.judge.tensors.pytree import AnswerPair, Value, unravelled
from evaluator.protocol.frames import Node, Opaque, Scalar, TensorView
from evaluator.protocol.pytree import dtype_name, plain
from evaluator.records import Finding

_SAMPLED = 4096
_PIECE_ELEMENTS = 1 << 24
"""Elements summed at once: PyTorch's sum of integers first makes a copy in int64."""
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class OutputViews(NamedTuple):
    """An output, or a float with a tolerance; `storage` is the output's memory as reported by the runner.

    On the host, `tensor` is a copy, made while the runner was stopped. On a GPU, `tensor` is the shared memory. The
    comparison reads each element once, and samples from inside the clock reveal later changes.
    """

    path: str
    expected: torch.Tensor | float
    tensor: torch.Tensor
    storage: tuple[int, int] | None


def some_bits(views: Sequence[OutputViews]) -> bytes:
    """Return the bits of some thousand elements of each output, at places that follow from the shape alone.

    The sum of all elements' bits follows, as integers: a single other element changes it.
    """
    parts: list[bytes] = []
    for view in views:
        tensor = torch.view_as_real(view.tensor) if view.tensor.is_complex() else view.tensor
        count = tensor.numel()
        places = torch.arange(0, count, max(count // _SAMPLED, 1), device=tensor.device)
        bits = tensor.view(_INTEGERS[tensor.element_size()])
        some = bits[unravelled(places, tensor.shape)] if count and tensor.dim() else bits
        total = str(_total(bits)) if count else ""
        parts.append(some.cpu().numpy().tobytes() + total.encode())
    return b"".join(parts)


def _total(bits: torch.Tensor) -> int:
    bits = bits if bits.dim() else bits[None]
    longest = max(range(bits.dim()), key=bits.shape.__getitem__)
    pieces = torch.split(bits, max(_PIECE_ELEMENTS * bits.shape[longest] // bits.numel(), 1), longest)
    return int(torch.stack([piece.sum(dtype=torch.int64) for piece in pieces]).sum())


def output_views(
    pairs: list[AnswerPair], region: Region, number: Callable[[float], torch.Tensor] = torch.tensor
) -> list[OutputViews] | Finding:
    """Return a view of every tensor in an answer. Plain values are compared at once.

    Floats are an exception: rounding may change a float, so `number` makes a tensor for the comparison.
    """
    snapshots: list[OutputViews] = []
    for path, expected, answer in pairs:
        if isinstance(expected, torch.Tensor):
            views = _take_one(path, expected, answer, region)
            if isinstance(views, Finding):
                return views
            snapshots.append(views)
        elif (answered_number := _as_number(expected, answer, number)) is not None:
            snapshots.append(OutputViews(path, expected, answered_number, None))
        elif (problem := _compare_plain(path, expected, answer)) is not None:
            return problem
    return snapshots


def _take_one(path: str, expected: torch.Tensor, answer: Node, region: Region) -> OutputViews | Finding:
    match answer:
        case Scalar(value=value):
            return finding(Code.NOT_A_TENSOR, f"{path} is a {type(value).__name__}, not a tensor", path=path)
        case Opaque(type_name=name):
            return finding(Code.NOT_A_TENSOR, f"{path} is a {name[:80]}, not a dense tensor", path=path)
        case TensorView():
            return _checked(path, expected, answer, region)
        case _:
            return finding(Code.WRONG_STRUCTURE, f"{path} is not a single tensor", path=path)


def _checked(path: str, expected: torch.Tensor, view: TensorView, region: Region) -> OutputViews | Finding:
    if view.shape != tuple(expected.shape):
        expected_shape, actual_shape = list(expected.shape), _shape_text(view.shape)
        return finding(Code.WRONG_SHAPE, f"{path} has shape {actual_shape}, expected {expected_shape}", path=path)
    if view.dtype != dtype_name(expected.dtype):
        wanted_dtype = dtype_name(expected.dtype)
        return finding(Code.WRONG_DTYPE, f"{path} has dtype {view.dtype[:40]}, expected {wanted_dtype}", path=path)
    device = region.flat.device
    if view.device != device.type:
        return finding(Code.WRONG_DEVICE, f"{path} is on {view.device[:40]}, expected on {device.type}", path=path)
    if view.offset_bytes is None:
        message = f"the memory for outputs is exhausted: {path} lies outside, and no room is left for its copy"
        return finding(Code.OUT_OF_MEMORY, message, next_step=FREE_TEMPORARIES, path=path)
    try:
        shared = strided(region.flat, expected.dtype, view.shape, view.strides, view.offset_bytes)
    except ValueError as error:
        return finding(Code.MALFORMED_FRAME, f"{path}: {error}", path=path)
    return OutputViews(path, expected, shared.clone() if device.type == "cpu" else shared, view.storage)


def _as_number(expected: Value, answer: Node, number: Callable[[float], torch.Tensor]) -> torch.Tensor | None:
    """Return an answered float as a tensor, for an expected float; else None.

    A conversion that overflows or vanishes, of the answered or of the expected float, also returns None.
    """
    match answer:
        case Scalar(value=float(value)) if isinstance(expected, float):
            pairs = [(plain_value, number(plain_value)) for plain_value in (value, float(expected))]
            kept = all(
                bool(tensor.isfinite()) is math.isfinite(plain_value) and bool(tensor == 0) is (plain_value == 0)
                for plain_value, tensor in pairs
            )
            return pairs[0][1] if kept else None
        case _:
            return None


def _compare_plain(path: str, expected: object, answer: Node) -> Finding | None:
    if not isinstance(answer, Scalar):
        return finding(Code.WRONG_STRUCTURE, f"{path} is not a plain value, expected {expected!r}", path=path)
    expected = plain(expected)
    both_nan = answer.value != answer.value and expected != expected  # noqa: PLR0124 - NaN alone differs from itself
    if type(answer.value) is not type(expected) or not (both_nan or answer.value == expected):
        return finding(Code.WRONG_VALUES, f"{path} is {str(answer.value)[:80]}, expected {expected!r}", path=path)
    return None


def _shape_text(shape: tuple[int, ...]) -> str:
    return str(list(shape)) if len(shape) <= 12 else f"{list(shape[:12])} and {len(shape) - 12} more dimensions"
