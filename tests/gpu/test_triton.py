"""Triton on a real GPU: verdicts, the compiler's reasons, autotuning, own kernels. Run with -s for the times."""

import importlib.util
import itertools
import os
from pathlib import Path

import pytest
import torch

from evaluator.findings import Code
from evaluator.paths import data_dir
from evaluator.records import ShareBasis, Status, Toolchain
from tests.grading.harness import Grader
from tests.zoo.entries import ZOO

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed"),
]
SOLUTIONS = sorted(data_dir("solutions").glob("*/triton_*.py"))
RELU = (ZOO / "triton" / "honest.py").read_text()
LOAD = "tl.load(x + i, mask=i < count)"


@pytest.fixture(scope="module")
def grader(tmp_path_factory) -> Grader:
    cache = Path(os.environ.get("WARPGRADE_CACHE") or tmp_path_factory.mktemp("cache"))
    return Grader(cache, tmp_path_factory.mktemp("temporary"))


@pytest.fixture
def grade(grader, tmp_path):
    folders = itertools.count()

    def graded(source, *options, problem="relu", size="small", timeout_s=120.0):
        options = ("--device", "cuda", "--size", size, *options)
        folder = tmp_path / str(next(folders))
        folder.mkdir()
        return grader(folder, source, *options, problem=problem, timeout_s=timeout_s)

    return graded


def line_of(source, part):
    return next(n for n, line in enumerate(source.splitlines(), start=1) if part in line)


def times(card):
    stages = ", ".join(f"{name} {spent:.2f}" for name, spent in card.stages_s.items())
    return f"{card.wall_s:.2f} s ({stages})"


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_shipped_solution_is_correct(grade, path):
    card = grade(path.read_text(), problem=path.parent.name, size="full").assert_verdict(Status.CORRECT)
    assert card.submission.toolchains == [Toolchain.TRITON]
    timing = card.timing
    speedup = "not quoted" if timing.speedup is None else f"{timing.speedup:.2f}"
    print(f"\n{path.parent.name}/{path.stem}: {timing.submission_median_ms:.4f} ms, speedup {speedup}, {times(card)}")


def test_a_second_grade_of_a_text(grade):
    """Each grade compiles once: in its check, and not again for the timing."""
    for which in ("first", "second"):
        card = grade(RELU, size="awkward").assert_verdict(Status.CORRECT)
        print(f"\n{which} grade: {times(card)}")


def test_a_wrong_kernel_is_wrong(grade):
    grade(RELU.replace("0.0)", "0.5)")).assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)


REFUSED = {
    "front end": (RELU.replace(LOAD, f"tl.relu({LOAD})"), "tl.relu", "has no attribute 'relu'"),
    "types": (RELU.replace("tl.arange(0, BLOCK)", "tl.arange(0, 1000)"), "tl.arange", "power of 2"),
    "ptxas": (
        RELU.replace(
            LOAD,
            f'tl.inline_asm_elementwise("bogus.f32 $0, $1;", "=r,r", [{LOAD}], tl.float32, is_pure=True, pack=1)',
        ),
        "def relu_kernel",
        "Not a name of any known instruction: 'bogus'",
    ),
}


@pytest.mark.parametrize(("source", "part", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_kernel_that_does_not_compile_is_a_build_error_with_its_reason(grade, source, part, reason):
    run = grade(source)
    card = run.assert_verdict(Status.BUILD_ERROR, Code.KERNEL_REFUSED, line=line_of(source, part))
    assert reason in card.reason.message
    assert "more lines" not in card.reason.message
    if part != "def relu_kernel":
        shown = run.out.splitlines()
        caret = next(n for n, text in enumerate(shown) if text.rstrip().endswith("^"))
        assert shown[caret - 1].index(part) == shown[caret].index("^")


def test_a_kernel_too_large_for_the_gpu_is_a_build_error(grade):
    source = RELU.replace("BLOCK=1024)", "BLOCK=1024, num_warps=64)")
    run = grade(source)
    card = run.assert_verdict(Status.BUILD_ERROR, Code.KERNEL_REFUSED, line=line_of(source, "def relu_kernel"))
    print(f"\n{card.reason.message}")


TUNED = """
import torch
import triton
import triton.language as tl
from torch import nn

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (1024, 4096) for warps in (4, 8)]


@triton.autotune(configs=CONFIGS, key=["count"])
@triton.jit
def relu_kernel(x, out, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < count)
    tl.store(out + i, tl.maximum(value, 0.0), mask=i < count)


bench = relu_kernel._bench


def noticed(*args, **kwargs):
    print("benchmarked")
    return bench(*args, **kwargs)


relu_kernel._bench = noticed


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out
"""


def test_autotuning_runs_in_the_check_and_not_in_the_timing(grade):
    """The card keeps what the last runner printed, which is the one that was timed."""
    card = grade(TUNED).assert_verdict(Status.CORRECT)
    assert card.timing is not None
    assert "benchmarked" not in card.output.text
    print(f"\nautotuned: {times(card)}")


def test_a_kernel_of_its_own_passes_the_policy(grade):
    card = grade(RELU, "--require-own-kernel", "0.5").assert_verdict(Status.CORRECT)
    assert card.own_kernels.kernels == ["relu_kernel"]
    assert card.own_kernels.right_without_kernels is False
    assert card.own_kernels.share_low > 0.9


@pytest.mark.parametrize("row", ["decoy-kernel-not-called", "decoy-launch-beside-library", "try-except-fallback"])
def test_a_decoy_is_rejected(grade, row):
    source = (ZOO / "triton" / f"{row}.py").read_text()
    card = grade(source, "--require-own-kernel", "0.5").assert_verdict(Status.REJECTED, Code.TOO_LITTLE_OWN)
    assert card.own_kernels.basis is ShareBasis.LEFT_OUT


def test_the_profile_has_registers_as_a_claim(grade):
    card = grade(RELU, "--profile").assert_verdict(Status.CORRECT)
    (found,) = [each for each in card.profiling.resources if each.name == "relu_kernel"]
    assert found.claimed
    assert 8 <= found.registers <= 255
    print(f"\n{found}")
