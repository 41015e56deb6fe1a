"""Tolerance of outputs: the allowed distance from the exact value.

`measured`: the tolerance of an element has two terms. The first is the row's root mean square times the larger of a
`floor` and `multiple` x the honest reference's relative error. The second is a few units in the last place of the
element. The honest error is the largest distance of the plain reference from float64, measured on the same inputs, less
`honest_unit` of each element. Otherwise the last place of the largest element would widen the tolerance of all: in a
SwiGLU in bf16 the largest of 500,000 elements is 20 times its row's size. The floor leaves room for another order of
summation, invisible in a reference that sums in blocks. If other orders were measured to deviate further
(`distribution_mix`), the floor is `multiple` x this deviation.

The largest error may be the error of a single element: a function with steps flips some elements between float64 and
the problem's precision. Errors beyond `far` are therefore counted, level by level. The limit for an answer is
`multiple` times the number of honest errors beyond the level / `multiple`, plus a few (`tensor_comparison`).

`kernelbench`: |actual - reference| <= atol + rtol x |reference|, against the plain reference.
"""

import math
from typing import NamedTuple

import torch

from evaluator.records import Precision, Problem, ToleranceRule

_MULTIPLE = 4.0
WIDEST = 16.0
"""Limit of a tolerance in floors; a wider tolerance hides real errors. On the problem's own inputs, the honest error
alone reaches the limit at `WIDEST / _MULTIPLE` floors: 2e-4 in fp32, as of a naive sum of 8192 x 20**2 products."""
_WIDEST_IN_HALF = 4.0
"""The same in half precision: 1/16 of the row's size in bf16. Operands in fp8 (e4m3) are off by 1/6 at most."""
_HALF = frozenset({torch.float16, torch.bfloat16})

_FLOORS = {
    # A naive sum of 8192 products in fp32 is off by 1e-5 of the row's root mean square at worst (random walk of
    # 2**-24 roundings, five standard deviations); TF32 operands would be off by 2e-3.
    torch.float32: 5e-5,
    torch.float64: 1e-12,
    # Two units in the last place of a value of the row's own size. A product of 2048 terms that adds two to eight
    # partial sums in half precision, as cuBLAS does by default, is off by 0.5 to 0.9 of the tolerance.
    torch.float16: 2.0**-9,
    torch.bfloat16: 2.0**-6,
}
_ELEMENTWISE_FLOOR = 1e-5
"""Floor of an elementwise map in fp32: the default absolute error of torch.testing.assert_close, at the scale of the
row. The default relative error of assert_close, 1.3e-6, is 11 of the 16 units. For calls with the problem's own values,
rows with random signs included: a sigmoid by tanh is off by 6e-8, which is 4e-5 of outputs that other distributions
make small."""
_TF32_FLOOR = 2e-3
"""Two operands, each rounded by 2**-11 at most: 3e-4 of the row's root mean square, and five standard deviations."""
_UNITS = {
    # CUDA's own expf, tanhf and similar functions are within 1 to 4 units; chained calls stay below 16. An honest
    # softmax had an error of 6 on an H200. TF32, the nearest shortcut, is 4096 units wide.
    torch.float32: 16.0,
    torch.float64: 16.0,
    # PyTorch rounds the result of each operation: two operations are off by 1.5 units. torch.testing.assert_close
    # allows 2 units in bf16.
    torch.float16: 2.0,
    torch.bfloat16: 2.0,
}
ARITHMETIC = {
    Precision.FP32: torch.float32,
    Precision.TF32: torch.float32,
    Precision.BF16: torch.bfloat16,
    Precision.FP16: torch.float16,
}
"""Dtype of a problem's arithmetic. A returned Python number counts with this precision."""
_KERNELBENCH = {torch.float16: 1e-2, torch.bfloat16: 1e-2}
_KERNELBENCH_DEFAULT = 1e-4


_BESIDE_EXPONENTIALS = 8
"""Units for the steps beside the argument of an exponential: the power of two has 2 ulp, and each of the few
operations of a sigmoid, silu or tanh by exponentials one."""


class Rounding(NamedTuple):
    """Measured effect of other summation orders on an output, relative to the row's root mean square.

    All but few elements have errors below `usual`. The rest have errors up to `rare`, or below `usual` if `rare` is 0.
    `unit` is an error relative to the element itself: the argument of an exponential, times its rounding. `flipped` is
    the part of the elements with errors far beyond `usual`: a step of the reference, crossed in another order.
    """

    usual: float = 0.0
    rare: float = 0.0
    unit: float = 0.0
    flipped: float = 0.0


_NO_ROUNDING = Rounding()


