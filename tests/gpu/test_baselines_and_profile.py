"""Other baselines and the profile on a real GPU."""

import os
from pathlib import Path

import pytest
import torch

from evaluator.judge.exhibits.ncu import find_ncu
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
    card = grade(SAME, "rms_norm", "--baseline", "compile").assert_verdict(Status.CORRECT)
    assert [each.finding for each in card.baselines] == [None, None], card.baselines
    assert [each.tf32 for each in card.baselines] == [Tf32.DEFAULT, Tf32.OFF]
    # The eager reference makes six passes where one will do, so the compiled one is the faster.
    assert all(each.speedup_high < 1 for each in card.baselines)
    again = grade(SAME, "rms_norm", "--baseline", "compile").assert_verdict(Status.CORRECT)
    assert [each.kept for each in again.baselines] == [True, True]
    assert [each.samples for each in again.baselines] == [each.samples for each in card.baselines]


def test_a_convolution_with_tf32_as_pytorch_has_it_is_faster_and_not_refused(grade):
    card = grade(SAME, "conv2d", "--baseline", "eager").assert_verdict(Status.CORRECT)
    (eager,) = card.baselines
    assert (eager.kind, eager.tf32, eager.finding) == (BaselineKind.EAGER, Tf32.DEFAULT, None)
    assert eager.samples.median_ms < card.timing.reference_median_ms


def test_another_submission_is_a_baseline(grade, tmp_path):
    other = tmp_path / "other.py"
    other.write_text(solution("relu", "cuda_plain.py"))
    card = grade(solution("relu", "cuda_plain.py"), "relu", "--speedup-of", other).assert_verdict(Status.CORRECT)
    (found,) = card.baselines
    assert found.finding is None
    assert found.speedup == pytest.approx(1.0, abs=0.02)


def test_a_profile_tells_own_kernels_from_a_librarys(grade):
    card = grade(solution("relu", "cuda_vectorised.py"), "relu", "--profile").assert_verdict(Status.CORRECT)
    found = card.profiling
    assert found.finding is None, found.finding
    assert found.own_share > 0.9
    assert found.resources
    assert all(each.registers > 0 for each in found.resources)
    # The profiler's time of the kernels is near the judge's, of which no verdict is made.
    assert found.time_us / 1e3 == pytest.approx(card.timing.submission_median_ms, rel=0.3)
    library = grade(SAME, "relu", "--profile").assert_verdict(Status.CORRECT).profiling
    assert library.finding is None
    assert library.own_share == 0.0


with_ncu = pytest.mark.skipif(find_ncu() is None, reason="there is no ncu (Nsight Compute) on this machine")


@with_ncu
def test_ncu_adds_bandwidth_and_occupancy_of_own_kernels(grade):
    run = grade(solution("relu", "cuda_vectorised.py"), "relu", "--profile", "ncu")
    card = run.assert_verdict(Status.CORRECT)
    found = card.profiling.counters
    assert found.finding is None, found.finding
    assert not found.cut
    own = [kernel for kernel in found.kernels if kernel.own]
    assert own, [kernel.name for kernel in found.kernels]
    largest = own[0]
    assert 5 < largest.bandwidth_percent < 110
    assert 0 < largest.occupancy_percent <= 100
    assert largest.dram_bytes_per_s == pytest.approx(largest.dram_bytes / (largest.time_us * 1e-6))
    # What it moved is about what the problem says that a call must move: the cache may keep some of it.
    needed = card.roofline.needed_read_bytes + card.roofline.written_bytes
    assert largest.dram_bytes == pytest.approx(needed, rel=0.2)
    # The profile of PyTorch's profiler is there as ever, and sees the same kernel take as long.
    assert card.profiling.finding is None, card.profiling.finding
    assert card.profiling.own_share > 0.9
    assert largest.time_us == pytest.approx(card.profiling.kernels[0].time_us, rel=0.3)
    assert "Counters" in run.out
    assert "of peak" in run.out


@with_ncu
def test_ncu_counts_the_kernels_of_a_backward_pass(grade):
    card = grade(solution("relu_backward", "cuda_autograd.py"), "relu_backward", "--profile", "ncu")
    found = card.assert_verdict(Status.CORRECT).profiling.counters
    assert found.finding is None, found.finding
    own = {kernel.name.partition("(")[0]: kernel for kernel in found.kernels if kernel.own}
    assert {"forward_kernel", "backward_kernel"} <= own.keys(), [kernel.name for kernel in found.kernels]
    for kernel in own.values():
        assert (kernel.launches, kernel.dram_bytes > 0) == (1, True)
        assert 5 < kernel.bandwidth_percent < 110
        assert 0 < kernel.occupancy_percent <= 100


@with_ncu
def test_a_submission_that_misbehaves_under_ncu_loses_its_counters_alone(grade):
    """It is right in a runner, and tells the program by the place that its file lies in."""
    source = (
        "import os\nfrom model import Model\n"
        "class ModelNew(Model):\n"
        "    def forward(self, x):\n"
        "        if os.path.exists('order.msgpack'):\n"
        "            raise RuntimeError('not under ncu')\n"
        "        return super().forward(x)\n"
    )
    profile = grade(source, "relu", "--profile", "ncu").assert_verdict(Status.CORRECT).profiling
    assert profile.finding is None
    assert (profile.counters.kernels, profile.counters.finding.code) == ([], "T317")
    assert "not under ncu" in profile.counters.finding.message
