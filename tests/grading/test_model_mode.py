"""Mode of ModelNew: as constructed, or after `train()` if only then the answers are right."""

import pytest

from evaluator.catalog import find_problem
from evaluator.findings import Code
from evaluator.records import Status
from tests.grading.judged import context_of, judged, verdict

MODEL = """\
import torch
from torch import nn
from torch.nn import functional

class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.norm.running_mean += 1
        {constructor}

    {methods}

    def forward(self, x):
        return {output}
"""
INPUTS = """
def get_inputs():
    return [torch.randn(64, 8)]

def get_init_inputs():
    return []
"""
NORM = "self.norm(x)"
RUNNING = (
    "functional.batch_norm("
    "x, self.norm.running_mean, self.norm.running_var, self.norm.weight, self.norm.bias, training=False)"
)
FROZEN = "def train(self, mode=True):\n        super().train(mode)\n        self.norm.eval()"
ONLY_EVAL = "def train(self, mode=True):\n        if mode:\n            raise RuntimeError\n        super().train(mode)"
LOOP = "def train(self, data, labels):\n        raise RuntimeError"
TOML = 'title = "Mine"\nlevel = 1\ndescription = "A problem of my own."\nmode = "eval"\n[sizes.full]\n[sizes.small]\n'


def model(name, constructor="pass", methods="pass", output=NORM):
    return MODEL.format(name=name, constructor=constructor, methods=methods, output=output)


@pytest.fixture
def graded(tmp_path):
    """Judge a submission for a reference, each by the changes of `model`."""

    def run(reference, submission):
        problem = tmp_path / "own.py"
        problem.write_text(model("Model", **reference) + INPUTS)
        with context_of(find_problem(str(problem))) as context:
            return judged(context, model("ModelNew", **submission))

    return run


def codes(outcome):
    return {each.code for each in outcome.findings}


EVAL, NORM_EVAL = {"constructor": "self.eval()"}, {"constructor": "self.norm.eval()"}
AS_CONSTRUCTED = {
    "a reference in evaluation": (EVAL, EVAL),
    "a module in evaluation": (NORM_EVAL, NORM_EVAL),
    "an own train(), as in the reference": ({"methods": FROZEN}, {"methods": FROZEN}),
    "a training loop": ({}, {"methods": LOOP}),
    "running statistics by a function": ({"output": RUNNING}, EVAL),
}


@pytest.mark.parametrize(("reference", "submission"), AS_CONSTRUCTED.values(), ids=AS_CONSTRUCTED)
def test_right_answers_as_constructed_are_right(graded, reference, submission):
    outcome = graded(reference, submission)
    assert outcome.status is Status.CORRECT, outcome.reason
    assert Code.SET_TO_TRAINING.value not in codes(outcome)


@pytest.mark.parametrize("submission", [EVAL, NORM_EVAL], ids=["the model", "a module"])
def test_eval_in_the_constructor_is_made_up_for(graded, submission):
    """Seven published answers of CUDA-L1 call `eval()` in the constructor, for a reference in training mode."""
    outcome = graded({}, submission)
    assert outcome.status is Status.CORRECT, outcome.reason
    assert Code.SET_TO_TRAINING.value in codes(outcome)


STATELESS = {"output": "x + 1"}
WRONG = {
    "a reference without modes": (STATELESS, {**EVAL, "output": "x + self.training"}),
    "in either mode": ({}, {**EVAL, "output": "self.norm(x) + self.training + 1"}),
    "a reference in evaluation": (EVAL, {}),
    "a train() that raises": ({}, {**EVAL, "methods": ONLY_EVAL}),
}


@pytest.mark.parametrize(("reference", "submission"), WRONG.values(), ids=WRONG)
def test_wrong_answers_have_the_reason_of_the_constructed_model(graded, reference, submission):
    outcome = graded(reference, submission)
    assert verdict(outcome) == (Status.WRONG_RESULT, Code.WRONG_VALUES)
    assert Code.SET_TO_TRAINING.value not in codes(outcome)


def test_a_problem_in_evaluation_calls_eval(tmp_path):
    """A module of Model whose own train() keeps it in training, such as dropout at inference, stays so in ModelNew."""
    kept = {"methods": "def train(self, mode=True):\n        super().train(mode)\n        self.norm.train()"}
    (tmp_path / "problem.toml").write_text(TOML)
    (tmp_path / "reference.py").write_text(model("Model", **kept) + INPUTS)
    with context_of(find_problem(str(tmp_path))) as context:
        assert judged(context, model("ModelNew", **kept)).status is Status.CORRECT
        assert verdict(judged(context, model("ModelNew"))) == (Status.WRONG_RESULT, Code.WRONG_VALUES)
