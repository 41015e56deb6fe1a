"""The shipped CUDA solutions of operations of today's models are correct on `emulated`."""

import os

import pytest

from evaluator.paths import data_dir
from evaluator.records import Status

EMULATED = ("--device", "emulated")
FAST = ("rms_norm_residual", "swiglu")
"""A kernel of shuffles with two outputs, and an elementwise one, both in bfloat16: graded in every run of the tests."""
OTHERS = (
    *("adam_step", "cross_entropy_bf16", "depthwise_conv1d", "embedding_bag", "gqa_decode", "layer_norm_backward"),
    *("paged_decode", "rope_kv_write", "selective_scan", "sliding_window_attention", "softmax_topk", "w4a16_matmul"),
    *("quantize_fp8", "dequantize_fp8", "matmul_fp8", "attention_scores_int8", "moe_grouped_matmul_bf16"),
)
UNLESS_ASKED = pytest.mark.skipif(os.environ.get("WARPGRADE_SOLUTIONS") != "all", reason="WARPGRADE_SOLUTIONS=all")


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in FAST),
        *(pytest.param(name, marks=[pytest.mark.long, UNLESS_ASKED]) for name in OTHERS),
    ],
)
def test_a_solution_is_correct_on_an_awkward_size_without_a_finding(grader, tmp_path, name):
    (path,) = (data_dir("solutions") / name).glob("cuda_*.py")
    card = grader(tmp_path, path.read_text(), *EMULATED, "--size", "awkward", problem=name).assert_verdict(
        Status.CORRECT
    )
    assert [finding.code for finding in card.findings] == []
