"""The roofline on a real GPU: what is measured of it, who is refused by it, and who must not be."""

import os
from pathlib import Path

import pytest
import torch

from evaluator.findings import Code
from evaluator.records import Status
from tests.grading.harness import Grader

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
HEAD = "import torch\nfrom torch import nn\n"
SAME = "from model import Model\nclass ModelNew(Model):\n    pass\n"


@pytest.fixture(scope="session")
def grader(tmp_path_factory) -> Grader:
    cache = Path(os.environ.get("WARPGRADE_CACHE") or tmp_path_factory.mktemp("cache"))
    return Grader(cache, tmp_path_factory.mktemp("temporary"))


@pytest.fixture
def grade(grader, tmp_path):
    """Grade a submission for a problem given by the text of its inputs and of its forward's result."""

    def run(source, inputs, result, *extra, init="pass"):
        folder = tmp_path / "given"
        folder.mkdir(exist_ok=True)
        (folder / "reference.py").write_text(
            f"{HEAD}edge = 16384\n\n\nclass Model(nn.Module):\n"
            f"    def __init__(self):\n        super().__init__()\n        {init}\n\n"
            f"    def forward(self, x, *rest):\n        return {result}\n\n\n"
            f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
        )
        (folder / "problem.toml").write_text(
            'title = "Given"\nlevel = 1\ndescription = "For a test."\n'
            "[sizes.full]\nedge = 16384\n[sizes.small]\nedge = 256\n"
        )
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        options = ("--device", "cuda", "--size", "full", *extra)
        return grader(work, source, *options, problem=str(folder), timeout_s=60.0)

    return run


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    import subprocess

    from evaluator.compile.own_libraries import _KERNELS
    from evaluator.toolchain import nvcc

    target = nvcc.architecture(*torch.cuda.get_device_capability())
    out = tmp_path_factory.mktemp("kernels") / "judge.cubin"
    source = next(path for path in _KERNELS if path.name == "judge.cu")
    flags = ["-cubin", f"-gencode=arch=compute_{target},code=sm_{target}", "-O3", "-std=c++17"]
    subprocess.run([nvcc.nvcc().path, str(source), *flags, "-o", str(out)], check=True)
    return out.read_bytes()


def test_the_bandwidth_is_below_the_memorys_own_and_not_far_below(kernels):
    import pynvml

    from evaluator.judge.exhibits.gpu_peaks import measured_bandwidth

    torch.zeros(1, device="cuda")
    found = measured_bandwidth(kernels)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    mega_hertz = pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM)
    pins = pynvml.nvmlDeviceGetMemoryBusWidth(handle)
    pynvml.nvmlShutdown()
    most = 2 * mega_hertz * 1e6 * pins / 8  # Two transfers in a clock.
    assert 0.8 * most < found < most
    assert measured_bandwidth(kernels) == pytest.approx(found, rel=0.02)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_a_peak_is_measured_and_leaves_products_in_true_fp32(precision):
    from evaluator.judge.exhibits.gpu_peaks import measured_peak
    from evaluator.records import Precision

    torch.backends.cuda.matmul.allow_tf32 = False
    assert measured_peak(Precision(precision)) > 1e12
    assert torch.backends.cuda.matmul.allow_tf32 is False


def test_after_a_grade_the_least_time_of_a_problem_is_known(grade, grader, monkeypatch):
    from evaluator.catalog import find_problem
    from evaluator.roofline.least_time import Roofs, roofs_of

    monkeypatch.setenv("WARPGRADE_CACHE", grader.environment["WARPGRADE_CACHE"])
    card = grade(SAME, "torch.randn(edge, edge)", "torch.relu(x)").assert_verdict(Status.CORRECT)
    found = roofs_of(find_problem("relu", None))
    assert isinstance(found, Roofs)
    assert found.bandwidth_bytes_per_s == pytest.approx(card.roofline.bandwidth_bytes_per_s, rel=0.1)
    assert found.l2_bytes == card.roofline.l2_bytes


def test_mode_check_measures_no_time(grade):
    extra = ("--mode", "check", "--size", "small")
    run = grade(SAME, "torch.randn(edge, edge)", "torch.relu(x)", *extra)
    card = run.assert_verdict(Status.CORRECT)
    assert (card.timing, card.roofline, card.l2) == (None, None, None)
    assert len(card.checks) >= 16
    assert Code.NOT_TIMED in run.findings


