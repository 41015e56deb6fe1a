"""Findings of failed comparisons: the next step fits the share of wrong values."""

import pytest
from msgspec.structs import replace

from evaluator.findings import ENTRIES, Code
from evaluator.findings.comparing import NEARLY_ALL
from evaluator.judge.answer.output_checks import wrong_values
from tests.unit.judge.trial.test_stale_weights import ELEMENTS, check

USUAL = ENTRIES[Code.WRONG_VALUES].next_step


@pytest.mark.parametrize(
    ("mismatches", "step"),
    [
        (1, USUAL),
        (ELEMENTS // 2, USUAL),
        (int(0.98 * ELEMENTS), USUAL),
        (ELEMENTS - 9, NEARLY_ALL),
        (ELEMENTS, NEARLY_ALL),
    ],
)
def test_a_missing_tail_is_not_suggested_where_nearly_all_values_are_wrong(mismatches, step):
    found = wrong_values(check(3000.0, mismatches))
    assert (found.code, found.next_step) == (Code.WRONG_VALUES.value, step)


def test_nan_has_its_own_step():
    found = wrong_values(check(None, ELEMENTS, nonfinite=ELEMENTS))
    assert (found.code, found.next_step) == (Code.NOT_FINITE.value, ENTRIES[Code.NOT_FINITE].next_step)


def test_a_right_output_has_no_finding():
    assert wrong_values(check(0.1, 0)) is None


def test_few_values_show_no_share():
    one = replace(check(3000.0, 1), shape=[1])
    assert wrong_values(one).next_step == USUAL
