"""Numbers of fp16 or bf16 among the values of a float32 output. Pure."""

import torch

_ENOUGH = 64
"""Least number of values. A random float32 number has the mantissa of fp16 once in 2**13 times."""
_MOST = 1 << 16
"""Of more values, so many are looked at."""
_FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The coarser mantissa first: within fp16's range, every bf16 number is an fp16 number."""


def half_numbers(values: torch.Tensor, honest: torch.Tensor) -> str | None:
    """Return "fp16" or "bf16" if all `values` are numbers of this format and the `honest` reference's are not.

    Both may be float32, or in float64 for a comparison. Zeros, infinities and NaN are numbers of every format, and
    count for nothing.

    >>> drawn = torch.rand(99, generator=torch.Generator().manual_seed(1)) + 1
    >>> half_numbers(drawn.half().float(), drawn), half_numbers(drawn, drawn)
    ('fp16', None)
    """
    if values.dtype not in (torch.float32, torch.float64) or values.shape != honest.shape:
        return None
    step = max(values.numel() // _MOST, 1)
    some, own = (side.reshape(-1)[::step] for side in (values, honest))
    known = torch.isfinite(some) & (some != 0)
    if int(known.sum()) < _ENOUGH:
        return None
    name = next((name for name, dtype in _FORMATS.items() if _are_numbers(some[known], dtype)), None)
    return None if name is None or _are_numbers(own[known], _FORMATS[name]) else name


def _are_numbers(values: torch.Tensor, dtype: torch.dtype) -> bool:
    return torch.equal(values.to(dtype).to(values.dtype), values)
