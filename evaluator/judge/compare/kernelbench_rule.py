"""KernelBench's rule for an output: `torch.allclose`, against the plain reference's output.

KernelBench requires equal shapes and calls `torch.allclose(output, output_new)` with one number for both tolerances
(`run_and_check_correctness` of src/kernelbench/eval.py at 423217d). The arithmetic is the dtype's, the relative part
is of the submission's element, equal infinities agree, and NaN agrees with nothing.
"""

from collections.abc import Sequence

import torch

from evaluator.judge.compare.pieces import pieces
from evaluator.judge.formats.elements import wide

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
