"""Grades against definitions of SOL-ExecBench."""

import json

import pytest

from evaluator.findings import Code
from evaluator.records import BenchmarkRule, Status
from tests.definitions import write_definition
from tests.plain_cpp import extension

RIGHT = """\
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, eps):
        return torch.nn.functional.rms_norm(x, (16,), weight, eps)
"""
WRONG = RIGHT.replace("weight, eps)\n", "weight, eps / 2)\n")


@pytest.fixture
def grade_definition(grader, tmp_path):
    folder = write_definition(tmp_path / "norm")
    return lambda source, *options: grader(tmp_path, source, "--mode", "check", *options, problem=folder)


def test_a_wrong_submission_and_a_right_one_in_a_case_by_number(grade_definition):
    run = grade_definition(RIGHT, "--device", "cpu", "--case", "9")
    assert (run.code, run.card) == (2, None)
    assert "norm has no case '9'" in run.err
    grade_definition(WRONG, "--device", "emulated").assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)
    card = grade_definition(RIGHT, "--device", "cpu", "--case", "0").assert_verdict(Status.CORRECT)
    assert card.checks[0].tensors[0].shape == [8, 16]
    assert (card.benchmark_rule, card.benchmark_correct) == (BenchmarkRule.SOL_EXECBENCH, True)


KERNEL = extension(
    "run",
    "x, weight, eps, y",
    """\
    const long columns = size(x, 1);
    for (long row = 0; row < size(x, 0); ++row) {
        const float* from = values(x) + row * columns;
        double sum = 0;
        for (long i = 0; i < columns; ++i) sum += double(from[i]) * from[i];
        const double scale = 1 / std::sqrt(sum / columns + PyFloat_AsDouble(eps));
        for (long i = 0; i < columns; ++i) values(y)[row * columns + i] = from[i] * scale * values(weight)[i];
    }
""",
    top="#include <cmath>\n",
)
PYTHON = """\
import torch


def run(x, weight, eps):
    return {"y": torch.nn.functional.rms_norm(x, (16,), weight, eps)}
"""


@pytest.fixture
def grade_solution(grader, tmp_path):
    """Grade a solution.json of one file."""

    def run(path, content, **spec):
        (tmp_path / "solution.json").write_text(
            json.dumps(
                {
                    "name": "mine",
                    "definition": "norm",
                    "author": "me",
                    "spec": {"target_hardware": ["LOCAL"], "entry_point": f"{path}::run", **spec},
                    "sources": [{"path": path, "content": content}],
                }
            )
        )
        folder = write_definition(tmp_path / "norm")
        options = ("--device", "cpu", "--mode", "check")
        return grader.run(tmp_path, folder, "solution.json", *options)

    return run


def test_a_solution_in_python_returns_its_outputs(grade_solution):
    run = grade_solution("main.py", PYTHON, languages=["pytorch"], destination_passing_style=False)
    run.assert_verdict(Status.CORRECT)


@pytest.mark.slow
def test_a_solution_in_cpp_writes_into_given_outputs(grade_solution):
    flags = {"cflags": ["-O1"], "cuda_cflags": [], "ld_flags": []}
    grade_solution("main.cpp", KERNEL, languages=["cuda_cpp"], compile_options=flags).assert_verdict(Status.CORRECT)
