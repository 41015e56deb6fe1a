"""KernelBench's opinion on a card: what its rule accepts and Warpgrade refuses, and the other way round."""

import pytest

from evaluator.cards.replay import differences
from evaluator.findings import Code
from evaluator.records import Profile, Status, ToleranceRule
from tests.grading.harness import module
from tests.grading.test_profiles import product

REFERENCE = """\
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, {parameters}):
        return {output}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
POSITIVE = {"parameters": "a, b", "output": "a @ b", "inputs": "torch.rand(64, 4096), torch.rand(4096, 64)"}
"""The rounding of operands averages out in the problem's own sums, and shows in secret rows and other values."""
COARSE = {"parameters": "x", "output": "((x + 1e4) - 1e4, x * 2)", "inputs": "torch.rand(64, 256)"}
"""The reference itself rounds to steps of 1e-3."""
EXACT = module(forward=["return x.clone(), x * 2"])


@pytest.fixture
def grade_file(grader, tmp_path):
    """Grade a submission to a problem in KernelBench's form."""

    def run(problem, source, *options):
        level = tmp_path / "problems" / "level1"
        level.mkdir(parents=True, exist_ok=True)
        (level / "1_Mine.py").write_text(REFERENCE.format(**problem))
        options = ("--problems", tmp_path / "problems", "--size", "full", "--mode", "check", *options)
        return grader(tmp_path, source, *options, problem="1_Mine")

    return run


def opinions(card):
    return [check.benchmark_ok for check in card.checks if check.profile is Profile.AS_GIVEN]


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_a_constant_bias_within_kernelbenchs_tolerance(grade, device):
    run = grade(module(forward=["return torch.relu(x) + 5e-5"]), "--device", device)
    card = run.assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)
    assert (card.benchmark_correct, opinions(card), run.code) == (True, [True], 1)
    assert "KernelBench    correct by its own rule" in run.out


def test_operands_in_tf32_that_only_secret_rows_and_other_values_show(grade_file):
    card = grade_file(POSITIVE, product("'tf32'")).card
    assert card.status is Status.WRONG_RESULT
    assert (card.benchmark_correct, {*opinions(card)}) == (True, {True})


def test_an_answer_more_exact_than_the_reference(grade_file):
    run = grade_file(COARSE, EXACT)
    card = run.assert_verdict(Status.CORRECT)
    assert (card.benchmark_correct, {*opinions(card)}, run.code) == (False, {False}, 0)
    assert "KernelBench    wrong by its own rule" in run.out
    assert all(check.benchmark_ok is None for check in card.checks if check.profile is not Profile.AS_GIVEN)


def test_where_kernelbenchs_rule_decides_there_is_no_second_opinion(grade_file):
    card = grade_file(COARSE, EXACT, "--tolerance", "kernelbench").card
    assert (card.status, card.tolerance) == (Status.WRONG_RESULT, ToleranceRule.KERNELBENCH)
    assert (card.benchmark_correct, {*opinions(card)}) == (None, {None})


def test_another_shape_is_refused_by_both_rules_and_a_crash_has_no_opinion(grade):
    run = grade(module(forward=["return torch.relu(x)[None]"]))
    assert run.assert_verdict(Status.WRONG_RESULT, Code.WRONG_SHAPE).benchmark_correct is False
    assert "KernelBench" not in run.out
    card = grade(module(init=["self.calls = 0"], forward=["self.calls += 1", "return x.relu() + [0][self.calls - 1]"]))
    assert card.assert_verdict(Status.RUNTIME_ERROR, Code.FORWARD_FAILED).benchmark_correct is None


def test_a_replay_has_the_same_opinion(grade):
    run = grade(module(forward=["return torch.relu(x) + 5e-5"]))
    again = grade(None, "--replay", run.folder / "card.json").assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)
    assert (again.benchmark_correct, differences(run.card, again)) == (True, [])
