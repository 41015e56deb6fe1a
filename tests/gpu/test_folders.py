"""Submissions of several files on a real GPU."""

import subprocess
import sys

import pytest
import torch

from evaluator.files.card_files import read_card
from evaluator.protocol.submission_files import place_of
from evaluator.records import Status
from tests.grading.folders import HALVES, write
from tests.grading.harness import TOP

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture
def graded(tmp_path):
    def grade(files):
        folder, card = write(tmp_path / "mine", files), tmp_path / "card.json"
        place = ("--device", "cuda", "--size", "awkward", "--no-ready", "--output", str(card))
        command = [sys.executable, str(TOP / "cli.py"), "grade", "relu", str(folder), *place]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=550)
        assert card.exists(), done.stderr
        return read_card(card)

    return grade


def test_kernels_of_two_files_run(graded):
    card = graded(HALVES)
    assert card.status is Status.CORRECT, card.reason
    assert card.timing is not None


def test_an_error_of_nvcc_is_placed_in_its_file(graded):
    name = "csrc/second/kernel.cu"
    card = graded(HALVES | {name: HALVES[name].replace("half + 255", "missing_name")})
    assert card.status is Status.BUILD_ERROR, card.reason
    assert place_of(card.submission.source, card.reason.line).label == f"{name}, line 14"
