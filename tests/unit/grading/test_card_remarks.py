"""Findings of a card: next steps that fit a required share of own kernels."""

import pytest

from evaluator.findings import ENTRIES, Code, finding
from evaluator.grading.card_remarks import with_steps_to_own_kernels
from evaluator.records import Outcome, Status

FOUND = [finding(code, "x") for code in (Code.LIBRARY_IN_FORWARD, Code.NO_LAUNCH, Code.KERNEL_NOT_LAUNCHED)]
USUAL = [each.next_step for each in FOUND]


def steps(status: Status, required: float | None) -> list[str]:
    outcome = Outcome(status=status, reason=None, findings=FOUND)
    return [each.next_step for each in with_steps_to_own_kernels(outcome, required)]


def test_a_rejected_fallback_is_told_to_launch_a_kernel() -> None:
    assert steps(Status.REJECTED, 0.6) == [
        "Replace the library call by your own kernel.",
        "Launch the kernel in forward.",
        ENTRIES[Code.KERNEL_NOT_LAUNCHED].next_step,
    ]


@pytest.mark.parametrize(
    ("status", "required"), [(Status.CORRECT, 0.6), (Status.CORRECT, None), (Status.TIMEOUT, None)]
)
def test_other_cards_keep_the_usual_steps(status: Status, required: float | None) -> None:
    assert steps(status, required) == USUAL
