"""What a grade must not wait for: PyTorch's compiler, and the algebra that it uses, take a second to import."""

import subprocess
import sys

import pytest

from tests.grading.harness import TOP

SUBMISSION = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        raised = torch.exp2((x - x.amax(-1, keepdim=True)) * 1.4426950408889634)
        return raised / raised.sum(-1, keepdim=True)
"""
GRADE = """
import gc
import sys
from evaluator.commands import main as cli
code = cli.run()
print("imported:", code, [name for name in ("torch._dynamo", "sympy") if name in sys.modules], file=sys.stderr)
print("garbage:", gc.isenabled(), gc.get_freeze_count() > 100_000, file=sys.stderr)
"""

IMPORT = """
import gc, sys
from evaluator.grading.request import nothing_collected
for _ in range(2):
    with nothing_collected():
        print(gc.isenabled(), "torch" in sys.modules)
        import torch
    print(gc.isenabled(), gc.get_freeze_count() > 100_000)
"""


def test_nothing_is_collected_while_torch_is_imported():
    run = subprocess.run([sys.executable, "-c", IMPORT], cwd=TOP, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["False False", "True True", "True True", "True True"]


@pytest.mark.long
def test_a_problem_that_is_known_is_graded_without_the_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))
    submission = tmp_path / "submission.py"
    submission.write_text(SUBMISSION)
    options = ["--device", "cpu", "--size", "small", "--quiet", "--output", str(tmp_path / "card.json")]
    command = [sys.executable, "-c", GRADE, "grade", "softmax", str(submission), *options]
    for first in (True, False):
        run = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False, timeout=300)
        told = [line for line in run.stderr.splitlines() if line.startswith("imported: 0 ")]
        assert len(told) == 1, run.stderr
        assert "garbage: True True" in run.stderr.splitlines()  # Looked for again, but not in what was imported.
        assert first or told == ["imported: 0 []"]
