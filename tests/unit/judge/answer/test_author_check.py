"""Answers of problems with a check of their own: right in another form, wrong, and without evidence."""

import hashlib

import pytest
import torch
from msgspec.structs import replace

from benchmarks.numerics.judged_answers import AnswerTrials, set_up
from evaluator.findings import Code
from evaluator.judge.answer import answer_judge
from evaluator.judge.reference.author_check import OUT_OF_MEMORY
from evaluator.protocol import model_call
from evaluator.records import CheckRule, Profile, SizeName, ToleranceRule
from tests.unit.references import problem

QR = """
def check(inputs, outputs):
    (a,), (q, r) = inputs, outputs
    a, q, r = a.double(), q.double(), r.double()
    if not (q.mT @ q - torch.eye(q.shape[-1])).abs().max() < 1e-5:
        return "the columns of q are not orthonormal"
    return None if (q @ r - a).norm() <= 1e-5 * a.norm() else "q @ r is not a"
"""


def problem_with(check, rule=CheckRule.INSTEAD, output="torch.linalg.qr(x)"):
    made = problem(output, "torch.randn(24, 6)", check=rule)
    return replace(made, source=made.source + check, sha256=hashlib.sha256(check.encode()).hexdigest())


def trials(answer, check=QR, rule=CheckRule.INSTEAD, output="torch.linalg.qr(x)"):
    setup = set_up(problem_with(check, rule, output), SizeName.SMALL, "cpu")
    return AnswerTrials(setup, lambda plan: model_call.Result(answer(*plan.inputs.args), None))


def negative(a):
    q, r = torch.linalg.qr(a)
    return -q, -r


def in_bf16(a):
    return torch.linalg.qr(a.bfloat16().float())


def faults(runner, calls=12):
    return [runner.run(index, index, timeout_s=60).fault for index in range(calls)]


def test_factors_with_other_signs_are_right():
    runner = trials(negative)
    assert faults(runner) == [None] * 12
    assert not runner.lacks_proof
    assert runner.unproven() is None


def test_factors_of_another_matrix_are_wrong():
    fault = trials(in_bf16).run(0, 0, timeout_s=60).fault
    assert (fault.finding.code, fault.finding.message) == (Code.CHECK_REFUSES.value, "q @ r is not a")


def test_beside_the_comparison_both_must_accept():
    assert trials(negative, rule=CheckRule.BESIDE).run(0, 0, timeout_s=60).fault.finding.code == Code.WRONG_VALUES.value
    even = "\ndef check(inputs, outputs):\n    return None if (outputs[1] == 1.0).all() else 'not one'\n"
    outputs = "(x * 2, torch.ones(3) + 0 * x[0, 0])"
    assert faults(trials(lambda x: (x * 2, torch.ones(3)), even, CheckRule.BESIDE, outputs)) == [None] * 12
    near = trials(lambda x: (x * 2, torch.ones(3) + 2e-7), even, CheckRule.BESIDE, outputs)
    assert near.run(0, 0, timeout_s=60).fault.finding.code == Code.CHECK_REFUSES.value


def test_a_check_that_accepts_anything_proves_nothing():
    runner = trials(negative, "\ndef check(inputs, outputs):\n    return None\n")
    assert faults(runner) == [None] * 12
    fault = runner.unproven()
    assert fault.finding.code == Code.ROUNDING_DECIDES.value
    assert "accepts an output of zeros, of NaN, or of other inputs" in fault.finding.message


def test_distributions_that_the_check_refuses_are_left_out():
    check = "\ndef check(inputs, outputs):\n    return 'out of range' if inputs[0].abs().max() > 100 else None\n"
    mix = set_up(problem_with(check, output="x * 2"), SizeName.SMALL, "cpu").distribution_mix
    assert "check refuses the answer of Model itself" in mix.left_out[Profile.LARGE]


@pytest.mark.parametrize("answer", [lambda a: torch.linalg.qr(a)[0], lambda a: (torch.linalg.qr(a)[0], torch.ones(3))])
def test_the_check_sees_answers_of_the_right_structure_alone(answer):
    fault = trials(answer).run(0, 0, timeout_s=60).fault
    assert fault.finding.code in (Code.WRONG_STRUCTURE.value, Code.WRONG_SHAPE.value)


def test_a_call_whose_own_answer_the_check_refuses_decides_nothing():
    body = "calls.append(1)\n    return 'no' if len(calls) > 200 else None\n"
    check = f"\ncalls = []\ndef check(inputs, outputs):\n    {body}"
    runner = trials(lambda x: x * 2, check, output="x * 2")
    assert faults(runner, 40) == [None] * 40
    assert runner.unproven() is not None


def test_kernelbenchs_rule_asks_no_check():
    check = "\ndef check(inputs, outputs):\n    return None\n"
    setup = set_up(problem_with(check, output="x * 2"), SizeName.SMALL, "cpu")
    runner = AnswerTrials(
        setup, lambda plan: model_call.Result(plan.inputs.args[0] * 3, None), ToleranceRule.KERNELBENCH
    )
    assert runner.run(0, 0, timeout_s=60).fault.finding.code == Code.WRONG_VALUES.value


def test_a_lack_of_memory_for_the_references_own_answer_excuses_none(monkeypatch):
    runner = trials(negative)
    monkeypatch.setattr(answer_judge, "refusal", lambda *_: OUT_OF_MEMORY)
    with pytest.raises(MemoryError):
        runner.run(0, 0, timeout_s=60)
