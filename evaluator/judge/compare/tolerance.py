"""How far from the exact value an output may be.

`measured`: an element may be off by its row's root mean square times the larger of `multiple` x the honest
reference's own relative error and a `floor`, plus a few units in the last place of its own value. The honest error is
the largest distance of the plain reference from float64, measured on the very same inputs; the floor leaves room for
another order of summation, which a reference that sums in blocks does not show. Where other orders were measured to
do more (`distribution_mix`), the larger of `multiple` x that is the floor.

The largest error may be that of one element: a function with steps flips some between float64 and the problem's
precision. So errors beyond `far` are counted, level by level: of an answer's, at most `multiple` times as many may be
larger than some size as of the honest reference's are larger than that size by `multiple`, and a few more
(`tensor_comparison`).

`kernelbench`: |actual - reference| <= atol + rtol x |reference|, against the plain reference.
"""

import math
from typing import NamedTuple

import torch

from evaluator.records import Precision, Problem, ToleranceRule

_MULTIPLE = 4.0
WIDEST = 16.0
"""A tolerance of more than so many times its floor hides what it is to show. On inputs as given the honest error alone
reaches it where it is `WIDEST / _MULTIPLE` floors: 2e-4 in fp32, as of a naive sum of 8192 x 20**2 products."""

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
ARITHMETIC = {
    Precision.FP32: torch.float32,
    Precision.TF32: torch.float32,
    Precision.BF16: torch.bfloat16,
    Precision.FP16: torch.float16,
}
"""What a problem computes in: a Python number that it returns comes from there, whatever Python keeps it in."""
_KERNELBENCH = {torch.float16: 1e-2, torch.bfloat16: 1e-2}
_KERNELBENCH_DEFAULT = 1e-4


class Rounding(NamedTuple):
    """What other orders of summation were seen to do to an output, as parts of the row's root mean square.

    All but few elements stay below `usual`; those are off by up to `rare`, or by no more than the others where it is 0.
    """

    usual: float = 0.0
    rare: float = 0.0


_NO_ROUNDING = Rounding()


class Bounds(NamedTuple):
    """The numbers of a rule for one dtype. `unit` is what an element may be off relative to itself.

    The others are parts of a row's root mean square. Errors beyond `far` are counted; `rare` is the largest error that
    other orders of summation make in a few elements, and no floor for all. `far_unit` of an element itself is not far
    either: where it is many times its row's size, its own roundings in bf16 are a large part of that.
    """

    rule: ToleranceRule
    multiple: float
    floor: float
    unit: float
    far: float = math.inf
    rare: float = 0.0
    far_unit: float = 0.0

    @property
    def least(self) -> float:
        """What an element may be off whatever the honest error."""
        return max(self.floor, self.multiple * self.rare)

    @property
    def counted_from(self) -> tuple[float, float]:
        """Where errors begin to be counted: an answer's, and the honest reference's."""
        far = max(self.far, self.floor)
        return far, far / self.multiple if self.multiple else math.inf


def usual_floor(problem: Problem, dtype: torch.dtype) -> float:
    """Give the floor for outputs of `dtype`, in an arithmetic that the problem allows."""
    is_tf32 = problem.precision is Precision.TF32 and dtype == torch.float32
    return _TF32_FLOOR if is_tf32 else _FLOORS.get(dtype, torch.finfo(dtype).eps)


def bounds(rule: ToleranceRule, problem: Problem, dtype: torch.dtype, rounding: Rounding = _NO_ROUNDING) -> Bounds:
    """Choose the numbers for outputs of `dtype`; a problem's own override the defaults."""
    if rule is ToleranceRule.KERNELBENCH:
        tolerance = _KERNELBENCH.get(dtype, _KERNELBENCH_DEFAULT)
        return Bounds(rule, 0.0, tolerance, tolerance)
    override = problem.tolerance
    multiple = _MULTIPLE if override.multiple is None else override.multiple
    usual = usual_floor(problem, dtype)
    floor = usual if override.floor is None else override.floor
    unit, last_place = _UNITS.get(dtype, 1.0), torch.finfo(dtype).eps
    return Bounds(
        rule=rule,
        multiple=multiple,
        floor=max(floor, multiple * rounding.usual),
        unit=unit * last_place,
        far=WIDEST * max(usual, floor),
        rare=rounding.rare,
        # An honest result is off by half of its last place, and an answer may be off `multiple` times as far.
        far_unit=max(unit, multiple / 2) * last_place,
    )
