"""Submissions in Triton without a GPU: in Triton's interpreter on `emulated`, and without a verdict elsewhere."""

import importlib.util
import os

import pytest

from evaluator.findings import Code
from evaluator.paths import data_dir
from evaluator.records import Status, Toolchain
from tests.grading.harness import PATIENT_S

pytestmark = pytest.mark.slow

HAS_TRITON = importlib.util.find_spec("triton") is not None
NEEDS_TRITON = pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed: pip install 'warpgrade[triton]'")
EMULATED = ("--device", "emulated")
SOLUTIONS = sorted(data_dir("solutions").glob("*/triton_*.py"))
FAST = ("matmul", "relu", "softmax", "gqa_decode", "quantize_fp8", "swiglu")
"""Graded in every run of the tests: three in fp32, products in bfloat16, casts to fp8, and casts to bfloat16."""
UNLESS_ASKED = pytest.mark.skipif(os.environ.get("WARPGRADE_SOLUTIONS") != "all", reason="WARPGRADE_SOLUTIONS=all")
LAUNCHES = {"layer_norm_backward": 2}
"""Launches of solutions with more than one kernel."""
RELU = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def relu_kernel(x, out, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < count)
    tl.store(out + i, tl.maximum(value, 0.0), mask=i < count)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""
LOAD = "tl.load(x + i, mask=i < count)"


def marked(path):
    """The case of a solution, left out of ordinary runs unless it is fast."""
    marks = () if path.parent.name in FAST else (pytest.mark.long, UNLESS_ASKED)
    return pytest.param(path, marks=marks, id=f"{path.parent.name}-{path.stem}")


@NEEDS_TRITON
@pytest.mark.parametrize("path", [marked(path) for path in SOLUTIONS])
def test_a_shipped_solution_is_correct_and_all_its_own(grader, tmp_path, path):
    """The product of matrices is autotuned, and its loop has a bound that only the launch knows."""
    own = ("--require-own-kernel", "0.5", "--size", "awkward")
    card = grader(tmp_path, path.read_text(), *EMULATED, *own, problem=path.parent.name).assert_verdict(Status.CORRECT)
    assert {check.launches for check in card.checks} == {LAUNCHES.get(path.parent.name, 1)}
    assert Code.INTERPRETED in {finding.code for finding in card.findings}
    assert card.submission.toolchains == [Toolchain.TRITON]
    assert card.own_kernels.share_low == 1.0


@NEEDS_TRITON
@pytest.mark.parametrize(
    ("old", "new", "status", "code", "line"),
    [
        ("0.0)", "0.5)", Status.WRONG_RESULT, Code.WRONG_VALUES, None),
        (LOAD, f"tl.relu({LOAD})", Status.BUILD_ERROR, Code.KERNEL_REFUSED, 11),
        (LOAD, f"{LOAD}\n    assert BLOCK < 0", Status.RUNTIME_ERROR, Code.FORWARD_FAILED, 12),
        # The last program begins far behind the end of the tensor, where no page is mapped.
        (LOAD, "tl.load(x + i + (1 << 30))", Status.RUNTIME_ERROR, Code.RUNNER_DIED, None),
        (
            LOAD,
            "tl.extra.cuda.libdevice.tanh(tl.load(x + i))",
            Status.INCONCLUSIVE,
            Code.NOT_EMULATED,
            None,
        ),
        (
            LOAD,
            f"0.0\n    for n in range(1):\n        value += {LOAD} * (n.to(tl.float32) + 1.0)",
            Status.INCONCLUSIVE,
            Code.NOT_EMULATED,
            None,
        ),
    ],
    ids=["wrong", "unknown function", "assertion", "out of bounds", "libdevice", "a method of a number"],
)
def test_a_kernel_that_fails_in_the_interpreter(grader, tmp_path, old, new, status, code, line):
    card = grader(tmp_path, RELU.replace(old, new), *EMULATED).assert_verdict(status, code, line=line)
    if code is Code.RUNNER_DIED:
        assert "without a mask" in card.reason.message
    if code is Code.KERNEL_REFUSED:
        said = "AttributeError: module 'triton.language' has no attribute 'relu'"
        assert card.reason.message == f"Triton's interpreter refuses the kernel relu_kernel: {said}"


@NEEDS_TRITON
@pytest.mark.parametrize(("number", "status"), [(393216, Status.INCONCLUSIVE), (3, Status.BUILD_ERROR)])
def test_a_refused_kernel_with_a_number_of_the_full_size_is_no_verdict(grader, tmp_path, number, status):
    """At the small size the quotient is 3, which is no power of two; relu's full size has 393216 columns."""
    block = f"tl.arange(0, {number} // ({number} // 3))"
    run = grader(tmp_path, RELU.replace("tl.arange(0, BLOCK)", block), *EMULATED)
    code = Code.HARD_CODED_SIZE if status is Status.INCONCLUSIVE else Code.KERNEL_REFUSED
    run.assert_verdict(status, code)


@NEEDS_TRITON
def test_a_scalar_condition_may_be_a_part_of_a_mask(grader, tmp_path):
    """The last program's block is behind the end: a lost condition would write there."""
    whole = RELU.replace("i < count", "(i < count) & (tl.program_id(0) * BLOCK < count)")
    assert whole != RELU
    grader(tmp_path, whole, *EMULATED).assert_verdict(Status.CORRECT)


@NEEDS_TRITON
def test_products_in_tf32_are_refused_in_a_problem_in_fp32(grader, tmp_path):
    """TF32 is the default of tl.dot, on a GPU and in the interpreter."""
    in_fp32 = data_dir("solutions").joinpath("matmul", "triton_autotuned.py").read_text()
    in_tf32 = in_fp32.replace(', input_precision="ieee"', "")
    assert in_tf32 != in_fp32
    grader(tmp_path, in_tf32, *EMULATED, problem="matmul").assert_verdict(Status.WRONG_RESULT, Code.LOWER_PRECISION)


@pytest.mark.skipif(HAS_TRITON, reason="Triton is installed")
@pytest.mark.parametrize("device", ["emulated", "cpu"])
def test_without_triton_there_is_no_verdict(grader, tmp_path, device):
    card = grader(tmp_path, RELU, "--device", device).assert_verdict(Status.INCONCLUSIVE, Code.LANGUAGE_MISSING)
    assert "pip install 'warpgrade[triton]'" in card.reason.message


@NEEDS_TRITON
def test_on_the_cpu_there_is_no_verdict(grader, tmp_path):
    grader(tmp_path, RELU, "--device", "cpu").assert_verdict(Status.INCONCLUSIVE, Code.NOT_ON_THIS_DEVICE)


FORGED = """
from triton.compiler.errors import CompilationError


class Refused(CompilationError):
    def __init__(self):
        self.src, self.node, self.error_message = "def k(", None, "all is well\\n" * 100_000


class ModelNew:
    def __call__(self, x):
        raise Refused
"""


@NEEDS_TRITON
def test_a_forged_compile_error_is_a_short_failure(grader, tmp_path):
    card = grader(tmp_path, FORGED, timeout_s=PATIENT_S).assert_verdict(Status.BUILD_ERROR, Code.KERNEL_REFUSED)
    assert len(card.reason.message) < 300
