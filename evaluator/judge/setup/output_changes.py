"""Outputs of a reference with NaN or infinity for other inputs alone."""

import torch

from evaluator.judge.formats.elements import wide
from evaluator.judge.reference.reference import Expected, by_path


def newly_nonfinite(expected: Expected, as_given: Expected) -> str | None:
    """Return the path of an output with NaN or infinity in `expected`, and only finite values in `as_given`."""
    before = by_path(as_given.honest)
    for path, tensor in by_path(expected.honest).items():
        if not isinstance(tensor, torch.Tensor) or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        earlier = before.get(path)
        if isinstance(earlier, torch.Tensor) and _finite(earlier) and not _finite(tensor):
            return path
    return None


def _finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(wide(tensor)).all())
