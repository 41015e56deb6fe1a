"""Device `cuda`: a stream of the runner's own cannot draw a call's numbers before the clock runs."""

import shutil

import pytest
import torch

from evaluator.records import Status
from tests.grading.harness import Grader
from tests.zoo.entries import ZOO, entries

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
CHEAT = """
import torch
from torch import nn

seed_device = torch.cuda.manual_seed
models = []


def seeded(seed):
    seed_device(seed)
    for model in models:
        model.draw_ahead()
    seed_device(seed)


torch.cuda.manual_seed = seeded


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.shape = self.noise = None
        self.side = torch.cuda.Stream()
        models.append(self)

    def draw_ahead(self):
        if self.shape is not None:
            with torch.cuda.stream(self.side):
                self.noise = torch.randn(self.shape, device="cuda").mul_(0.1)

    def forward(self, x):
        self.shape = x.shape
        noise, self.noise = self.noise, None
        if noise is None:
            return torch.randn(x.shape, device=x.device).mul_(0.1).add_(x)
        torch.cuda.current_stream().wait_stream(self.side)
        return x + noise
"""


def test_numbers_drawn_when_the_seed_is_heard_are_drawn_inside_of_the_clock(tmp_path):
    (entry,) = (entry for entry in entries() if entry.name == "seed-hook")
    problem = tmp_path / "noise"
    shutil.copytree(ZOO / "problems" / entry.expected.problem, problem)
    for file in ("problem.toml", "reference.py"):  # 1 GiB: drawing takes longer than asking.
        path = problem / file
        path.write_text(path.read_text().replace("size = 1024", "size = 16384"))
    grader = Grader(tmp_path / "cache", tmp_path)

    def graded(name, source):
        folder = tmp_path / name
        folder.mkdir()
        options = ("--device", "cuda", "--size", "full")
        return grader(folder, source, *options, problem=str(problem), timeout_s=30.0).assert_verdict(Status.CORRECT)

    honest, cheat = graded("honest", entry.honest.read_text()), graded("cheat", CHEAT)
    assert cheat.timing.submission_median_ms > 0.9 * honest.timing.submission_median_ms
