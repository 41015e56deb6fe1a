"""Problems that are missing or broken, and problems of the user's own."""

import pytest

from evaluator.findings import Code
from evaluator.records import SizeName, Status
from tests.grading.harness import CHECK, module
from tests.grading.judged import context_of, judged
from tests.problem_text import RELU
from tests.unit.references import problem

TOML = 'title = "Mine"\nlevel = 1\ndescription = "A problem of my own."\n'
TOML += "[sizes.full]\nrows = 64\n[sizes.small]\nrows = 8\n"


@pytest.fixture
def grade_own(grader, tmp_path):
    """Grade against a problem that is made of these two files."""

    def run(reference=RELU, toml=TOML):
        problem = tmp_path / "problems" / "mine"
        problem.mkdir(parents=True)
        (problem / "problem.toml").write_text(toml)
        (problem / "reference.py").write_text(reference)
        return grader(tmp_path, module(), "--problems", tmp_path / "problems", *CHECK, problem="mine")

    return run


def test_an_own_problem_is_graded(grade_own):
    card = grade_own().assert_verdict(Status.CORRECT)
    assert card.problem.constants == {"rows": 8}


def test_a_name_that_is_not_there_brings_up_the_nearest(grade):
    run = grade(module(), problem="rleu")
    assert (run.code, run.card) == (2, None)
    assert "did you mean relu" in run.err


BROKEN = {
    "no get_inputs": (RELU.replace("get_inputs", "get_them"), TOML, "get_inputs"),
    "forward raises": (RELU.replace("torch.relu(x)", "torch.rleu(x)"), TOML, "line 8"),
    "unknown key": (RELU, TOML.replace("title", "tilte"), "tilte"),
}


@pytest.mark.parametrize(("reference", "toml", "said"), BROKEN.values(), ids=BROKEN)
def test_a_broken_problem_is_a_usage_error_that_names_the_fault(grade_own, reference, toml, said):
    run = grade_own(reference, toml)
    assert (run.code, run.card) == (2, None)
    assert said in run.err


KERNELBENCH = """\
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.scale = weight

    def forward(self, predictions, targets):
        return nn.functional.cross_entropy(predictions * self.scale, targets)

batch_size = 64
num_classes = 10

def get_inputs():
    return [torch.randn(batch_size, num_classes), torch.randint(0, num_classes, (batch_size,))]

def get_init_inputs():
    return [2.0]
"""
CROSS_ENTROPY = """\
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, predictions, targets):
        assert targets.dtype is torch.int64
        rows = torch.log_softmax(predictions * self.weight, 1)
        return -rows.gather(1, targets[:, None]).mean()
"""


def test_a_kernelbench_folder_is_graded(grader, tmp_path):
    level = tmp_path / "KernelBench" / "level1"
    level.mkdir(parents=True)
    (level / "95_CrossEntropyLoss.py").write_text(KERNELBENCH)
    options = ("--problems", tmp_path / "KernelBench", "--tolerance", "kernelbench", "--size", "full", *CHECK)
    card = grader(tmp_path, CROSS_ENTROPY, *options, problem="95_CrossEntropyLoss").assert_verdict(Status.CORRECT)
    assert card.problem.origin != "warpgrade"
    assert card.tolerance == "kernelbench"


ATTENTION = """\
import torch
from model import Model

class ModelNew(Model):
    def forward(self, *, x, mask):
        output, weights = super().forward(x, mask)
        return output.clone(), weights.clone()
"""


def test_keyword_inputs_and_two_outputs(grade):
    card = grade(ATTENTION, *CHECK, problem="attention").assert_verdict(Status.CORRECT)
    assert {tensor.path for tensor in card.checks[0].tensors} == {"output[0]", "output[1]"}


def test_outputs_in_another_order_are_wrong(grade):
    swapped = ATTENTION.replace("output.clone(), weights.clone()", "weights.clone(), output.clone()")
    grade(swapped, problem="attention").assert_verdict(Status.WRONG_RESULT, Code.WRONG_SHAPE)


def test_a_stride_that_addresses_nothing_does_not_end_the_judge():
    huge = module(forward=["return torch.fft.fft(x).as_strided((1, x.shape[1]), (2**62, 1))"])
    with context_of(problem("torch.fft.fft(x)", "torch.randn(1, 256)"), SizeName.SMALL) as context:
        outcome = judged(context, huge)
    assert outcome.status is Status.CORRECT, outcome.reason
