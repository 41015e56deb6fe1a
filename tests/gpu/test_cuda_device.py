"""Device `cuda`, by the command line on a real GPU: what is graded right, and how each kind of failure ends.

Kernels are compiled by NVRTC inside of the submission where the compiler is not what a test is about.
"""

import os
from pathlib import Path

import pytest
import torch

from evaluator.findings import Code
from evaluator.judge.compare.tensor_comparison import Sides, compare
from evaluator.judge.compare.tolerance import bounds
from evaluator.paths import data_dir
from evaluator.records import Status
from tests.grading.harness import Grader

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
SEEDS = os.environ.get("WARPGRADE_SEEDS")
ON_GPU = ("--device", "cuda", "--size")
HEAD = "import ctypes, torch\nfrom torch import nn\n"
RELU = (
    HEAD
    + """
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0.0)
"""
)


@pytest.fixture(scope="session")
def grader(tmp_path_factory) -> Grader:
    cache = Path(os.environ.get("WARPGRADE_CACHE") or tmp_path_factory.mktemp("cache"))
    return Grader(cache, tmp_path_factory.mktemp("temporary"))


@pytest.fixture
def grade(grader, tmp_path):
    def run(source, *options, size="small", **rest):
        return grader(tmp_path, source, *ON_GPU, size, *options, timeout_s=rest.pop("timeout_s", 30.0), **rest)

    return run


SEED_VERDICTS = [
    ("000", "relu", Status.CORRECT, None),
    ("001", "relu", Status.CORRECT, None),
    ("001", "relu_backward", Status.CORRECT, None),
    ("000", "relu_backward", Status.WRONG_RESULT, Code.NO_GRADIENT),
    ("002", "relu", Status.RUNTIME_ERROR, Code.ILLEGAL_ACCESS),
    ("003", "linear_relu_divide", Status.BUILD_ERROR, Code.BINDING),
    ("004", "linear_relu_divide", Status.CORRECT, None),
]


@pytest.mark.skipif(SEEDS is None, reason="WARPGRADE_SEEDS names no folder of seeds")
@pytest.mark.parametrize(("number", "problem", "status", "code"), SEED_VERDICTS)
def test_a_real_answer(grade, number, problem, status, code):
    (path,) = Path(SEEDS).glob(f"{number}_*.txt")
    run = grade(path.read_bytes(), problem=problem, name=path.name, size="full", timeout_s=60.0)
    card = run.assert_verdict(status, code)
    if number == "002":
        assert "cudaErrorIllegalAddress" in card.reason.message
    if number == "003":
        errors = [entry for entry in card.build.units[0].diagnostics if entry.severity == "error"]
        assert len({entry.message for entry in errors}) >= 2
    if status is Status.CORRECT:
        assert card.timing.clock == "sealed"
        assert card.timing.submission_median_ms > 0


FORWARDS = {
    "waits for the GPU": """
    def forward(self, x):
        y = torch.clamp(x, min=0.0)
        torch.cuda.synchronize()
        return y
""",
    "tunes itself in its first call": """
    best = None
    def forward(self, x):
        ways = [torch.relu, lambda x: torch.clamp(x, min=0.0)]
        if self.best is None:
            times = []
            for way in ways:
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record(); way(x); end.record(); torch.cuda.synchronize()
                times.append(start.elapsed_time(end))
            self.best = ways[times.index(min(times))]
        return self.best(x)
""",
    "computes in a thread": """
    def forward(self, x):
        import threading
        found = []
        thread = threading.Thread(target=lambda: found.append(torch.clamp(x, min=0.0)))
        thread.start(); thread.join()
        return found[0]
""",
}


FILES = sorted((Path(__file__).parents[1] / "honest" / "cuda" / "relu").glob("*.py"))
HONEST = {name: f"{HEAD}class ModelNew(nn.Module):{forward}" for name, forward in FORWARDS.items()}
HONEST |= {path.stem: path.read_text() for path in FILES}


