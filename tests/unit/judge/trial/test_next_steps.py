"""Next steps of answers that are wrong for other values than the problem's own."""

import pytest

from evaluator.findings import ENTRIES, Code, finding
from evaluator.findings.comparing import CANCELLATION, EXTRA_CLAMP, NEARLY_ALL, NOT_WRITTEN, OVERFLOW, REFERENCE_PART
from evaluator.judge.answer.other_values import of_other_values
from tests.unit.judge.trial.test_stale_weights import check

USUAL = ENTRIES[Code.WRONG_ON_OTHER_VALUES].next_step


@pytest.mark.parametrize(
    ("values", "found", "step"),
    [
        # Recorded on an H100: a variance in one pass behind a convolution, and exp of large numbers without a maximum.
        ("ill_conditioned", check(1.44, 224), CANCELLATION),
        ("large", check(None, 205_730_325, nonfinite=205_730_325), OVERFLOW),
        ("ill_conditioned", check(3000.0, 224), USUAL),
        ("ill_conditioned", check(None, 224, nonfinite=1), USUAL),
        ("large", check(1.44, 224), USUAL),
        ("rows with random signs", check(1.44, 224), USUAL),
    ],
)
def test_the_step_fits_the_values_and_the_size_of_the_errors(values, found, step):
    problem = of_other_values(finding(Code.WRONG_VALUES, "output: 224 of 9999 values differ"), values, [found])
    assert (problem.code, problem.next_step) == (Code.WRONG_ON_OTHER_VALUES.value, step)


@pytest.mark.parametrize(
    ("own", "step"),
    [
        (REFERENCE_PART, REFERENCE_PART),
        (NEARLY_ALL, CANCELLATION),
        (NOT_WRITTEN, CANCELLATION),
        (EXTRA_CLAMP, CANCELLATION),
    ],
)
def test_the_step_of_a_known_form_stays(own, step):
    found = finding(Code.WRONG_VALUES, "output: 224 of 9999 values differ; GELU's other form", next_step=own)
    assert of_other_values(found, "ill_conditioned", [check(1.44, 224)]).next_step == step
