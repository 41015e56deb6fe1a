"""Problems that are missing or broken, and problems of the user's own."""

import pytest

from evaluator.findings import Code
from evaluator.records import Status
from tests.grading.harness import CHECK, module
from tests.problem_text import RELU

TOML = 'title = "Mine"\nlevel = 1\ndescription = "A problem of my own."\n'
TOML += "[sizes.full]\nrows = 64\n[sizes.small]\nrows = 8\n"


@pytest.fixture
def grade_own(grader, tmp_path):
    """Grade against a problem that is made of these two files."""

    def run(reference=RELU, toml=TOML, source=None, *options):
        problem = tmp_path / "problems" / "mine"
        problem.mkdir(parents=True)
        (problem / "problem.toml").write_text(toml)
        (problem / "reference.py").write_text(reference)
        submission = module() if source is None else source
        return grader(tmp_path, submission, "--problems", tmp_path / "problems", *CHECK, *options, problem="mine")

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
    "get_inputs raises": (
        RELU.replace("return [torch.randn(rows, 32)]", "raise OSError('no disk')"),
        TOML,
        "no disk",
    ),
    "get_inputs exits": (
        RELU.replace("return [torch.randn(rows, 32)]", "raise SystemExit(0)"),
        TOML,
        "SystemExit",
    ),
    "forward raises": (RELU.replace("torch.relu(x)", "torch.rleu(x)"), TOML, "line 8"),
    "no output": (RELU.replace("torch.relu(x)", "None"), TOML, "no tensor"),
    "syntax error": (RELU + "def (", TOML, "reference.py"),
    "unknown key": (RELU, TOML.replace("title", "tilte"), "tilte"),
    "no TOML": (RELU, "title = ", "problem.toml"),
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
    options = ("--problems", tmp_path / "KernelBench", "--tolerance", "kernelbench", "--size", "full")
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
    card = grade(ATTENTION, problem="attention").assert_verdict(Status.CORRECT)
    assert {tensor.path for tensor in card.checks[0].tensors} == {"output[0]", "output[1]"}


def test_outputs_in_another_order_are_wrong(grade):
    swapped = ATTENTION.replace("output.clone(), weights.clone()", "weights.clone(), output.clone()")
    grade(swapped, problem="attention").assert_verdict(Status.WRONG_RESULT, Code.WRONG_SHAPE)


def _own(output, given="torch.randn(rows, 512)"):
    return RELU.replace("torch.relu(x)", output).replace("torch.randn(rows, 32)", given)


_STEPS = _own("torch.floor(x * 100) / 100", "torch.randn(64, 2048)")


def test_a_function_with_steps_is_not_the_same_as_none(grade_own):
    run = grade_own(_STEPS, source=module(forward=["return x.clone()"]))
    assert run.card.status is Status.WRONG_RESULT
    assert run.card.checks[0].tensors[0].mismatches > 100_000


def test_a_function_with_steps_may_round_otherwise(grade_own):
    card = grade_own(_STEPS, source=module(forward=["return (x * 100).floor_() * 0.01"])).assert_verdict(Status.CORRECT)
    assert all(each.tensors for each in card.checks)


def test_a_number_in_an_answer_may_be_summed_in_another_order(grade_own):
    mean = "(torch.relu(x), x.square().mean().item())"
    dot = module(forward=["y = x.view(-1)", "return torch.relu(x), (torch.dot(y, y) / y.numel()).item()"])
    grade_own(_own(mean), source=dot).assert_verdict(Status.CORRECT)


def test_what_the_reference_does_in_place_a_submission_may_do_too(grade_own):
    in_place = module(forward=["return x.mul_(2).add_(1)"])
    grade_own(_own("x.mul_(2).add_(1)"), source=in_place).assert_verdict(Status.CORRECT)


def test_a_stride_that_addresses_nothing_does_not_end_the_judge(grade_own):
    huge = module(forward=["return torch.fft.fft(x).as_strided((1, x.shape[1]), (2**62, 1))"])
    grade_own(_own("torch.fft.fft(x)", "torch.randn(1, 256)"), source=huge).assert_verdict(Status.CORRECT)
