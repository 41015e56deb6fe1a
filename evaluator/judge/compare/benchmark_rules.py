"""Rules of benchmarks for an output, against the plain reference's output: a second opinion beside the tolerance.

KernelBench requires equal shapes and calls `torch.allclose(output, output_new)` with one number for both tolerances
(`run_and_check_correctness` of src/kernelbench/eval.py at 423217d). The arithmetic is the dtype's, the relative part
is of the submission's element, equal infinities agree, and NaN agrees with nothing.

SOL-ExecBench (`compute_error_stats` of core/bench/correctness.py): both sides in fp32; an error is at most atol +
rtol * |reference| in a required share of the elements, and nowhere above a cap. NaN and infinities fail, even where
the reference has them; zeros alone fail where the reference has other values. FlashInfer-Bench (`compute_error_stats`
of bench/utils.py) accepts an element whose error is small absolutely or relatively.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from evaluator.judge.tensors.number_formats import wide
from evaluator.records import MatchedRatio

_PIECE = 1 << 22
"""Elements compared at once: the temporaries of `torch.isclose` take 100 MiB in fp32."""


class Piece(NamedTuple):
    """Equal parts of two outputs. `apart` has the uncounted slices, by dimension and index in the piece."""

    actual: torch.Tensor
    honest: torch.Tensor
    apart: list[tuple[int, int]]


def pieces(actual: torch.Tensor, honest: torch.Tensor, apart: Sequence[tuple[int, int]] = ()) -> Iterator[Piece]:
    """Yield outputs of equal shape in pieces along the longest dimension, at least one."""
    if not honest.dim():
        actual, honest = actual[None], honest[None]
    longest = max(range(honest.dim()), key=honest.shape.__getitem__)
    step = max(_PIECE * honest.shape[longest] // max(honest.numel(), 1), 1)
    halves = (torch.split(side, step, longest) for side in (actual, honest))
    for number, (one, other) in enumerate(zip(*halves, strict=True)):
        places = [(dim, index - number * step if dim == longest else index) for dim, index in apart]
        yield Piece(one, other, [(dim, place) for dim, place in places if 0 <= place < other.shape[dim]])


_IN_HALF, _USUAL = 1e-2, 1e-4


def kernelbench_tolerance(dtype: torch.dtype) -> float:
    """Return the absolute and relative tolerance for an output of `dtype`."""
    return _IN_HALF if dtype in (torch.float16, torch.bfloat16) else _USUAL


def agrees(actual: torch.Tensor, honest: torch.Tensor) -> torch.Tensor:
    """Return where an output agrees with the plain reference's, as booleans in the common shape."""
    tolerance = kernelbench_tolerance(honest.dtype)
    return torch.isclose(wide(honest), wide(actual.to(honest.dtype)), rtol=tolerance, atol=tolerance)


def all_agree(actual: torch.Tensor, honest: torch.Tensor, apart: Sequence[tuple[int, int]] = ()) -> torch.Tensor:
    """Return whether all elements agree, as a boolean on the tensors' device: no step waits for a GPU.

    Slices `apart`, each a dimension with an index, do not count. An output without elements agrees.
    """
    flags = []
    for piece in pieces(actual, honest, apart):
        close = agrees(piece.actual, piece.honest)
        for dim, place in piece.apart:
            close.select(dim, place).fill_(True)  # noqa: FBT003 - the value of all elements
        flags.append(close.all())
    return torch.stack(flags).all()


_NEAR_ZERO = 1e-8
"""FlashInfer-Bench's addend to the divisor of a relative error."""


def compared(
    actual: torch.Tensor, honest: torch.Tensor, apart: Sequence[tuple[int, int]], rule: MatchedRatio
) -> torch.Tensor:
    """Return counts of an output's part: elements, mismatches, faults, elements other than zero of both; largest error.

    The six numbers, in float64, stay on the tensors' device: no step waits for a GPU. Slices `apart` do not count.
    """
    parts = []
    for piece in pieces(actual, honest, apart):
        given, expected = (wide(side).float() for side in (piece.actual.to(piece.honest.dtype), piece.honest))
        counts = torch.ones_like(expected, dtype=torch.bool)
        for dim, place in piece.apart:
            counts.select(dim, place).fill_(False)  # noqa: FBT003 - the value of all elements
        fault = ~(given.isfinite() & expected.isfinite())
        if rule.allow_negative_inf:
            agreed = (given == -torch.inf) & (expected == -torch.inf)
            fault, counts = fault & ~agreed, counts & ~agreed
        error = (given - expected).abs()
        near = error <= rule.max_atol + rule.max_rtol * expected.abs()
        if rule.either:
            near = (error <= rule.max_atol) | (error / (expected.abs() + _NEAR_ZERO) <= rule.max_rtol)
        tallies = (counts, counts & ~near, counts & fault, counts & (expected != 0), counts & (given != 0))
        sums = [each.sum(dtype=torch.float64) for each in tallies]
        largest = torch.where(counts & ~fault, error, 0).double().amax() if error.numel() else sums[0]
        parts.append(torch.stack([*sums, largest]))
    return torch.stack(parts)


def fault(parts: Sequence[torch.Tensor], rule: MatchedRatio) -> str | None:
    """Return why an output fails, given the results of all parts; None if it passes."""
    table = torch.cat([part.cpu() for part in parts])
    elements, mismatches, faults, expected, given = table[:, :5].sum(0).tolist()
    if faults:
        return "NaN or infinities"
    if expected and not given:
        return "zeros alone"
    largest = table[:, 5].max().item()
    if rule.max_error_cap is not None and largest > rule.max_error_cap:
        return f"an error of {largest:.3g}, above {rule.max_error_cap:.3g}"
    if elements and 1 - mismatches / elements < rule.required_matched_ratio:
        return (
            f"{mismatches:.0f} of {elements:.0f} values differ, more than {1 - rule.required_matched_ratio:.3g} of all"
        )
    return None
