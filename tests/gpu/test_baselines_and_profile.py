"""Other baselines and the profile on a real GPU."""

import os
from pathlib import Path

import pytest
import torch

from evaluator.paths import data_dir
from evaluator.records import BaselineKind, Status, Tf32
from tests.grading.harness import Grader

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
SAME = "from model import Model\nclass ModelNew(Model):\n    pass\n"


@pytest.fixture(scope="session")
def grader(tmp_path_factory) -> Grader:
    cache = Path(os.environ.get("WARPGRADE_CACHE") or tmp_path_factory.mktemp("cache"))
    return Grader(cache, tmp_path_factory.mktemp("temporary"))


@pytest.fixture
def grade(grader, tmp_path):
    def run(source, problem, *options):
        return grader(tmp_path, source, "--device", "cuda", "--size", "full", *options, problem=problem, timeout_s=60.0)

    return run


def solution(problem, name):
    return (data_dir("solutions") / problem / name).read_text()


def test_the_compiled_reference_is_timed_with_both_settings_and_kept(grade):
    card = grade(SAME, "rms_norm", "--baseline", "compile").verdict(Status.CORRECT)
    assert [each.finding for each in card.baselines] == [None, None], card.baselines
    assert [each.tf32 for each in card.baselines] == [Tf32.DEFAULT, Tf32.OFF]
    # The eager reference makes six passes where one will do, so the compiled one is the faster.
    assert all(each.speedup_high < 1 for each in card.baselines)
    again = grade(SAME, "rms_norm", "--baseline", "compile").verdict(Status.CORRECT)
    assert [each.kept for each in again.baselines] == [True, True]
    assert [each.samples for each in again.baselines] == [each.samples for each in card.baselines]


def test_a_convolution_with_tf32_as_pytorch_has_it_is_faster_and_not_refused(grade):
    card = grade(SAME, "conv2d", "--baseline", "eager").verdict(Status.CORRECT)
    (eager,) = card.baselines
    assert (eager.kind, eager.tf32, eager.finding) == (BaselineKind.EAGER, Tf32.DEFAULT, None)
    assert eager.samples.median_ms < card.timing.reference_median_ms


def test_another_submission_is_a_baseline(grade, tmp_path):
    other = tmp_path / "other.py"
    other.write_text(solution("relu", "cuda_plain.py"))
    card = grade(solution("relu", "cuda_plain.py"), "relu", "--speedup-of", other).verdict(Status.CORRECT)
    (found,) = card.baselines
    assert found.finding is None
    assert found.speedup == pytest.approx(1.0, abs=0.02)


def test_a_profile_tells_own_kernels_from_a_librarys(grade):
    card = grade(solution("relu", "cuda_vectorised.py"), "relu", "--profile").verdict(Status.CORRECT)
    found = card.profiling
    assert found.finding is None, found.finding
    assert found.own_share > 0.9
    assert found.resources
    assert all(each.registers > 0 for each in found.resources)
    # The profiler's time of the kernels is near the judge's, of which no verdict is made.
    assert found.time_us / 1e3 == pytest.approx(card.timing.submission_median_ms, rel=0.3)
    library = grade(SAME, "relu", "--profile").verdict(Status.CORRECT).profiling
    assert library.finding is None
    assert library.own_share == 0.0
