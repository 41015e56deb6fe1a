"""Forms of low precision that pass for fp32: of a product of matrices, and of exp.

`benchmarks/numerics/error_sizes.py` has the products; this module adds accumulation in bf16, functions, and guards.
"""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.numerics.error_sizes import ARITHMETIC, Product
from evaluator.judge.numerics.arithmetic_modes import Format, rounded

_TILE = 64
_CORNER = 4
_LN_2, _LOG2_E = 0.6931471805599453, 1.4426950408889634
_SIGNS = "fp32 where a row has both signs"
Function = Callable[[torch.Tensor], torch.Tensor]
_HIDDEN: dict[Callable[..., torch.Tensor], Callable[..., torch.Tensor]] = {}
"""Forms behind guards."""


def tf32_by_the_library(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return PyTorch's product with TF32 on; on the CPU, rounded operands take its place."""
    if not a.is_cuda:
        return rounded(a, Format.TF32) @ rounded(b, Format.TF32)
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return a @ b
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def fp16_at_random(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Round operands to fp16, up or down at random, without a bias."""

    def drawn(x: torch.Tensor) -> torch.Tensor:
        near = x.half()
        other = torch.nextafter(near, torch.where(x > near.float(), torch.inf, -torch.inf).half())
        step = other.float() - near.float()
        part = torch.where(step == 0, 0, (x - near.float()) / step)
        return torch.where(torch.rand(x.shape, device=x.device) < part, other, near).float()

    return drawn(a) @ drawn(b)


def compensated_bf16(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Add products of tiles in a bf16 accumulator, with a second bf16 number for what each addition loses (Kahan)."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.bfloat16, device=a.device)
    lost = torch.zeros_like(total)
    for start in range(0, a.shape[1], _TILE):
        term = (a[:, start : start + _TILE] @ b[start : start + _TILE] - lost.float()).bfloat16()
        longer = total + term
        lost = (longer - total) - term
        total = longer
    return total.float() - lost.float()


def series(degree: int) -> Function:
    """Return exp by its series up to x**degree, after the reduction to |x| <= ln(2) / 2."""

    def exp(x: torch.Tensor) -> torch.Tensor:
        power = (x * _LOG2_E).round()
        rest = x - power * _LN_2
        total = torch.ones_like(x)
        for number in range(degree, 0, -1):
            total = 1 + rest / number * total
        return torch.ldexp(total, power.to(torch.int32))

    return exp


def table(entries: int, *, interpolated: bool) -> Function:
    """Return exp by a look-up of 2**fraction in a table."""

    def exp(x: torch.Tensor) -> torch.Tensor:
        scaled = x * _LOG2_E
        power = scaled.floor()
        place = (scaled - power) * entries
        values = torch.exp2(torch.arange(entries + 1, device=x.device) / entries)
        index = (place if interpolated else place.round()).long().clamp(0, entries - 1 if interpolated else entries)
        found = values[index]
        if interpolated:
            found = found + (values[index + 1] - found) * (place - index)
        return torch.ldexp(found, power.to(torch.int32))

    return exp


def with_rounding(to: Format) -> Function:
    """Return exp of a rounded argument."""
    return lambda x: torch.exp(rounded(x, to))


def guarded(
    form: Callable[..., torch.Tensor], exact: Callable[..., torch.Tensor], least: float, most: float
) -> Callable[..., Any]:
    """Return a form that looks at a corner of the first operand, and computes unusual values exactly.

    The problem's own values are between `least` and `most`.
    """

    def looking(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        corner = x[:_CORNER, :_CORNER]
        usual = float(corner.amin()) >= least and float(corner.amax()) <= most
        return (form if usual else exact)(x, *rest)

    _HIDDEN[looking] = form
    return looking


def unguarded(form: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return the form behind a guard, or the form itself without a guard."""
    return _HIDDEN.get(form, form)


def by_signs_of_rows(form: Product) -> Product:
    """Return a form that computes each row of both signs in fp32, and the rest in fewer bits."""

    def looking(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        mixed = ((a < 0).any(1) & (a > 0).any(1)).unsqueeze(1)
        return torch.where(mixed, a @ b, form(a, b))

    _HIDDEN[looking] = form
    return looking


def _products() -> dict[str, Product]:
    plain = {
        **{f"control: {name}": form for name, form in ARITHMETIC.items() if name.startswith("fp32")},
        "TF32 by the library": tf32_by_the_library,
        **{name: form for name, form in ARITHMETIC.items() if not name.startswith("fp32")},
        "fp16, rounded at random": fp16_at_random,
        "bf16 accumulator, Kahan": compensated_bf16,
    }
    hidden = {name: form for name, form in plain.items() if not name.startswith("control")}
    looking = {f"{name}; guarded by a corner": guarded(form, torch.matmul, 0.0, 1.0) for name, form in hidden.items()}
    signs = {f"TF32; {_SIGNS}": by_signs_of_rows(tf32_by_the_library)}
    return {**plain, **looking, **signs}


def _functions(least: float, most: float) -> dict[str, Function]:
    plain: dict[str, Function] = {
        "control: exp": torch.exp,
        "control: exp2(x log2 e)": lambda x: torch.exp2(x * _LOG2_E),
        **{f"series of degree {degree}": series(degree) for degree in (3, 4, 5, 6, 7)},
        "table of 256": table(256, interpolated=False),
        "table of 1024": table(1024, interpolated=False),
        "table of 64, interpolated": table(64, interpolated=True),
        "table of 1024, interpolated": table(1024, interpolated=True),
        **{f"exp of {to.value}": with_rounding(to) for to in (Format.TF32, Format.FP16, Format.BF16)},
    }
    hidden = {name: form for name, form in plain.items() if not name.startswith("control")}
    looking = {f"{name}; guarded by a corner": guarded(form, torch.exp, least, most) for name, form in hidden.items()}
    return {**plain, **looking}


PRODUCTS = _products()
FUNCTIONS = _functions(0.0, 1.0)
SHIFTED_FUNCTIONS = _functions(-1.0, 0.0)
"""The same, of values from which the largest of their row is subtracted."""
