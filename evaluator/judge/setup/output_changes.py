"""Outputs of a reference that are no longer finite with other inputs."""

import torch

from evaluator.judge.formats.elements import wide
from evaluator.judge.reference.reference import Expected, by_path


def newly_nonfinite(expected: Expected, given: Expected) -> str | None:
    """Return the path of an output with values that are not finite, and were so with the `given` inputs."""
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
