"""Outputs of a reference with NaN or infinity for other inputs alone."""

import torch

from evaluator.judge.formats.elements import wide
from evaluator.judge.reference.reference import Expected, by_path


def newly_nonfinite(expected: Expected, given: Expected) -> str | None:
    """Return the path of an output with NaN or infinity in `expected`, and only finite values in `given`."""
    before = by_path(given.honest)
    for path, tensor in by_path(expected.honest).items():
        if not isinstance(tensor, torch.Tensor) or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        known = before.get(path)
        if isinstance(known, torch.Tensor) and _finite(known) and not _finite(tensor):
            return path
    return None


def _finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(wide(tensor)).all())
