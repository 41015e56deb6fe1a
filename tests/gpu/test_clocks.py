"""Device `cuda`: inputs warm or cold in L2, host-bound forwards, and the clocks of both sides."""

import pytest
import torch

from evaluator.findings import Code
from evaluator.records import L2Inputs, L2Rule, Status
from tests.grading.harness import Grader

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

HEAD = """
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
"""
PLAIN = HEAD + "        return torch.relu(x)\n"
BUSY_HOST = (
    HEAD
    + """
        until = time.perf_counter() + 200e-6
        while time.perf_counter() < until:
            pass
        return torch.clamp(x, min=0)
"""
)
WAITS = (
    HEAD
    + """
        if float(x[0, 0].item()) > 1e30:
            raise ValueError("never")
        return torch.clamp(x, min=0)
"""
)


@pytest.fixture
def graded(tmp_path):
    grader = Grader(tmp_path / "cache", tmp_path)

    def run(source, *options):
        folder = tmp_path / f"graded{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return grader(folder, source, "--device", "cuda", "--size", "small", *options, problem="relu", timeout_s=60.0)

    return run


def test_warm_inputs_are_read_faster_than_cold_ones_on_both_sides(graded):
    cold, warm = (graded(PLAIN, "--l2", rule).assert_verdict(Status.CORRECT) for rule in ("cold", "warm"))
    assert (cold.l2, warm.l2) == (L2Inputs(rule=L2Rule.COLD), L2Inputs(rule=L2Rule.WARM))
    assert cold.timing.submission.windows is not None
    assert warm.timing.submission.windows is not None
    assert warm.timing.submission_high_ms < cold.timing.submission_low_ms
    assert warm.timing.reference_high_ms < cold.timing.reference_low_ms


def test_inputs_are_cold_unless_asked_otherwise_and_a_plain_forward_is_no_news(graded):
    run = graded(PLAIN)
    card = run.assert_verdict(Status.CORRECT)
    assert card.l2 == L2Inputs(rule=L2Rule.COLD)
    assert "inputs cold in L2" in run.out
    assert 0 < card.timing.submission.launch_ms < 1.0
    assert Code.HOST_BOUND not in run.findings


def test_a_forward_with_more_host_work_than_the_references_is_told_with_both_times(graded):
    run = graded(BUSY_HOST)
    submission = run.assert_verdict(Status.CORRECT).timing.submission
    assert 0.2 <= submission.launch_ms < 2.0
    assert submission.median_ms < 0.1
    assert submission.is_host_bound
    assert Code.HOST_BOUND in run.findings
    assert "host-bound: GPU" in run.out


def test_a_forward_that_waits_for_the_gpu_is_told(graded):
    run = graded(WAITS)
    submission = run.assert_verdict(Status.CORRECT).timing.submission
    assert submission.waits_for_gpu
    assert (submission.host_ms, submission.windows) == (None, None)
    assert submission.median_ms < 20
    assert Code.HOST_BOUND in run.findings


def test_the_clocks_of_both_sides_are_on_the_card(graded):
    timing = graded(PLAIN).assert_verdict(Status.CORRECT).timing
    for side in (timing.reference_before, timing.submission, timing.reference_after):
        assert len(side.clocks.sm_mhz) > len(side.windows.calls)
        assert all(100 < mhz < 5000 for mhz in side.clocks.sm_mhz)
        assert 5 < side.clocks.start_c < 120
        assert side.clocks.waited_s <= 2.1
