"""Tolerance of outputs: the allowed distance from the exact value.

`measured`: an element may be off by

    max(multiple x e, floor) x max(RMS(row), |x|) + half a unit in the last place of x

`e` is the plain reference's own largest error beyond half a unit in the last place, in the same measure and for the
same inputs. The floor leaves room for another order of summation, invisible in a reference that sums in blocks. Where
an answer deviates further, the other orders of this very call may raise the floor (`numerics/rounding_of_call.py`).

The rounding of a sum follows its terms, and a sum that cancels is smaller than its terms: hence the row. An element
above its row's size has the rounding of its own size.

Half precision means products and sums in fp32, and one rounding wherever the reference stores a tensor. A reference of
one operation therefore has no error beyond half a unit, and neither has an answer.

The largest error may be the error of a single element: a function with steps flips some elements between float64 and
the problem's precision. Errors beyond `far` are therefore counted, level by level. The limit for an answer is
`multiple` times the number of honest errors beyond the level / `multiple`, plus a few (`tensor_comparison`).

`kernelbench`: `torch.allclose` against the plain reference (`kernelbench_rule.py`).
"""

import math
from typing import NamedTuple

import torch

from evaluator.judge.compare.benchmark_rules import kernelbench_tolerance
from evaluator.records import Precision, Problem, ToleranceRule

_MULTIPLE = 4.0
_MULTIPLE_IN_HALF = 2.0
"""In half precision an error is the rounding of stored tensors, which does not grow with the order of a sum. Attention
whose weights are rounded to bf16 has 1.4 times the error of PyTorch's."""
WIDEST = 16.0
"""Limit of a tolerance in floors; a wider tolerance hides real errors. On the problem's own inputs, the honest error
alone reaches the limit at `WIDEST / _MULTIPLE` floors: 2e-4 in fp32, as of a naive sum of 8192 x 20**2 products."""
_WIDEST_IN_HALF = 64.0
"""The same in half precision: 1/16 of the row's size in bf16. Operands in fp8 (e4m3) are off by 1/6 at most."""
HALF = frozenset({torch.float16, torch.bfloat16})

_FLOOR_IN_HALF = 1 / 8
"""Units in the last place of half precision: fast intrinsics, as tanh.approx with an error of 2**-11, and sums in fp32
in any order lie below 1/8 unit of bf16."""
_FLOORS = {
    # A naive sum of 8192 products in fp32 is off by 1e-5 of the row's root mean square at worst (random walk of
    # 2**-24 roundings, five standard deviations); TF32 operands would be off by 2e-3.
    torch.float32: 5e-5,
    torch.float64: 1e-12,
    torch.float16: _FLOOR_IN_HALF * 2.0**-10,
    torch.bfloat16: _FLOOR_IN_HALF * 2.0**-7,
}
_ELEMENTWISE_FLOOR = 1e-5
"""Floor of an elementwise map in fp32: the default absolute error of torch.testing.assert_close, at the scale of the
row. An exponential by base 2 of an argument of 64 is off by 5e-6. For calls with the problem's own values, rows with
random signs included: a sigmoid by tanh is off by 6e-8, which is 4e-5 of outputs that other distributions make
small."""
_TF32_FLOOR = 2e-3
"""Two operands, each rounded by 2**-11 at most: 3e-4 of the row's root mean square, and five standard deviations."""
_ROOM, _MOST_FLOOR = 0.05, 0.1
"""Part of the floor for the difference of scales, enough up to the largest floor (`around_reference`)."""
ARITHMETIC = {
    Precision.FP32: torch.float32,
    Precision.TF32: torch.float32,
    Precision.BF16: torch.bfloat16,
    Precision.FP16: torch.float16,
}
"""Dtype of a problem's arithmetic. A returned Python number counts with this precision."""


class Bounds(NamedTuple):
    """Numbers of a rule for a dtype.

    `floor` is relative to the larger of a row's root mean square and the element. `unit` is half a unit in the last
    place, relative to the power of two below the element (KernelBench's rule: relative to the element). Errors beyond
    `far` are counted. `smallest` is an absolute error that every element may have. `widest` is the limit of the
    tolerance in floors. Elements from `fill` on are fill values, as of a mask: their size is not the row's.
    """

    rule: ToleranceRule
    multiple: float
    floor: float
    unit: float
    far: float = math.inf
    smallest: float = 0.0
    widest: float = WIDEST
    fill: float = math.inf

    @property
    def counted_from(self) -> tuple[float, float]:
        """Start levels of the counts: for the answer's errors, and for the honest reference's."""
        far = max(self.far, self.floor)
        return far, far / self.multiple if self.multiple else math.inf


