"""Grades without a GPU: answers of language models, and the line of a fault."""

import os
from pathlib import Path

import pytest

from evaluator.findings import Code
from evaluator.records import Order, Status
from tests.grading.harness import TOP

pytestmark = pytest.mark.slow

ANSWERS = TOP / "tests" / "data" / "answers"
SEEDS = os.environ.get("WARPGRADE_SEEDS")
EMULATED = ("--device", "emulated", "--size", "small")
TIMEOUT_S = 60.0


@pytest.fixture
def emulated(grader, tmp_path):
    """Grade a file on the emulated device."""

    def run(path, problem):
        return grader(tmp_path, None, path, *EMULATED, problem=problem, timeout_s=TIMEOUT_S)

    return run


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("relu_forward.txt", "relu"),
        ("relu_autograd.md", "relu_backward"),
        ("linear_relu_divide.md", "linear_relu_divide"),
    ],
)
def test_a_right_answer_passes_in_every_order(emulated, name, problem):
    card = emulated(ANSWERS / name, problem).assert_verdict(Status.CORRECT)
    assert {check.schedule.order for check in card.checks} == set(Order)
    assert all(check.launches for check in card.checks)
    assert card.timing is None


def test_a_fault_names_the_line_of_the_access(emulated):
    run = emulated(ANSWERS / "relu_float4_wrong_index.txt", "relu")
    card = run.assert_verdict(Status.RUNTIME_ERROR, Code.ILLEGAL_ACCESS)
    line = card.reason.line
    assert f"(line {line})" in card.reason.message
    assert "past the end of a tensor of 1048576 bytes" in card.reason.message
    assert card.submission.source.splitlines()[line - 1].strip() == "float4 v = in[place];"


def test_files_that_a_submission_opens_do_not_cost_the_line(grader, tmp_path):
    """An empty file in the place of the runtime's, which is loaded by the number of a descriptor."""
    answer = (ANSWERS / "relu_float4_wrong_index.txt").read_text().split("```python")[-1].split("```")[0]
    holding = "import tempfile\nHELD = [tempfile.TemporaryFile() for _ in range(64)]\n" + answer
    card = grader(tmp_path, holding, *EMULATED).assert_verdict(Status.RUNTIME_ERROR, Code.ILLEGAL_ACCESS)
    assert card.submission.source.splitlines()[card.reason.line - 1].strip() == "float4 v = in[place];"


def test_a_build_error_is_told_at_the_answers_own_line(emulated):
    card = emulated(ANSWERS / "relu_torch_library.md", "relu").assert_verdict(Status.BUILD_ERROR, Code.BINDING)
    assert "functions=" in card.submission.source.splitlines()[card.reason.line - 1]


KERNEL = """
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r'''
#include <torch/extension.h>
#include <cassert>
OTHER
__global__ void BOUNDS relu_kernel(const float* x, float* out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = x[i] <= 0.0f ? 0.0f : x[i];
}
torch::Tensor relu(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    int count = x.numel();
    FIRST
    relu_kernel<<<(count + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), count);
    LAST
    return out;
}
'''
extension = load_inline(
    name="bent", cpp_sources="torch::Tensor relu(const torch::Tensor& x);", cuda_sources=CUDA, functions=["relu"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
"""


@pytest.fixture
def bent(grader, tmp_path):
    """Grade a right kernel with something put in at its places."""

    def run(**parts):
        text = KERNEL
        for place in ("OTHER", "BOUNDS", "FIRST", "LAST"):
            text = text.replace(place, parts.get(place.lower(), ""))
        return grader(tmp_path, text, *EMULATED, problem="relu", timeout_s=TIMEOUT_S)

    return run


def test_a_launch_within_its_bounds(bent):
    checked = "TORCH_CHECK(cudaGetLastError() == cudaSuccess);"
    bent(bounds="__launch_bounds__(256, 2)", last=checked).assert_verdict(Status.CORRECT)


def test_a_launch_beyond_its_bounds_computes_nothing(bent):
    card = bent(bounds="__launch_bounds__(128)").assert_verdict(Status.WRONG_RESULT, Code.NOT_FINITE)
    assert " did not run: a block (256, 1, 1) has 256 threads, its __launch_bounds__ allow 128;" in card.reason.message


def test_a_launch_beyond_a_limit_is_named_by_kernel_line_and_limit(bent):
    """The limits have tests of their own in tests/emulator/test_engine.py."""
    launch, limit = "<<<dim3(1, 65536), 256>>>", "grid.y is 65536, allowed are 1 to 65535"
    card = bent(
        other="__global__ void spoil(float* out) { out[0] = 1; }",
        last=f"out = torch::empty_like(x); spoil{launch}(out.data_ptr<float>());",
    ).assert_verdict(Status.WRONG_RESULT, Code.NOT_FINITE)
    assert card.reason.message.startswith(f"kernel spoil (launched in line {card.reason.line}) did not run: {limit}")
    assert "spoil<<<" in card.submission.source.splitlines()[card.reason.line - 1]


def test_a_refused_launch_that_is_checked_is_named_too(bent):
    checked = "relu_kernel<<<1, 2048>>>(nullptr, nullptr, 0); C10_CUDA_KERNEL_LAUNCH_CHECK();"
    card = bent(other="#include <c10/cuda/CUDAException.h>", last=checked).assert_verdict(
        Status.RUNTIME_ERROR, Code.FORWARD_FAILED
    )
    assert "block.x is 2048, allowed are 1 to 1024" in card.reason.message