@pytest.mark.parametrize("source", HONEST.values(), ids=HONEST)
def test_an_honest_forward_is_correct_and_timed(grade, source):
    card = grade(source).assert_verdict(Status.CORRECT)
    timed = card.timing.submission
    assert len(timed.samples_ms) >= (20 if timed.windows is None else 6)
    # The work around the clamp takes little time, of which a busy machine's clock may see none.
    assert card.timing.submission_high_ms > 0
    assert card.timing.submission_median_ms < 50


def test_a_subclass_of_the_reference_is_timed(grade):
    card = grade("from model import Model\nclass ModelNew(Model):\n    pass\n").assert_verdict(Status.CORRECT)
    assert card.device.gpu.capability.count(".") == 1
    assert card.timing.submission.host_ms > 0


def test_what_a_graph_allocates_is_copied_inside_of_the_clock(grade):
    source = """
class ModelNew(nn.Module):
    graphs = None
    def forward(self, x):
        graph, inside = torch.cuda.CUDAGraph(), x.clone()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            outside = torch.clamp(inside, min=0.0)
        graph.replay()
        self.graphs = (self.graphs or []) + [(graph, inside, outside)]
        return outside
"""
    run = grade(HEAD + source)
    run.assert_verdict(Status.CORRECT)
    assert Code.OUTPUT_COPIED in run.findings


TWO_STREAMS = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()

    def forward(self, x):
        out = torch.empty_like(x)
        half = x.shape[0] // 2
        here, begun, ended = torch.cuda.current_stream(), torch.cuda.Event(), torch.cuda.Event()
        begun.record(here)
        self.side.wait_event(begun)
        with torch.cuda.stream(self.side):
            torch.clamp(x[half:], min=0.0, out=out[half:])
            ended.record(self.side)
        torch.clamp(x[:half], min=0.0, out=out[:half])
        here.wait_event(ended)
        out.record_stream(self.side)
        x.record_stream(self.side)
        return out
"""


@pytest.mark.parametrize("size", ["small", "full"])
def test_two_streams_joined_by_events_are_correct(grade, size):
    """PyTorch keeps the blocks of `record_stream` while the arena's pool is open; they would fill the arena."""
    grade(HEAD + TWO_STREAMS, size=size, timeout_s=60.0).assert_verdict(Status.CORRECT)


def test_an_output_allocated_on_another_stream_is_correct(grade):
    inside = "with torch.cuda.stream(self.side):\n            out = torch.empty_like(x)\n"
    source = TWO_STREAMS.replace("out = torch.empty_like(x)\n", inside)
    grade(HEAD + source, size="full", timeout_s=60.0).assert_verdict(Status.CORRECT)


def test_an_output_behind_many_temporaries_is_copied_inside_of_the_clock(grade):
    """Temporaries fill the arena before the output is allocated, and stay until forward returns."""
    source = """
class ModelNew(nn.Module):
    def forward(self, x):
        kept = [torch.empty_like(x) for _ in range(2000)]
        return torch.clamp(x, min=0.0)
"""
    run = grade(HEAD + source)
    run.assert_verdict(Status.CORRECT)
    assert Code.OUTPUT_COPIED in run.findings


def test_an_output_buffer_that_is_used_again_is_refused(grade):
    source = """
class ModelNew(nn.Module):
    buffer = None
    def forward(self, x):
        self.buffer = torch.empty_like(x) if self.buffer is None else self.buffer
        return torch.clamp(x, min=0.0, out=self.buffer)
"""
    grade(HEAD + source).assert_verdict(Status.WRONG_RESULT, Code.OUTPUT_REUSED)


