"""How far from the exact value an output may be.

`measured`: an element may be off by its row's root mean square times the larger of `multiple` x the honest
reference's own relative error and a `floor`, plus a few units in the last place of its own value. The honest error is
the largest distance of the plain reference from float64, measured on the very same inputs; the floor leaves room for
another order of summation, which a reference that sums in blocks does not show. Where other orders were measured to
do more (`mixture`), the larger of `multiple` x that is the floor.

`kernelbench`: |actual - reference| <= atol + rtol x |reference|, against the plain reference.
"""

from typing import NamedTuple

import torch

from evaluator.records import Precision, Problem, ToleranceRule

_MULTIPLE = 4.0

_FLOORS = {
    # A naive sum of 8192 products in fp32 is off by 1e-5 of the row's root mean square at worst (random walk of
    # 2**-24 roundings, five standard deviations); TF32 operands would be off by 2e-3.
    torch.float32: 5e-5,
    torch.float64: 1e-12,
    # Half of a unit in the last place of a value of the row's own size.
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
}
_TF32_FLOOR = 2e-3
"""Two operands, each rounded by 2**-11 at most: 3e-4 of the row's root mean square, and five standard deviations."""
_UNITS = {
    # CUDA's own expf, tanhf and the like are within 1 to 4 units; a chain of them stays below 16. An honest softmax was
    # seen at 6 on an H200. TF32, the nearest shortcut, is 4096 units wide.
    torch.float32: 16.0,
    torch.float64: 16.0,
    torch.float16: 1.0,
    torch.bfloat16: 1.0,
}
_KERNELBENCH = {torch.float16: 1e-2, torch.bfloat16: 1e-2}
_KERNELBENCH_DEFAULT = 1e-4


class Bounds(NamedTuple):
    """The numbers of a rule for one dtype. `unit` is what an element may be off relative to itself."""

    rule: ToleranceRule
    multiple: float
    floor: float
    unit: float


def bounds(rule: ToleranceRule, problem: Problem, dtype: torch.dtype, rounding: float = 0.0) -> Bounds:
    """Choose the numbers for outputs of `dtype`; a problem's own override the defaults.

    `rounding` is what other orders of summation were seen to do, as a part of the row's root mean square.
    """
    if rule is ToleranceRule.KERNELBENCH:
        tolerance = _KERNELBENCH.get(dtype, _KERNELBENCH_DEFAULT)
        return Bounds(rule, 0.0, tolerance, tolerance)
    override = problem.tolerance
    multiple = _MULTIPLE if override.multiple is None else override.multiple
    is_tf32 = problem.precision is Precision.TF32 and dtype == torch.float32
    usual = _TF32_FLOOR if is_tf32 else _FLOORS.get(dtype, torch.finfo(dtype).eps)
    floor = usual if override.floor is None else override.floor
    return Bounds(rule, multiple, max(floor, multiple * rounding), _UNITS.get(dtype, 1.0) * torch.finfo(dtype).eps)
