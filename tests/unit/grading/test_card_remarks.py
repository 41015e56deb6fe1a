"""Findings of a card: next steps that fit a required share of own kernels."""

import pytest

from evaluator.findings import ENTRIES, Code, finding
from evaluator.findings.comparing import COMPUTE_IN_FP32, CONSTANT, NEARLY_ALL, WEIGHTS_FIRST
from evaluator.findings.submission import ONE_BLOCK
from evaluator.grading.card import reason_of, with_steps_to_own_kernels
from evaluator.records import Outcome, Status

FOUND = [finding(code, "x") for code in (Code.LIBRARY_IN_FORWARD, Code.NO_LAUNCH, Code.KERNEL_NOT_LAUNCHED)]
USUAL = [each.next_step for each in FOUND]


def steps(status, required):
    outcome = Outcome(status=status, reason=None, findings=FOUND)
    return [each.next_step for each in with_steps_to_own_kernels(outcome, required)]


def test_a_rejected_fallback_is_told_to_launch_a_kernel():
    assert steps(Status.REJECTED, 0.6) == [
        "Replace the library call by your own kernel.",
        "Launch the kernel in forward.",
        ENTRIES[Code.KERNEL_NOT_LAUNCHED].next_step,
    ]


@pytest.mark.parametrize(
    ("status", "required"), [(Status.CORRECT, 0.6), (Status.CORRECT, None), (Status.TIMEOUT, None)]
)
def test_other_cards_keep_the_usual_steps(status, required):
    assert steps(status, required) == USUAL


@pytest.mark.parametrize(
    ("code", "own_step", "is_seeded", "step"),
    [
        (Code.WRONG_VALUES, None, True, WEIGHTS_FIRST),
        (Code.WRONG_VALUES, None, False, ENTRIES[Code.WRONG_VALUES].next_step),
        (Code.WRONG_VALUES, NEARLY_ALL, True, WEIGHTS_FIRST),
        (Code.WRONG_VALUES, COMPUTE_IN_FP32, True, WEIGHTS_FIRST),
        (Code.WRONG_VALUES, NEARLY_ALL, False, NEARLY_ALL),
        (Code.WRONG_VALUES, CONSTANT, True, CONSTANT),
        (Code.WRONG_SHAPE, None, True, ENTRIES[Code.WRONG_SHAPE].next_step),
        (Code.WRONG_SHAPE, ENTRIES[Code.WRONG_VALUES].next_step, True, ENTRIES[Code.WRONG_VALUES].next_step),
    ],
)
def test_wrong_values_with_other_weights_begin_with_the_weights(code, own_step, is_seeded, step):
    seeded = [finding(Code.WEIGHTS_NOT_COPIED, "x")] if is_seeded else []
    reason = finding(code, "x", next_step=own_step)
    found = reason_of(Outcome(status=Status.WRONG_RESULT, reason=reason, findings=seeded))
    assert found is not None
    assert (found.message, found.next_step) == ("x", step)


def test_a_card_without_a_reason_stays_without():
    assert reason_of(Outcome(status=Status.CORRECT, reason=None, findings=[])) is None


@pytest.mark.parametrize("code", [Code.IMPORT_FAILED, Code.CONSTRUCTOR_FAILED, Code.FORWARD_FAILED])
def test_a_missing_name_names_the_code_that_was_left_out(code):
    left_out = finding(Code.LEFT_OUT, "left out: the block from line 2")
    failed = finding(code, "NameError: name 'source' is not defined", line=9)
    reason = reason_of(Outcome(status=Status.BUILD_ERROR, reason=failed, findings=[left_out]))
    assert reason is not None
    assert reason.message == "NameError: name 'source' is not defined; left out: the block from line 2"
    assert (reason.next_step, reason.line) == (ONE_BLOCK, 9)
    assert reason_of(Outcome(status=Status.BUILD_ERROR, reason=failed)) == failed
