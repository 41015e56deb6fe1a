"""Whether errors of many calls go with a rounding, whatever their sizes are.

A correlation of few numbers may be one call's alone, where calls differ in size. So each call in which the rounding is
large has a voice of its own: its errors must go to the rounding's side.
"""

import torch

_LARGEST = 16
"""Of so many calls. Whatever an answer's errors have nothing to do with agrees in all of them in one case of 30 000 at
most: of 20 calls a half lies on each side of a median, so C(4, 2) / C(20, 10); of more calls it is less likely."""


def signs_agree(errors: torch.Tensor, rounding: torch.Tensor, exact: torch.Tensor) -> bool:
    """Say whether errors go to the rounding's side in the calls in which that is largest.

    All are (calls, elements) of float64. Of each element the median is taken out, for what is the same in all calls
    says nothing; and once more relative to its exact values, for so may be what goes with those.
    """
    relative = torch.where(exact == 0, 0.0, 1 / exact)
    return all(_same_side(errors * scale, rounding * scale) for scale in (torch.ones_like(exact), relative))


def _same_side(errors: torch.Tensor, rounding: torch.Tensor) -> bool:
    if len(errors) < _LARGEST:
        return False
    errors, rounding = (values - values.quantile(0.5, dim=0) for values in (errors, rounding))
    largest = rounding.square().sum(1).topk(_LARGEST).indices
    return bool(((errors * rounding).sum(1)[largest] > 0).all())
