"""Running statistics: a submission that does not update them as the reference does is correct, with a finding."""

import pytest

from evaluator.findings import Code
from evaluator.records import Status

REFERENCE = """\
import torch
from torch import nn

rows = 64

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(x)

def get_inputs():
    return [torch.randn(rows, 8)]

def get_init_inputs():
    return []
"""
TOML = 'title = "Mine"\nlevel = 1\ndescription = "A problem of my own."\nmode = "train"\n'
TOML += "[sizes.full]\nrows = 64\n[sizes.small]\nrows = 32\n"
OWN = """
import torch
from torch import nn
from torch.nn import functional

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = {norm}

    def forward(self, x):
        return {answer}
"""
NORM = "nn.BatchNorm1d(8)"
BATCH = "functional.batch_norm(x, None, None, self.norm.weight, self.norm.bias, training=True)"
SUBMISSIONS = {
    "updates": (OWN.format(norm=NORM, answer="self.norm(x)"), None),
    "stale": (OWN.format(norm=NORM, answer=BATCH), "ModelNew does not"),
    "none": (OWN.format(norm="nn.BatchNorm1d(8, track_running_stats=False)", answer=BATCH), "has no such buffer"),
}


@pytest.mark.parametrize(("source", "said"), SUBMISSIONS.values(), ids=SUBMISSIONS)
def test_running_statistics_are_compared_and_change_no_verdict(grader, tmp_path, source, said):
    problem = tmp_path / "problems" / "mine"
    problem.mkdir(parents=True)
    (problem / "problem.toml").write_text(TOML)
    (problem / "reference.py").write_text(REFERENCE)
    card = grader(tmp_path, source, "--problems", tmp_path / "problems", problem="mine").assert_verdict(Status.CORRECT)
    found = [each.message for each in card.findings if each.code == Code.BUFFERS_DIFFER.value]
    assert len(found) == (said is not None)
    assert said is None or said in found[0]
