"""`--require-own-kernel` on a real GPU: what has a kernel of its own passes, and what has none, or hides behind one."""

import os
from pathlib import Path

import pytest
import torch

from evaluator.findings import Code
from evaluator.records import ShareBasis, Status
from tests.grading.harness import Grader
from tests.zoo.entries import ZOO
from tests.zoo.mutations import NO_WORK

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
HALF = ("--device", "cuda", "--size", "small", "--require-own-kernel", "0.5")


@pytest.fixture(scope="module")
def grader(tmp_path_factory) -> Grader:
    cache = Path(os.environ.get("WARPGRADE_CACHE") or tmp_path_factory.mktemp("cache"))
    return Grader(cache, tmp_path_factory.mktemp("temporary"))


@pytest.mark.parametrize("row", NO_WORK)
def test_what_has_no_work_of_its_own_is_rejected(grader, tmp_path, row):
    run = grader(tmp_path, (ZOO / row / "cheat.py").read_text(), *HALF, timeout_s=30.0)
    card = run.assert_verdict(Status.REJECTED, Code.TOO_LITTLE_OWN)
    # A kernel that is built and not launched can be left out; the others have none to look for.
    basis = ShareBasis.LEFT_OUT if row == "decoy-kernel-not-called" else ShareBasis.BUILT
    assert card.own_kernels.basis is basis


def test_an_empty_kernel_with_a_librarys_name_is_rejected(grader, tmp_path):
    source = (ZOO / "empty-kernel-with-librarys-name" / "cheat.py").read_text()
    run = grader(tmp_path, source, *HALF, problem="matmul", timeout_s=30.0)
    card = run.assert_verdict(Status.REJECTED, Code.TOO_LITTLE_OWN)
    assert card.own_kernels.basis is ShareBasis.LEFT_OUT


def test_its_honest_twin_needs_its_kernel(grader, tmp_path):
    source = (ZOO / "empty-kernel-with-librarys-name" / "honest.py").read_text()
    card = grader(tmp_path, source, *HALF, problem="matmul", timeout_s=30.0).assert_verdict(Status.CORRECT)
    assert card.own_kernels.right_without_kernels is False
    assert card.own_kernels.share_low > 0.9


def test_a_kernel_that_is_launched_for_show_is_rejected(grader, tmp_path):
    source = (ZOO / "decoy-launch-beside-library" / "cheat.py").read_text()
    card = grader(tmp_path, source, *HALF, timeout_s=30.0).assert_verdict(Status.REJECTED, Code.TOO_LITTLE_OWN)
    assert card.own_kernels.right_without_kernels is True


def test_a_kernel_of_its_own_passes(grader, tmp_path):
    source = (ZOO / "twins" / "relu_kernel.py").read_text()
    card = grader(tmp_path, source, *HALF, timeout_s=30.0).assert_verdict(Status.CORRECT)
    assert card.own_kernels.kernels == ["relu_kernel"]
    assert card.own_kernels.share_low > 0.9