KERNEL = """
kernel = torch.cuda._compile_kernel(r'''
extern "C" __global__ void broken(float* x, float* y) { %s }
''', "broken")
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel((1, 1, 1), (32, 1, 1), (x, y))
        return y
"""
BROKEN = {
    "an illegal address": (KERNEL % "y[1ll << 40] = 1.0f;", Status.RUNTIME_ERROR, Code.ILLEGAL_ACCESS),
    "a misaligned address": (
        KERNEL % "*(double*)((char*)y + 4 + threadIdx.x) = 1.0;",
        Status.RUNTIME_ERROR,
        Code.ILLEGAL_ACCESS,
    ),
    "an endless kernel": (
        KERNEL % "while (true) { if (*(volatile float*)x == 1e30f) break; }",
        Status.TIMEOUT,
        Code.TIMED_OUT,
    ),
    "an assertion on the device": (
        """
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros(3, device="cuda")[torch.full(x.shape, 7, device="cuda")]
""",
        Status.RUNTIME_ERROR,
        Code.DEVICE_ASSERT,
    ),
    "more memory than there is": (
        """
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.empty(1 << 40, device="cuda")[: x.numel()].view(x.shape)
""",
        Status.RUNTIME_ERROR,
        Code.OUT_OF_MEMORY,
    ),
    "an output on the CPU": (
        """
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0.0).cpu()
""",
        Status.WRONG_RESULT,
        Code.WRONG_DEVICE,
    ),
    "a stream that is never joined": (
        """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()
    def forward(self, x):
        y = torch.empty_like(x)
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            for _ in range(20):
                torch.clamp(x, min=0.0, out=y)
        return y
""",
        Status.REJECTED,
        Code.WORK_AFTER_DONE,
    ),
    "a stream that does not wait for the inputs": (
        """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()
    def forward(self, x):
        with torch.cuda.stream(self.side):
            y = torch.clamp(x, min=0.0)
        torch.cuda.current_stream().wait_stream(self.side)
        return y
""",
        Status.WRONG_RESULT,
        Code.WRONG_VALUES,
    ),
    "a process that ends": (
        """
class ModelNew(nn.Module):
    def forward(self, x):
        import os
        os._exit(0)
""",
        Status.RUNTIME_ERROR,
        Code.RUNNER_DIED,
    ),
}


@pytest.mark.parametrize(("source", "status", "code"), BROKEN.values(), ids=BROKEN)
def test_a_failure_costs_only_itself(grade, source, status, code):
    grade(HEAD + source, timeout_s=10.0).assert_verdict(status, code)


def test_the_next_grade_after_a_fault_is_unaffected(grade):
    grade(HEAD + KERNEL % "y[1ll << 40] = 1.0f;").assert_verdict(Status.RUNTIME_ERROR, Code.ILLEGAL_ACCESS)
    grade(RELU).assert_verdict(Status.CORRECT)


def test_a_gpu_that_is_not_there_is_named(grade):
    run = grade(RELU, "--gpu", "99")
    assert run.code == 2
    assert "no GPU '99'" in run.err


@pytest.mark.parametrize(
    "path", sorted(data_dir("solutions").glob("*/cuda_*.py")), ids=lambda p: f"{p.parent.name}-{p.stem}"
)
def test_a_shipped_solution_is_correct(grade, path):
    card = grade(path.read_text(), problem=path.parent.name, name=path.name, size="full", timeout_s=60.0)
    card.assert_verdict(Status.CORRECT)


