"""Mode of ModelNew: the reference's, where all modules of the reference have the same."""

import pytest

from evaluator.findings import Code
from evaluator.records import Status

REFERENCE = """\
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8){in_reference}

    def forward(self, x):
        return self.norm(x)

def get_inputs():
    return [torch.randn(64, 8)]

def get_init_inputs():
    return []
"""
SUBMISSION = """\
from torch import nn

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        {in_submission}

    def forward(self, x):
        return self.norm(x)
"""
CASES = {
    "follows train()": ("", "self.eval()", None),
    "follows train() in a module": ("", "self.norm.eval()", None),
    "same module in eval": (".eval()", "self.norm.eval()", None),
    "same module in train": (".eval()", "pass", Code.WRONG_VALUES),
    "follows eval()": (".eval(); self.eval()", "pass", None),
}


@pytest.mark.parametrize(("in_reference", "in_submission", "code"), CASES.values(), ids=CASES)
def test_a_submission_has_the_mode_of_the_reference(grader, tmp_path, in_reference, in_submission, code):
    problem = tmp_path / "own.py"
    problem.write_text(REFERENCE.format(in_reference=in_reference))
    source = SUBMISSION.format(in_submission=in_submission)
    status = Status.CORRECT if code is None else Status.WRONG_RESULT
    grader(tmp_path, source, problem=str(problem)).assert_verdict(status, code)
