"""Modes of reference and submission in a program without a judge."""

import subprocess
import sys

import pytest

from evaluator.protocol.frames.values import ModelMode
from evaluator.protocol.standalone_call import LoneCall, lay_out
from evaluator.sandbox.filesystem.visible_files import source_root

MODEL = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4)){constructor}
    def forward(self, x):
        print("Model" if type(self) is Model else "ModelNew", self.training)
        return x * self.scale
def get_inputs():
    return [torch.ones(3, 4)]
def get_init_inputs():
    return []
"""
SUBMISSION = "from model import Model\nclass ModelNew(Model):\n    pass\n"
BOOT = """
import contextlib, pathlib, sys
sys.path.insert(0, sys.argv[1])
import torch
from evaluator.runner import standalone
from evaluator.protocol.standalone_call import read_back
folder = pathlib.Path(sys.argv[2])
standalone.run(read_back(folder), folder, torch.device("cpu"), contextlib.nullcontext())
"""
TRAIN, EVAL = "True", "False"


@pytest.mark.parametrize(
    ("mode", "constructor", "of_reference", "of_submission"),
    [
        (ModelMode.AS_CONSTRUCTED, "", TRAIN, TRAIN),
        (ModelMode.AS_CONSTRUCTED, "; self.eval()", EVAL, EVAL),
        (ModelMode.TRAIN, "; self.eval()", EVAL, TRAIN),
        (ModelMode.EVAL, "", EVAL, EVAL),
    ],
)
@pytest.mark.process
def test_the_mode_is_the_submissions_and_in_evaluation_the_references(
    tmp_path, mode, constructor, of_reference, of_submission
):
    call = LoneCall(
        submission=SUBMISSION,
        entries=["ModelNew"],
        model=MODEL.format(constructor=constructor),
        weight_seed=7,
        seed=11,
        mode=mode,
        backward=True,
        tf32=False,
        threads=1,
    )
    lay_out(tmp_path, call)
    program = [sys.executable, "-c", BOOT, str(source_root()), str(tmp_path)]
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=120)
    expected = [f"Model {of_reference}", f"ModelNew {of_submission}", f"ModelNew {of_submission}"]
    assert done.stdout.splitlines() == expected, done.stderr