def test_an_honest_kernel_has_its_place(grade):
    card = grade(SAME, "torch.randn(edge, edge)", "torch.relu(x)").assert_verdict(Status.CORRECT)
    assert 0.6 < card.roofline.of_floor < 1.05
    assert card.roofline.input_flips.mattered == card.roofline.input_flips.samples
    assert card.roofline.impossible_ms < card.timing.submission_median_ms


LUCKY = (
    HEAD
    + """
class ModelNew(nn.Module):
    def forward(self, x):
        return x[:, : x.shape[1] * 2 // 5].mean(1)
"""
)


def test_whoever_reads_two_fifths_and_is_right_by_luck_is_refused(grade):
    """Every value is near 5, so the mean of some is the mean of all, to seven digits: until other values are drawn."""
    inputs = "5 + torch.rand(64, edge * edge // 16) / 1000"
    grade(LUCKY, inputs, "x.mean(1)").assert_verdict(Status.WRONG_RESULT, Code.WRONG_ON_OTHER_VALUES)
    # Under KernelBench's rule no others are, and the floor alone is left to tell.
    card = grade(LUCKY, inputs, "x.mean(1)", "--tolerance", "kernelbench").assert_verdict(
        Status.REJECTED, Code.IMPOSSIBLE
    )
    assert card.timing.submission_median_ms < card.roofline.impossible_ms


HONEST = {
    "a triangle, of which half is read": (
        HEAD
        + """
kernel = torch.cuda._compile_kernel(r'''
extern "C" __global__ void triangle(const float* x, float* y, int edge) {
  const int row = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= edge) return;
  const long long at = (long long)row * edge + column;
  y[at] = column <= row ? x[at] : 0.0f;
}''', "triangle")
class ModelNew(nn.Module):
    def forward(self, x):
        y, edge = torch.empty_like(x), x.shape[0]
        kernel(((edge + 255) // 256, edge, 1), (256, 1, 1), (x, y, edge))
        return y
""",
        "torch.randn(edge, edge)",
        "torch.tril(x)",
        "pass",
    ),
    "the sum of a triangle": (
        HEAD
        + """
kernel = torch.cuda._compile_kernel(r'''
extern "C" __global__ void sums(const float* x, float* y, int edge) {
  const int row = blockIdx.x;
  float sum = 0.0f;
  for (int column = threadIdx.x; column <= row; column += 256) sum += x[(long long)row * edge + column];
  __shared__ float parts[256];
  parts[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[row] = parts[0];
}''', "sums")
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device)
        kernel((x.shape[0], 1, 1), (256, 1, 1), (x, y, x.shape[0]))
        return y
""",
        "torch.randn(edge, edge)",
        "torch.tril(x).sum(1)",
        "pass",
    ),
    "a gather": (SAME, "torch.randn(edge * 64, 256), torch.randint(0, edge * 64, (edge,))", "x[rest[0]]", "pass"),
    "a slice": (SAME, "torch.randn(edge, edge)", "x[:, :1024] * 2", "pass"),
    "a stride": (SAME, "torch.randn(edge, edge)", "x[::16] * 2", "pass"),
    "weights that were summed beforehand": (
        HEAD
        + """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(edge, edge))
        self.sums = None
    def forward(self, x):
        if self.sums is None:
            self.sums = self.w.sum(0)
        return x @ self.sums
""".replace("edge", "16384"),
        "torch.randn(8, edge)",
        "(x @ self.w.T).sum(1)",
        "self.w = nn.Parameter(torch.randn(edge, edge))",
    ),
}


@pytest.mark.parametrize(("source", "inputs", "result", "init"), HONEST.values(), ids=HONEST)
def test_what_need_not_be_read_is_not_asked_for(grade, source, inputs, result, init):
    # What was worked out once from the weights stands only where they stay as they are.
    run = grade(source, inputs, result, "--weights", "frozen", init=init)
    assert run.reason is not Code.IMPOSSIBLE
    card = run.assert_verdict(Status.CORRECT)
    assert Code.FLOOR_DOUBTED not in run.findings
    assert card.roofline is not None


def test_what_was_measured_of_a_gpu_is_kept(grade, grader):
    grade(SAME, "torch.randn(edge, edge)", "torch.relu(x)").assert_verdict(Status.CORRECT)
    kept = Path(grader.environment["WARPGRADE_CACHE"], "measured")
    assert len(list(kept.glob("*/*/library.so"))) >= 2  # the bandwidth, and what a call of the problem needs
