"""Grades of several cases on a real GPU: each timed by the sealed clock, one score."""

import subprocess
import sys

import pytest
import torch

from evaluator.cards.consistency import inconsistencies
from evaluator.files.card_files import read_card
from evaluator.paths import data_dir
from evaluator.records import Status
from tests.grading.harness import TOP

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.parametrize("problem", ["swiglu", "rms_norm_bf16", "gqa_decode"])
def test_a_shipped_solution_is_timed_at_every_case_of_the_workload(problem, tmp_path):
    (solution, *_), card_path = sorted((data_dir("solutions") / problem).glob("cuda_*.py")), tmp_path / "card.json"
    options = ("--device", "cuda", "--case", "all", "--no-ready", "--output", str(card_path))
    command = [sys.executable, str(TOP / "cli.py"), "grade", problem, str(solution), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert card_path.exists(), done.stderr
    card = read_card(card_path)
    assert card.status is Status.CORRECT, [(each.name, each.code, each.message) for each in card.cases]
    assert all(each.is_timed for each in card.cases)
    assert card.score is not None
    assert inconsistencies(card) == []
