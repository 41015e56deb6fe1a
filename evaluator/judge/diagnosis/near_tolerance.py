"""Likely cause of errors just beyond the tolerance: approximate functions that the text names, or rounding. Pure."""

import re

import torch

from evaluator.findings.comparing import ACCURATE_FUNCTIONS, HARDLY_BEYOND, NO_FAST_MATH
from evaluator.judge.diagnosis.wrong_pattern import Cause
from evaluator.records import TensorCheck

_HARDLY = 4.0
_FLAG = re.compile(r"(?<![\w-])-{0,2}use_fast_math\b")
_FUNCTION = re.compile(
    r"\b__(?:exp|exp10|log|log2|log10|pow|sin|cos|tan|sincos|tanh)f\b|\b__fdividef\b"
    r"|\b(?:tanh|ex2|lg2|sin|cos)\.approx\b|\bfast_(?:exp|log|pow|tanh|sin|cos|tan|divide)\w*"
)
"""Intrinsics of CUDA and of libdevice, and instructions of PTX, with fewer bits than the functions they replace."""


def near_tolerance(check: TensorCheck, source: str) -> Cause | None:
    """Return the likely cause of errors up to four times what is allowed; None for larger errors.

    Without approximate functions in the text `source`, nearly all values wrong are no matter of rounding.

    >>> check = TensorCheck("output", "float32", [130056192], False, 6.1e-5, 1.22, 0.3, 11, 0, None)
    >>> near_tolerance(check, 'extra_cuda_cflags=["-O3", "--use_fast_math"]').clause
    'the largest error is 1.22 times what is allowed, and the text has --use_fast_math'
    """
    if check.nonfinite or check.error_ratio is None or check.error_ratio > _HARDLY:
        return None
    clause = f"the largest error is {check.error_ratio:.3g} times what is allowed"
    if flag := _FLAG.search(source):
        return Cause(f"{clause}, and the text has {flag.group()}", NO_FAST_MATH)
    if names := list(dict.fromkeys(_FUNCTION.findall(source))):
        return Cause(f"{clause}, and the text has {', '.join(names[:3])}", ACCURATE_FUNCTIONS)
    is_part = 2 * check.mismatches < torch.Size(check.shape).numel()
    return Cause(clause, HARDLY_BEYOND) if is_part else None