SPOILS = {
    "nothing": lambda x: x,
    "one element": lambda x: x.index_put((torch.tensor(3), torch.tensor(5)), torch.tensor(9.0, dtype=x.dtype)),
    "a NaN": lambda x: x.index_put((torch.tensor(0), torch.tensor(0)), torch.tensor(float("nan"), dtype=x.dtype)),
    "an infinity": lambda x: x.index_put((torch.tensor(6), torch.tensor(1)), torch.tensor(float("inf"), dtype=x.dtype)),
    "everything": lambda x: x + 1,
    "a little": lambda x: x * (1 + 1e-4),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
@pytest.mark.parametrize("shape", [(7, 70_001), (300, 9), (300, 1), (513,)])
@pytest.mark.parametrize("odd", [False, True])
def test_the_gpus_comparison_says_what_the_hosts_says(fused, dtype, spoil, shape, odd):
    from evaluator.catalog import find_problem
    from evaluator.records import ToleranceRule

    torch.manual_seed(1)
    exact = torch.randn(shape, dtype=torch.float64)
    honest = exact.to(dtype)
    if odd:
        honest.reshape(-1)[2], exact.reshape(-1)[2] = float("nan"), float("nan")
        honest.reshape(-1)[4], exact.reshape(-1)[4] = float("inf"), float("inf")
    # A spoil writes into column 5 at most.
    actual = spoil(honest.clone()) if shape[-1] > 5 and len(shape) == 2 else honest * (1 + 1e-4)
    limits = bounds(ToleranceRule.MEASURED, find_problem("relu"), dtype)
    on_host = compare("output", Sides(actual, exact, honest), limits)
    on_gpu = fused.begin("output", Sides(*(side.cuda() for side in (actual, exact, honest))), limits)()
    assert (on_gpu.ok, on_gpu.mismatches, on_gpu.nonfinite) == (on_host.ok, on_host.mismatches, on_host.nonfinite)
    assert on_gpu.first_mismatch == on_host.first_mismatch
    for name in ("max_abs_error", "error_ratio", "honest_error_ratio"):
        expected = getattr(on_host, name)
        assert getattr(on_gpu, name) == (None if expected is None else pytest.approx(expected, rel=1e-9))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("flips", [0, 1, 40, 5000])
@pytest.mark.parametrize("wrong", [0, 30, 300, 60_000], ids=lambda count: f"{count}-far-off")
def test_the_gpu_counts_what_is_far_off_as_the_host_does(fused, dtype, flips, wrong):
    from evaluator.catalog import find_problem
    from evaluator.records import ToleranceRule

    torch.manual_seed(2)
    exact = torch.randn(31, 4999, dtype=torch.float64)
    exact[:, ::1000] *= 100  # Far larger than their row: a few units of theirs are a large part of it.
    honest, actual = exact.to(dtype), exact.to(dtype)
    actual[:, ::1000] *= 1 + 1.5 * torch.finfo(dtype).eps
    honest.view(-1)[:flips] += 0.5 * torch.rand(flips, dtype=dtype)
    actual.view(-1)[7:][:wrong] += 0.5 * torch.rand(wrong, dtype=dtype)
    limits = bounds(ToleranceRule.MEASURED, find_problem("relu"), dtype)
    on_host = compare("output", Sides(actual, exact, honest), limits)
    on_gpu = fused.begin("output", Sides(*(side.cuda() for side in (actual, exact, honest))), limits)()
    assert (on_gpu.ok, on_gpu.mismatches, on_gpu.first_mismatch) == (
        on_host.ok,
        on_host.mismatches,
        on_host.first_mismatch,
    )
    for name in ("max_abs_error", "error_ratio", "honest_error_ratio", "tolerance"):
        expected = getattr(on_host, name)
        assert getattr(on_gpu, name) == (None if expected is None else pytest.approx(expected, rel=1e-9))


@pytest.fixture(scope="module")
def fused(tmp_path_factory):
    from evaluator.cache.build_cache import BuildCache
    from evaluator.compile.own_libraries import build_kernels
    from evaluator.judge.compare.fused_kernel import FusedComparison
    from evaluator.records import SandboxMode
    from evaluator.sandbox import ForkServer, run_tool
    from evaluator.toolchain.nvcc import architecture

    with ForkServer(mode=SandboxMode.FULL, preload=[]) as fork_server:
        kernels = build_kernels(
            lambda argv, *, readable=(), **rest: run_tool(fork_server, argv, readable=readable, **rest),
            BuildCache(tmp_path_factory.mktemp("kernels")),
            architecture(*torch.cuda.get_device_capability()),
        )
    torch.zeros(1, device="cuda")
    return FusedComparison(kernels)
