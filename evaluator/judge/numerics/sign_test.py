"""Sign test: whether the errors of many calls follow a rounding, independent of their size.

If calls differ in size, a correlation of few numbers may come from a single call. Each call with a large rounding
therefore has an equal vote: the errors must have the sign of the rounding.
"""

import torch

_LARGEST = 16
"""Number of calls with a vote. Unrelated errors agree in all of them in at most one case of 30 000: of 20 calls, half
lie on each side of a median, giving C(4, 2) / C(20, 10). With more calls, chance agreement is less likely."""


def signs_agree(errors: torch.Tensor, rounding: torch.Tensor, exact: torch.Tensor) -> bool:
    """Return whether errors have the sign of the rounding in the calls with the largest rounding.

    All tensors are float64 of shape (calls, elements). The median of each element is subtracted, since a value equal in
    all calls says nothing. A second pass divides by the exact values, since errors proportional to these values say
    nothing either.
    """
    relative = torch.where(exact == 0, 0.0, 1 / exact)
    return all(_same_side(errors * scale, rounding * scale) for scale in (torch.ones_like(exact), relative))


def _same_side(errors: torch.Tensor, rounding: torch.Tensor) -> bool:
    if len(errors) < _LARGEST:
        return False
    errors, rounding = (values - values.quantile(0.5, dim=0) for values in (errors, rounding))
    largest = rounding.square().sum(1).topk(_LARGEST).indices
    return bool(((errors * rounding).sum(1)[largest] > 0).all())
