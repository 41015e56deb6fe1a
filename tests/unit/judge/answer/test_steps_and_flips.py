"""Values on the other side of a step: inconclusive where rounding may decide, right where the author lets them flip."""

import pytest
import torch

from benchmarks.numerics.judged_answers import AnswerTrials, Setup
from evaluator.cards.consistency import wrong
from evaluator.findings import Code
from evaluator.findings.comparing import DECLARE_FLIPS
from evaluator.judge.compare.tensor_comparison import begin
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE
from evaluator.protocol.model_call import Result
from evaluator.records import Formats, OutputFormat, Status, ToleranceRule
from tests.unit.references import reference

STEPS = "(x * 1000).floor() / 1000"
WHOLE = "(x * 1000).floor().int()"
"""Some eight of 131072 values have another step in another order."""
GIVEN = "torch.rand(64, 2048)"


def stepped(x, by=0.5):
    """Return steps of which about half of 256 values, one in a thousand of all, are on the other side."""
    return (x * 1000 + (torch.arange(2048) % 512 == 7) * by).floor()


def beside(plan):
    return stepped(plan.inputs.args[0]) / 1000


def run(output, answer, rule=ToleranceRule.MEASURED, flips=None):
    """Make a call with the problem's own values. `flips` are shares of the elements, by path of the output."""
    outputs = {path: OutputFormat(flips=share) for path, share in (flips or {}).items()}
    made = reference(output, GIVEN, formats=Formats(outputs=outputs))
    trials = AnswerTrials(Setup(made, AS_GIVEN_ALONE, begin), lambda plan: Result(answer(plan), None), rule)
    return trials.run(0, 7, timeout_s=60)


def argmax(x):
    return (x - x.mean(1, keepdim=True)).argmax(1)


PLACES = "(x - x.mean(1, keepdim=True)).argmax(1)"
SIGNS = "x.sum(1) > 1024"
CODES = "(x / x.amax(1, keepdim=True) * 127).round().to(torch.int8)"
"""Outputs that other orders rarely move: not in this call."""


def codes(x, off=0, one_in=1):
    """Return the codes, one of `one_in` of them `off` from the right value."""
    right = (x / x.amax(1, keepdim=True) * 127).round()
    return (right - off * (torch.arange(2048) % one_in == 0)).to(torch.int8)


FEW = {
    "steps": (STEPS, beside),
    "whole numbers": (WHOLE, lambda plan: stepped(plan.inputs.args[0]).int()),
    "places that no order moves": (PLACES, lambda plan: argmax(plan.inputs.args[0]) + (torch.arange(64) == 7) * 1),
    "signs that no order moves": (SIGNS, lambda plan: (plan.inputs.args[0].sum(1) > 1024) ^ (torch.arange(64) == 7)),
    "a sixteenth of the codes": (CODES, lambda plan: codes(plan.inputs.args[0], 1, one_in=16)),
}


@pytest.mark.parametrize(("output", "answer"), FEW.values(), ids=FEW)
def test_few_values_on_the_other_side_of_a_step_are_inconclusive(output, answer):
    fault = run(output, answer).fault
    assert (fault.status, fault.finding.code) == (Status.INCONCLUSIVE, Code.ROUNDING_DECIDES.value)
    assert fault.finding.next_step == DECLARE_FLIPS
    assert "on the other side of a step" in fault.finding.message


WRONG = {
    "many": (STEPS, lambda plan: (plan.inputs.args[0] * 1000 + 0.5).floor() / 1000),
    "many whole numbers": (WHOLE, lambda plan: (plan.inputs.args[0] * 1000 + 0.5).floor().int()),
    "few without a step": ("x * 2", lambda plan: plan.inputs.args[0] * 2 + (torch.arange(2048) % 512 == 7) * 0.01),
    "few whole numbers without a step": (
        "x.argsort(1)",
        lambda plan: plan.inputs.args[0].argsort(1) + (torch.arange(2048) % 512 == 7) * 1,
    ),
    "few places of inputs": ("x.argmax(1)", lambda plan: plan.inputs.args[0].argmax(1) + (torch.arange(64) == 7) * 1),
    "few comparisons of inputs": ("x >= 0.5", lambda plan: (plan.inputs.args[0] >= 0.5) ^ (torch.arange(2048) == 7)),
    "few beside a wrong output": (
        f"({SIGNS}, x * 2)",
        lambda plan: ((plan.inputs.args[0].sum(1) > 1024) ^ (torch.arange(64) == 7), plan.inputs.args[0] * 2.1),
    ),
    "a mask of zeros": (SIGNS, lambda plan: torch.zeros(64, dtype=torch.bool)),
    "a constant place": (PLACES, lambda plan: torch.full((64,), 7)),
    "places without signs": (PLACES, lambda plan: argmax(-plan.inputs.args[0])),
    "codes a step off everywhere": (CODES, lambda plan: codes(plan.inputs.args[0], 1)),
    "codes a step off in an eighth": (CODES, lambda plan: codes(plan.inputs.args[0], 1, one_in=8)),
    "few that are not finite": (STEPS, lambda plan: beside(plan).index_fill(1, torch.tensor([7]), torch.nan)),
}


@pytest.mark.parametrize(("output", "answer"), WRONG.values(), ids=WRONG)
def test_other_values_are_wrong(output, answer):
    assert run(output, answer).fault.status is Status.WRONG_RESULT


@pytest.mark.parametrize(("flips", "ok"), [(0.002, True), (0.0005, False)])
def test_an_author_may_let_a_part_of_the_values_flip(flips, ok):
    """About 128 of 131072 values flip: a part of 0.001."""
    trial = run(STEPS, beside, flips={"output": flips})
    (check,) = trial.check.tensors
    assert (trial.fault is None, check.ok, wrong(check) is None) == (ok, ok, ok)
    assert ok or 64 < check.mismatches < 192
    assert not ok or (check.mismatches, check.error_ratio) == (0, 1.0)


def test_no_value_may_flip_to_nan_nor_by_kernelbenchs_rule():
    output, answer = WRONG["few that are not finite"]
    assert run(output, answer, flips={"output": 0.5}).fault.status is Status.WRONG_RESULT
    assert run(STEPS, beside, ToleranceRule.KERNELBENCH, flips={"output": 0.5}).fault.status is Status.WRONG_RESULT


def test_a_part_that_may_flip_is_of_one_output():
    def answer(plan):
        return beside(plan), stepped(plan.inputs.args[0]).int()

    fault = run(f"({STEPS}, {WHOLE})", answer, flips={"output[0]": 0.002}).fault
    assert (fault.status, fault.finding.details["path"]) == (Status.INCONCLUSIVE, "output[1]")
    assert run(f"({STEPS}, {WHOLE})", answer, flips={"output[0]": 0.002, "output[1]": 0.002}).fault is None


def test_all_values_right_need_no_flips():
    trial = run(STEPS, lambda plan: (plan.inputs.args[0] * 1000).floor() / 1000, flips={"output": 0.5})
    assert trial.fault is None
    assert trial.check.tensors[0].error_ratio < 1
