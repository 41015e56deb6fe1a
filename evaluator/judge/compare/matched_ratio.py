"""SOL-ExecBench's and FlashInfer-Bench's rules for an output: enough elements are near the plain reference's.

SOL-ExecBench (`compute_error_stats` of core/bench/correctness.py): both sides in fp32; an error is at most atol +
rtol * |reference| in a required share of the elements, and nowhere above a cap. NaN and infinities fail, even where
the reference has them; zeros alone fail where the reference has other values. FlashInfer-Bench (`compute_error_stats`
of bench/utils.py) accepts an element whose error is small absolutely or relatively.
"""

from collections.abc import Sequence

import torch

from evaluator.judge.compare.pieces import pieces
from evaluator.judge.formats.elements import wide
from evaluator.records import MatchedRatio

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


def accepted(parts: Sequence[torch.Tensor], rule: MatchedRatio) -> bool:
    """Return whether an output passes, given the results of all parts."""
    table = torch.cat([part.cpu() for part in parts])
    elements, mismatches, faults, expected, given = table[:, :5].sum(0).tolist()
    if faults or (expected and not given):
        return False
    if rule.max_error_cap is not None and table[:, 5].max().item() > rule.max_error_cap:
        return False
    return not elements or 1 - mismatches / elements >= rule.required_matched_ratio
