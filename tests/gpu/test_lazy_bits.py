"""Outputs with a conj or neg bit on a GPU: each kind, on either side and on both."""

import os
from pathlib import Path

import pytest
import torch

from evaluator.records import Status
from tests.grading.harness import Grader
from tests.grading.lazy import LAZY, answer, folder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture(scope="module")
def grader(tmp_path_factory):
    cache = Path(os.environ.get("WARPGRADE_CACHE") or tmp_path_factory.mktemp("cache"))
    return Grader(cache, tmp_path_factory.mktemp("temporary"))


@pytest.mark.parametrize("sides", ["both", "reference", "submission"])
@pytest.mark.parametrize(("given", "lazy", "written_out"), LAZY.values(), ids=LAZY)
def test_an_output_with_a_lazy_bit_is_graded(grader, tmp_path, given, lazy, written_out, sides):
    problem = folder(tmp_path, given, written_out if sides == "submission" else lazy)
    submission = answer(written_out if sides == "reference" else lazy)
    run = grader(tmp_path, submission, "--device", "cuda", "--size", "small", problem=str(problem), timeout_s=30.0)
    run.assert_verdict(Status.CORRECT)
