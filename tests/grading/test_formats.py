"""Submissions for problems in formats of few bits: a step of rounding is honest, values cut off are not."""

import pytest

from evaluator.findings import Code
from evaluator.records import Status
from tests.grading.harness import CHECK, module

pytestmark = pytest.mark.slow

REFERENCE = """\
import torch
from torch import nn

rows = 64

class Model(nn.Module):
    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True) / 127
        return (x / scale).round().clamp(-127, 127).to(torch.int8), scale

def get_inputs():
    return [torch.randn(rows, 128)]

def get_init_inputs():
    return []
"""
HEAD = 'title = "Mine"\nlevel = 1\ndescription = "A quantiser."\n[sizes.full]\nrows = 64\n[sizes.small]\nrows = 16\n'
DECLARED = '[formats.outputs]\n"output[0]" = "int8"\n'
FP8 = """\
import torch
from torch import nn

rows = 64

class Model(nn.Module):
    def forward(self, a, b):
        return (a.to(b.dtype) * b).clamp(-448, 448).to(torch.float8_e4m3fn)

def get_inputs():
    return [torch.randn(rows, 128).to(torch.float8_e4m3fn), torch.rand(rows, 1) + 0.5]

def get_init_inputs():
    return []
"""
SCALE = "scale = x.abs().amax(-1, keepdim=True) / 127"
CODES = "codes = (x / scale).round().clamp(-127, 127)"
LAST = "return codes.to(torch.int8), scale"
STEP = "codes.view(-1)[::128] -= codes.view(-1)[::128].sign()"


A_STEP_OFF = module(forward=[SCALE, CODES, STEP, LAST])
CUT_OFF = module(forward=[SCALE, "codes = x / scale", LAST])


@pytest.fixture
def grade_own(grader, tmp_path):
    def run(source, declared=DECLARED, reference=REFERENCE):
        problem = tmp_path / "problems" / "mine"
        problem.mkdir(parents=True)
        (problem / "problem.toml").write_text(HEAD + declared)
        (problem / "reference.py").write_text(reference)
        return grader(tmp_path, source, *CHECK, "--problems", tmp_path / "problems", problem="mine")

    return run


def test_a_step_in_a_few_elements_is_correct(grade_own):
    grade_own(A_STEP_OFF).assert_verdict(Status.CORRECT)


def test_values_cut_off_are_wrong(grade_own):
    card = grade_own(CUT_OFF).assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)
    (check,) = [each for each in card.checks[-1].tensors if each.path == "output[0]"]
    assert check.mismatches >= 16


@pytest.mark.parametrize(
    ("declared", "verdict"),
    [
        ("", (Status.INCONCLUSIVE, Code.ROUNDING_DECIDES)),
        ('[formats.outputs]\n"output[0]" = { flips = 0.005 }\n', (Status.INCONCLUSIVE, Code.ROUNDING_DECIDES)),
        ('[formats.outputs]\n"output[0]" = { flips = 0.01 }\n', (Status.CORRECT,)),
    ],
    ids=["nothing", "too few", "enough"],
)
def test_a_step_in_integers_needs_a_declaration(grade_own, declared, verdict):
    """One code of 128 is a step off."""
    grade_own(A_STEP_OFF, declared).assert_verdict(*verdict)


def test_fp8_is_read_and_returned(grade_own):
    source = module(forward=["a, b = x", "return (a.float() * b).clamp(-448, 448).to(torch.float8_e4m3fn)"])
    source = source.replace("forward(self, x)", "forward(self, *x)")
    card = grade_own(source, declared="", reference=FP8).assert_verdict(Status.CORRECT)
    assert {each.precision for each in card.checks} == {"float64"}


def test_a_declaration_that_does_not_fit_is_an_error_of_the_problem(grade_own):
    run = grade_own(A_STEP_OFF, declared='[formats.outputs]\n"output[2]" = "int8"\n')
    assert (run.code, run.card) == (2, None)
    assert "forward returns no tensor output[2]; tensors: output[0], output[1]" in run.err
