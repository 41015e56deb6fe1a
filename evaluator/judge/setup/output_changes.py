"""Changes of a reference's outputs with other inputs: values no longer finite, and differences beyond the tolerance."""

import torch

from evaluator.judge.compare.limits import with_scales
from evaluator.judge.compare.tensor_comparison import Comparison, Limit, Sides
from evaluator.judge.formats.elements import wide
from evaluator.judge.reference.reference import Expected, by_path
from evaluator.records import Problem

_CHANGED_PART = 0.01
_FAR = 0.1


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


def differ(
    problem: Problem, expected: Expected, other: Expected, limits: dict[str, Limit], compare: Comparison
) -> bool:
    """Return whether other inputs lead to outputs that a comparison distinguishes, in some part of some output."""
    exact, honest, instead = by_path(expected.exact), by_path(expected.honest), by_path(other.honest)
    for path, plain in honest.items():
        if not isinstance(plain, torch.Tensor) or instead[path].shape != plain.shape:
            continue
        wanted = exact[path] if limits[path] is not None else exact[path].to(plain.dtype)
        sides = {at: Sides(instead[at], exact[at], honest[at]) for at in honest}
        limit = with_scales(limits[path], problem, path, sides)
        check = compare(path, Sides(instead[path], wanted, plain), limit)()
        many = check.mismatches >= max(_CHANGED_PART * plain.numel(), 1)
        if many or (check.mismatches > 0 and _far(instead[path], wanted)):
            return True
    return False


def _far(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether outputs with few different elements are far apart, as for a softmax that is nearly one-hot."""
    one, other = wide(one), wide(other)
    dtype = torch.promote_types(one.dtype, torch.float64)
    one, other = (torch.where(torch.isfinite(each), each, 0.0).to(dtype) for each in (one, other))
    return bool((one - other).abs().square().sum() > _FAR**2 * other.abs().square().sum())
