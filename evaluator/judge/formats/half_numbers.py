"""Numbers of fp16 or bf16 among the values of a float32 output. Pure."""

import torch

_ENOUGH = 64
"""Least number of values. A random float32 number has the mantissa of fp16 once in 2**13 times."""
_MOST_HONEST = 1 / 16
"""Part of the reference's values that may be numbers of the format by chance. Of counts and ties, all are."""
_FORMATS = {"bf16": (torch.bfloat16, 8), "fp16": (torch.float16, 11)}
"""Dtype and bits of a mantissa. The coarser first: within fp16's range, every bf16 number is an fp16 number."""
_BINADES, _IN_BINADE, _ODD = 2, 16, 0.25
"""The last bit of a rounded mantissa is set in half of the values, in each binade. Whole numbers and other multiples of
a constant use the last bit in one binade alone."""


def half_numbers(values: torch.Tensor, honest: torch.Tensor) -> str | None:
    """Return "fp16" or "bf16" if all `values` are rounded to this format and the `honest` reference's are not.

    Both may be float32, or in float64 for a comparison. Zeros, infinities and NaN are numbers of every format, and
    count for nothing.

    >>> drawn = torch.randn(999, generator=torch.Generator().manual_seed(1))
    >>> half_numbers(drawn.half().float(), drawn), half_numbers(drawn, drawn), half_numbers(drawn.round(), drawn)
    ('fp16', None, None)
    """
    if values.dtype not in (torch.float32, torch.float64) or values.shape != honest.shape:
        return None
    is_counted = torch.isfinite(values) & (values != 0)
    some, plain = values[is_counted], honest[is_counted]
    if some.numel() < _ENOUGH:
        return None
    for name, (dtype, bits) in _FORMATS.items():
        if bool(_are_numbers(some, dtype).all()):
            is_rounded = _uses_last_bit(some, bits) and bool(_are_numbers(plain, dtype).double().mean() <= _MOST_HONEST)
            return name if is_rounded else None
    return None


def _are_numbers(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return values.to(dtype).to(values.dtype) == values


def _uses_last_bit(values: torch.Tensor, bits: int) -> bool:
    """Return whether values of several binades use the last bit of a mantissa."""
    mantissas, exponents = torch.frexp(values.double())
    is_odd = (mantissas * 2.0**bits).abs() % 2 == 1
    used = 0
    for exponent in sorted(set(exponents.tolist())):
        of_binade = is_odd[exponents == exponent]
        used += of_binade.numel() >= _IN_BINADE and bool(of_binade.double().mean() >= _ODD)
    return used >= _BINADES