class Bounds(NamedTuple):
    """Numbers of a rule for a dtype. `unit` is the tolerance of an element relative to the element.

    The other numbers are relative to a row's root mean square. Errors beyond `far` are counted. `rare` is the largest
    error of other summation orders in a few elements, and does not raise `floor`; `flipped` is the part of elements
    that other orders flip. An error within `far_unit` of the element is not far either: in an element many times its
    row's size, the element's own bf16 roundings are a large part of `far`. `smallest` is an absolute error that every
    element may have. `honest_unit`, relative to the element, is excluded from an honest error before its multiplication
    by `multiple`. `widest` is the limit of the tolerance in floors.
    """

    rule: ToleranceRule
    multiple: float
    floor: float
    unit: float
    far: float = math.inf
    rare: float = 0.0
    flipped: float = 0.0
    far_unit: float = 0.0
    smallest: float = 0.0
    honest_unit: float = 0.0
    widest: float = WIDEST

    @property
    def least(self) -> float:
        """Minimum tolerance of an element, independent of the honest error."""
        return max(self.floor, self.multiple * self.rare)

    @property
    def counted_from(self) -> tuple[float, float]:
        """Start levels of the counts: for the answer's errors, and for the honest reference's."""
        far = max(self.far, self.floor)
        return far, far / self.multiple if self.multiple else math.inf


def usual_floor(problem: Problem, dtype: torch.dtype) -> float:
    """Return the floor for outputs of `dtype`, in an arithmetic allowed by the problem."""
    is_tf32 = problem.precision is Precision.TF32 and dtype == torch.float32
    return _TF32_FLOOR if is_tf32 else _FLOORS.get(dtype, torch.finfo(dtype).eps)


def bounds(rule: ToleranceRule, problem: Problem, dtype: torch.dtype, rounding: Rounding = _NO_ROUNDING) -> Bounds:
    """Return the numbers for outputs of `dtype`; the problem's own numbers override the defaults."""
    if rule is ToleranceRule.KERNELBENCH:
        tolerance = _KERNELBENCH.get(dtype, _KERNELBENCH_DEFAULT)
        return Bounds(rule, 0.0, tolerance, tolerance)
    override = problem.tolerance
    multiple = _MULTIPLE if override.multiple is None else override.multiple
    usual = usual_floor(problem, dtype)
    floor = usual if override.floor is None else override.floor
    unit, last_place = _UNITS.get(dtype, 1.0), torch.finfo(dtype).eps
    widest = _WIDEST_IN_HALF if dtype in _HALF else WIDEST
    # `multiple` x the rest, plus `unit`, is then at least `multiple` x the honest error of the same element. In half
    # precision the error of an element is its rounding, which does not grow.
    honest_unit = unit if dtype in _HALF else unit / max(multiple, 1.0)
    of_exponential = rounding.unit + _BESIDE_EXPONENTIALS * last_place if rounding.unit else 0.0
    return Bounds(
        rule=rule,
        multiple=multiple,
        floor=max(floor, multiple * rounding.usual),
        unit=max(unit * last_place, of_exponential),
        far=widest * max(usual, floor),
        rare=rounding.rare,
        flipped=rounding.flipped,
        # An honest result is off by half a unit in the last place, and an answer may be off by `multiple` times as
        # much.
        far_unit=max(unit * last_place, multiple / 2 * last_place, of_exponential),
        smallest=_smallest(dtype),
        honest_unit=honest_unit * last_place,
        widest=widest,
    )


def without_sums(limit: Bounds, problem: Problem, dtype: torch.dtype, rounding: Rounding) -> Bounds:
    """Return the numbers for an elementwise map, from the `limit` that `bounds` returned for the same `rounding`.

    Floors of other dtypes and precisions, and floors of the problem's author, stay unchanged; so does the limit of a
    tolerance widened by the reference's own error. KernelBench's rule has no elementwise maps.
    """
    is_fp32 = dtype == torch.float32 and problem.precision is Precision.FP32
    if problem.tolerance.floor is not None or not is_fp32:
        return limit
    floor = max(_ELEMENTWISE_FLOOR, limit.multiple * rounding.usual)
    return limit._replace(floor=floor, widest=limit.widest * limit.floor / floor)


def _smallest(dtype: torch.dtype) -> float:
    """Return the error of numbers too small for the dtype's precision.

    Subnormal numbers have fewer digits, and `nvcc -ftz=true`, part of `--use_fast_math`, replaces those of fp32 by zero
    (CUDA C++ Programming Guide, "Floating-Point Arithmetic"). GPUs compute fp16 with subnormal numbers.
    """
    info = torch.finfo(dtype)
    return info.smallest_normal * info.eps if dtype == torch.float16 else info.smallest_normal
