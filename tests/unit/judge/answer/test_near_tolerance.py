"""Likely causes of errors just beyond the tolerance."""

import pytest
from msgspec.structs import replace

from evaluator.findings.comparing import ACCURATE_FUNCTIONS, HARDLY_BEYOND, NO_FAST_MATH
from evaluator.judge.answer.other_values import of_other_values
from evaluator.judge.answer.output_checks import wrong_values
from evaluator.judge.answer.wrong_pattern import near_tolerance
from evaluator.records import Profile, TensorCheck

MISH = TensorCheck("output", "float32", [64, 64, 126, 256], False, 6.1e-5, 1.22, 0.3, 11, 0, None)
"""The check of a published kernel, compiled with `--use_fast_math`."""


@pytest.mark.parametrize(
    ("source", "name", "step"),
    [
        ('extra_cuda_cflags=["-O3", "--use_fast_math"]', "--use_fast_math", NO_FAST_MATH),
        ('["-use_fast_math"] # and __expf', "-use_fast_math", NO_FAST_MATH),
        ('options=("use_fast_math",)', "use_fast_math", NO_FAST_MATH),
        ("float t = __expf(x); y = __fdividef(t, __expf(1.f));", "__expf, __fdividef", ACCURATE_FUNCTIONS),
        ('asm("tanh.approx.f32 %0, %1;")', "tanh.approx", ACCURATE_FUNCTIONS),
        ('asm("ex2.approx.ftz.f32 %0, %1;")', "ex2.approx", ACCURATE_FUNCTIONS),
        ("y = __tanhf(x);", "__tanhf", ACCURATE_FUNCTIONS),
        ("y = libdevice.fast_tanhf(x)", "fast_tanhf", ACCURATE_FUNCTIONS),
    ],
)
def test_the_text_names_the_approximation(source, name, step):
    cause = near_tolerance(MISH, source)
    assert cause.clause == f"the largest error is 1.22 times what is allowed, and the text has {name}"
    assert cause.next_step == step


@pytest.mark.parametrize(
    "source", ["", "y = expf(x) + tanhf(x);", "my__expf(x); no_use_fast_math = 1; breakfast_exp(x)"]
)
def test_without_an_approximation_the_next_step_is_about_rounding(source):
    cause = near_tolerance(MISH, source)
    assert (cause.clause, cause.next_step) == ("the largest error is 1.22 times what is allowed", HARDLY_BEYOND)
    assert "syncthreads" not in cause.next_step


@pytest.mark.parametrize(
    "changes", [{"error_ratio": 4.1}, {"error_ratio": None}, {"nonfinite": 1}, {"mismatches": 130_056_192}]
)
def test_other_errors_have_the_usual_next_step(changes):
    assert near_tolerance(replace(MISH, **changes), "") is None


@pytest.mark.parametrize(
    ("source", "values", "step"),
    [("__expf", Profile.OUTLIERS, ACCURATE_FUNCTIONS), ("", Profile.OUTLIERS, HARDLY_BEYOND)],
)
def test_the_step_stays_for_other_values(source, values, step):
    found = replace(wrong_values(MISH), next_step=near_tolerance(MISH, source).next_step)
    assert of_other_values(found, values.value, [MISH]).next_step == step