def usual_floor(problem: Problem, dtype: torch.dtype) -> float:
    """Return the floor for outputs of `dtype`, in an arithmetic allowed by the problem."""
    is_tf32 = problem.precision is Precision.TF32 and dtype == torch.float32
    return _TF32_FLOOR if is_tf32 else _FLOORS.get(dtype, torch.finfo(dtype).eps)


def bounds(rule: ToleranceRule, problem: Problem, dtype: torch.dtype, rounding: float = 0.0) -> Bounds:
    """Return the numbers for outputs of `dtype`; the problem's own numbers override the defaults.

    `rounding` is the error of honest arithmetic in the call, in the unit of `floor`.
    """
    if rule is ToleranceRule.KERNELBENCH:
        tolerance = kernelbench_tolerance(dtype)
        return Bounds(rule, 0.0, tolerance, tolerance)
    override = problem.tolerance
    usual_multiple = _MULTIPLE_IN_HALF if dtype in HALF else _MULTIPLE
    multiple = usual_multiple if override.multiple is None else override.multiple
    usual = usual_floor(problem, dtype)
    floor = usual if override.floor is None else override.floor
    widest = _WIDEST_IN_HALF if dtype in HALF else WIDEST
    return Bounds(
        rule=rule,
        multiple=multiple,
        floor=max(floor, multiple * rounding),
        unit=torch.finfo(dtype).eps / 2,
        far=widest * max(usual, floor),
        smallest=_smallest(dtype),
        widest=widest,
    )


def around_reference(limit: Bounds) -> Bounds | None:
    """Return bounds around the plain reference that imply `limit` around the exact value; None where nothing does.

    Let e be the plain reference's largest error beyond half a unit, as a part of the element's scale. An answer at d
    scales from the plain reference is within d + e of the exact value, and max(multiple x e, floor) - e is at least
    (1 - 1 / multiple) x floor for every finite e. A few percent less leave room for the scale, which is the plain
    reference's here: it differs from the exact one by 1.5 e at most. Columns and fill values have scales with steps,
    and the scale of one of a few numbers may be 0. Where float64 has infinities or zeros alone and the plain reference
    has not, the answer is near the plain reference's own errors, which no submission can bring about.
    """
    part = 1 - 1 / limit.multiple - _ROOM if limit.multiple > 1 else 0.0
    if part <= 0 or limit.floor > _MOST_FLOOR or limit.fill < math.inf or limit.rule is ToleranceRule.KERNELBENCH:
        return None
    return limit._replace(multiple=0.0, floor=part * limit.floor, unit=0.0, smallest=0.0, far=math.inf)


def without_sums(limit: Bounds, problem: Problem, dtype: torch.dtype, rounding: float) -> Bounds:
    """Return the numbers for an elementwise map, from the `limit` that `bounds` returned for the same `rounding`.

    Floors of other dtypes and precisions, and floors of the problem's author, stay unchanged; so does the limit of a
    tolerance widened by the reference's own error. KernelBench's rule has no elementwise maps.
    """
    is_fp32 = dtype == torch.float32 and problem.precision is Precision.FP32
    if problem.tolerance.floor is not None or not is_fp32:
        return limit
    floor = max(_ELEMENTWISE_FLOOR, limit.multiple * rounding)
    return limit._replace(floor=floor, widest=limit.widest * limit.floor / floor)


def beside_rounded(limit: Bounds, expected: torch.dtype, dtype: torch.dtype) -> Bounds:
    """Return bounds with room for two roundings to half precision `dtype` if `expected` values have that dtype too.

    The expected values are then those of the plain reference, as where float64 does not fit.
    """
    is_rounded = expected == dtype and dtype in HALF and limit.rule is not ToleranceRule.KERNELBENCH
    return limit._replace(unit=2 * limit.unit) if is_rounded else limit


def last_place(sizes: torch.Tensor) -> torch.Tensor:
    """Return the power of two at or below each of `sizes` (float64, not negative); 0 for 0.

    >>> last_place(torch.tensor([0.0, 1.0, 1.9, 1024.0], dtype=torch.float64)).tolist()
    [0.0, 1.0, 1.0, 1024.0]
    """
    bits = sizes.contiguous().view(torch.int64) & ~((1 << 52) - 1)
    return bits.view(torch.float64)


def _smallest(dtype: torch.dtype) -> float:
    """Return the error of numbers too small for the dtype's precision.

    Subnormal numbers have fewer digits, and `nvcc -ftz=true`, part of `--use_fast_math`, replaces those of fp32 by zero
    (CUDA C++ Programming Guide, "Floating-Point Arithmetic"). GPUs compute fp16 with subnormal numbers.
    """
    info = torch.finfo(dtype)
    return info.smallest_normal * info.eps if dtype == torch.float16 else info.smallest_normal
