"""Grades against a task of KernelBot: custom_kernel, outputs of the caller, and the task's own rule."""

import pytest

from evaluator.findings import Code
from evaluator.records import BenchmarkRule, Status, ToleranceRule

TASK = """\
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "utils.py", "source": "../utils.py"}
  - {"name": "reference.py", "source": "reference.py"}
lang: "py"
tests:
  - {"rows": 300, "seed": 11}
benchmarks:
  - {"rows": 800, "seed": 13}
"""
UTILS = """\
def near(output, expected):
    good = bool((output - expected).abs().max() < 0.5)
    return good, "" if good else "too far"
"""
REFERENCE = """\
import torch
from utils import near


def generate_input(rows, seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.rand(rows, device="cuda", generator=generator), torch.empty(rows, device="cuda")


def ref_kernel(data):
    x, _ = data
    return x * 2


def check_implementation(data, output):
    return near(output, ref_kernel(data))
"""
RIGHT = """\
from utils import near


def custom_kernel(data):
    x, output = data
    output[...] = x + x
    return output
"""
NEAR = RIGHT.replace("x + x", "x + x + 0.1")
UNWRITTEN = RIGHT.replace("    output[...] = x + x\n", "")


@pytest.fixture
def grade_task(grader, tmp_path):
    (tmp_path / "utils.py").write_text(UTILS)
    folder = tmp_path / "twice"
    folder.mkdir()
    (folder / "task.yml").write_text(TASK)
    (folder / "reference.py").write_text(REFERENCE)
    return lambda source, *options: grader(tmp_path, source, "--mode", "check", *options, problem=folder)


def test_outputs_are_what_the_function_returns(grade_task):
    card = grade_task(RIGHT, "--device", "emulated", "--case", "test_0").assert_verdict(Status.CORRECT)
    assert (card.benchmark_rule, card.benchmark_correct) == (BenchmarkRule.KERNELBOT, True)
    unwritten = grade_task(UNWRITTEN, "--device", "cpu").card
    assert unwritten is not None
    assert unwritten.status is Status.WRONG_RESULT


def test_the_tasks_rule_is_the_verdict_if_asked_for(grade_task):
    card = grade_task(NEAR, "--device", "cpu").assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)
    assert card.benchmark_correct
    card = grade_task(NEAR, "--device", "cpu", "--tolerance", "benchmark").assert_verdict(Status.CORRECT)
    assert (card.tolerance, card.benchmark_correct) == (ToleranceRule.BENCHMARK, None)
    far = NEAR.replace("0.1", "0.9")
    card = grade_task(far, "--device", "cpu", "--tolerance", "benchmark").assert_verdict(
        Status.WRONG_RESULT, Code.CHECK_REFUSES
    )
    assert "too far" in card.reason.message
