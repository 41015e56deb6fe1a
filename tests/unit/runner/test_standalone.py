"""Modes of reference and submission in a program without a judge."""

import subprocess
import sys

import pytest

from evaluator.protocol.frames.values import ModelMode
from evaluator.protocol.standalone_call import LoneCall, lay_out
from evaluator.sandbox.visible_files import source_root

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
import contextlib, os, pathlib, sys
sys.path.insert(0, sys.argv[1])
import torch
from evaluator.runner import standalone
from evaluator.protocol.standalone_call import read_back
for folder in map(pathlib.Path, sys.argv[2:]):
    if os.fork() == 0:
        standalone.run(read_back(folder), folder, torch.device("cpu"), contextlib.nullcontext())
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""
"""Imports PyTorch once, and forks for each folder."""
TRAIN, EVAL = "True", "False"


MODES = [
    (ModelMode.AS_CONSTRUCTED, "", TRAIN, TRAIN),
    (ModelMode.AS_CONSTRUCTED, "; self.eval()", EVAL, EVAL),
    (ModelMode.TRAIN, "; self.eval()", EVAL, TRAIN),
    (ModelMode.EVAL, "", EVAL, EVAL),
]


@pytest.mark.process
def test_the_mode_is_the_submissions_and_in_evaluation_the_references(tmp_path):
    folders = []
    for number, (mode, constructor, _, _) in enumerate(MODES):
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
        folders.append(tmp_path / str(number))
        folders[-1].mkdir()
        lay_out(folders[-1], call)
    program = [sys.executable, "-c", BOOT, str(source_root()), *map(str, folders)]
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=240)
    expected = [
        line
        for _, _, reference, submission in MODES
        for line in (f"Model {reference}", f"ModelNew {submission}", f"ModelNew {submission}")
    ]
    assert done.stdout.splitlines() == expected, done.stderr