def test_a_refused_launch_without_an_effect_is_no_fault(bent):
    bent(last="relu_kernel<<<0, 256>>>(nullptr, nullptr, 0); cudaGetLastError();").assert_verdict(Status.CORRECT)


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ("__global__ void bad(float* out) { out[1ll << 40] = 1; }", Code.ILLEGAL_ACCESS),
        ("__global__ void bad(float* out) { assert(out == nullptr); }", Code.DEVICE_ASSERT),
    ],
)
def test_a_fault_that_the_submission_catches_is_a_fault_all_the_same(bent, other, code):
    first = "try { bad<<<1, 1>>>(out.data_ptr<float>()); } catch (...) {} cudaGetLastError();"
    card = bent(other=other, first=first).assert_verdict(Status.RUNTIME_ERROR, code)
    assert card.submission.source.splitlines()[card.reason.line - 1] == other


@pytest.mark.parametrize("call", [2, 14])
def test_a_kernel_that_is_wrong_from_one_of_its_calls_on(bent, call):
    run = bent(other="static int calls = 0;", last=f"if (++calls >= {call}) out.fill_(-1.0f);")
    assert run.reason in (Code.WRONG_VALUES, Code.WRONG_ON_OTHER_VALUES, Code.DIFFERS)
    assert run.assert_verdict(Status.WRONG_RESULT, run.reason).checks[-1].index == call - 1


def test_a_submission_does_not_choose_the_order_of_its_threads(bent):
    other = 'extern "C" void warpgrade_emu_schedule(int, unsigned long long, int, int) __attribute__((weak));'
    card = bent(other=other, first="warpgrade_emu_schedule(0, 1, 1, 0);")
    assert (
        "the submission set the order" in card.assert_verdict(Status.RUNTIME_ERROR, Code.FORWARD_FAILED).reason.message
    )


@pytest.mark.parametrize(
    "access",
    [
        "reinterpret_cast<float4*>(out + 1)[0] = make_float4(1.0f, 2.0f, 3.0f, 4.0f);",
        "float4 v = *(const float4*)(out + 2); out[0] = v.x + v.w;",
        "float2 v = *(float2*)(out + 3); v.x += 1.0f; *(float2*)out = v;",
    ],
)
def test_a_vector_that_is_not_aligned(bent, access):
    run = bent(other=f"__global__ void bad(float* out) {{ {access} }}", first="bad<<<1, 1>>>(out.data_ptr<float>());")
    card = run.assert_verdict(Status.RUNTIME_ERROR, Code.ILLEGAL_ACCESS)
    assert "bytes into a tensor of 1048576 bytes, at an address that is no multiple of " in card.reason.message
    assert access in card.submission.source.splitlines()[card.reason.line - 1]


HONEST_VECTORS = """struct alignas(32) Eight { float v[8]; };
__global__ void moves(float* out) {
    Eight eight = reinterpret_cast<Eight*>(out + 4)[threadIdx.x];
    for (float& v : eight.v) v += 1.0f;
    reinterpret_cast<Eight*>(out + 4)[threadIdx.x] = eight;
    char own[24];
    for (int i = 0; i < 24; ++i) own[i] = i;
    float2 pair = *reinterpret_cast<float2*>(own + 1);
    out[threadIdx.x] = pair.x + pair.y;
}"""


def test_what_may_be_aligned_on_a_gpu_is_left_alone(bent):
    """No access is of more than 16 bytes; where a thread's own variables lie is the compiler's choice."""
    bent(other=HONEST_VECTORS, first="moves<<<1, 4>>>(out.data_ptr<float>());").assert_verdict(Status.CORRECT)


def seed(number):
    return next(Path(SEEDS or "").glob(f"{number}_*.txt"))


@pytest.mark.skipif(SEEDS is None, reason="WARPGRADE_SEEDS names no folder of seeds")
@pytest.mark.parametrize(
    ("number", "problem", "status", "code"),
    [
        ("000", "relu", Status.CORRECT, None),
        ("000", "relu_backward", Status.WRONG_RESULT, Code.NO_GRADIENT),
        ("001", "relu", Status.CORRECT, None),
        ("001", "relu_backward", Status.CORRECT, None),
        ("002", "relu", Status.RUNTIME_ERROR, Code.ILLEGAL_ACCESS),
        ("003", "relu", Status.BUILD_ERROR, Code.BINDING),
        ("004", "linear_relu_divide", Status.CORRECT, None),
    ],
)
def test_the_seeds(emulated, number, problem, status, code):
    card = emulated(seed(number), problem).assert_verdict(status, code)
    if number == "002":
        place = "kernel vectorized_relu_kernel block (64,0,0) thread (0,0,0): READ just past the end of a tensor"
        assert card.reason.message.startswith(place)
        line = card.submission.source.splitlines()[card.reason.line - 1]
        assert line.strip() == "float4 val = ((float4*)in)[offset];"
    if number == "003":
        assert "names vectorized_relu_cuda, but cpp_sources does not declare it" in card.reason.message
        assert "torch::Tensor vectorized_relu_cuda(torch::Tensor input);" in card.reason.next_step


def test_cpp_for_the_cpu_that_refuses_other_tensors_is_no_wrong_kernel(emulated):
    run = emulated(TOP / "solutions" / "relu" / "cpp_plain.py", "relu")
    card = run.assert_verdict(Status.INCONCLUSIVE, Code.NOT_ON_THIS_DEVICE, line=35)
    assert "--device cpu" in card.reason.next_step
