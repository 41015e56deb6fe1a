"""Grades without a GPU: answers of language models, and the line of a fault."""

import os
from pathlib import Path

import pytest

from evaluator.findings import Code
from evaluator.records import Order, Status
from tests.grading.harness import TOP, module

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


@pytest.mark.skipif(SEEDS is None, reason="WARPGRADE_SEEDS names no folder of real answers")
@pytest.mark.parametrize(
    ("number", "problem", "status", "code"),
    [
        ("000", "relu", Status.CORRECT, None),
        ("000", "relu_backward", Status.WRONG_RESULT, Code.NO_GRADIENT),
        ("001", "relu_backward", Status.CORRECT, None),
        ("002", "relu", Status.RUNTIME_ERROR, Code.ILLEGAL_ACCESS),
        ("003", "relu", Status.BUILD_ERROR, Code.BINDING),
        ("004", "linear_relu_divide", Status.CORRECT, None),
    ],
)
def test_real_answers_have_their_verdicts(emulated, number, problem, status, code):
    (answer,) = Path(SEEDS).glob(f"{number}_*.txt")
    card = emulated(answer, problem).assert_verdict(status, code)
    if number == "002":
        line = card.submission.source.splitlines()[card.reason.line - 1]
        assert line.strip() == "float4 val = ((float4*)in)[offset];"
    if number == "003":
        assert "torch::Tensor vectorized_relu_cuda(torch::Tensor input);" in card.reason.next_step


def test_files_that_a_submission_opens_do_not_cost_the_line(grader, tmp_path):
    """An empty file in the place of the runtime's, which is loaded by the number of a descriptor."""
    answer = (ANSWERS / "relu_float4_wrong_index.txt").read_text().split("```python")[-1].split("```")[0]
    holding = "import tempfile\nHELD = [tempfile.TemporaryFile() for _ in range(64)]\n" + answer
    card = grader(tmp_path, holding, *EMULATED).assert_verdict(Status.RUNTIME_ERROR, Code.ILLEGAL_ACCESS)
    assert card.submission.source.splitlines()[card.reason.line - 1].strip() == "float4 v = in[place];"


KERNEL = """
import torch
from torch import nn
from torch.utils.cpp_extension import CUDA_HOME, load_inline

CUDA = r'''
#include <torch/extension.h>
#include <cassert>
OTHER
__global__ void BOUNDS own_kernel(const float* x, float* out, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = VALUE;
}
torch::Tensor run(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    int count = x.numel();
    FIRST
    own_kernel<<<(count + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), count);
    LAST
    return out;
}
'''
extension = load_inline(
    name="bent", cpp_sources="torch::Tensor run(const torch::Tensor& x);", cuda_sources=CUDA, functions=["run"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        RETURN
"""
USUAL = {"value": "x[i] <= 0.0f ? 0.0f : x[i]", "return": "return extension.run(x)"}


def kernel(parts):
    """Write a right kernel with something put in at its places."""
    text = KERNEL
    for place in ("OTHER", "BOUNDS", "VALUE", "FIRST", "LAST", "RETURN"):
        text = text.replace(place, parts.get(place.lower(), USUAL.get(place.lower(), "")))
    return text


@pytest.fixture
def bent(grader, tmp_path):
    """Grade a right kernel for `relu` with something put in at its places."""
    return lambda **parts: grader(tmp_path, kernel(parts), *EMULATED, problem="relu", timeout_s=TIMEOUT_S)


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
    checked = "own_kernel<<<1, 2048>>>(nullptr, nullptr, 0); C10_CUDA_KERNEL_LAUNCH_CHECK();"
    card = bent(other="#include <c10/cuda/CUDAException.h>", last=checked).assert_verdict(
        Status.RUNTIME_ERROR, Code.FORWARD_FAILED
    )
    assert "block.x is 2048, allowed are 1 to 1024" in card.reason.message


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


def test_a_kernel_that_is_wrong_from_one_of_its_calls_on(bent):
    call = 14
    run = bent(other="static int calls = 0;", last=f"if (++calls >= {call}) out.fill_(-1.0f);")
    assert run.reason in (Code.WRONG_VALUES, Code.WRONG_ON_OTHER_VALUES, Code.DIFFERS)
    assert run.assert_verdict(Status.WRONG_RESULT, run.reason).checks[-1].index == call - 1


def test_a_submission_does_not_choose_the_order_of_its_threads(bent):
    other = 'extern "C" void warpgrade_emu_schedule(int, unsigned long long, int, int) __attribute__((weak));'
    card = bent(other=other, first="warpgrade_emu_schedule(0, 1, 1, 0);")
    assert (
        "the submission set the order" in card.assert_verdict(Status.RUNTIME_ERROR, Code.FORWARD_FAILED).reason.message
    )


def test_a_vector_that_is_not_aligned(bent):
    access = "reinterpret_cast<float4*>(out + 1)[0] = make_float4(1.0f, 2.0f, 3.0f, 4.0f);"
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


BARE = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return FORWARD


def get_inputs():
    return [INPUT]


def get_init_inputs():
    return []
"""


@pytest.fixture
def graded(grader, tmp_path):
    """Grade a submission against a bare file of a forward and an input."""

    def run(submission, forward="x * 2", given="torch.randn(64, 96)", **options):
        (tmp_path / "bare.py").write_text(BARE.replace("FORWARD", forward).replace("INPUT", given))
        return grader(tmp_path, submission, "--device", "emulated", problem=str(tmp_path / "bare.py"), **options)

    return run


TWICE = {"value": "2 * x[i]"}


def test_a_dict_of_outputs_in_answer_tags_is_compared_by_key(graded):
    source = kernel(TWICE | {"return": 'return {"top": x.argmax(1), "all": extension.run(x)}'})
    text = f"<think>\nTwice.\n</think>\n<answer>\n{source}</answer>\n"
    graded(text, '{"all": x * 2, "top": x.argmax(1)}', name="mine.md").assert_verdict(Status.CORRECT)


HOST = """assert torch.cuda.get_device_capability() >= (7, 0) and CUDA_HOME is not None
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.device(x.device), torch.cuda.stream(side):
            y = extension.run(x.to("cuda:0", non_blocking=True))
            y.record_stream(side)
        torch.cuda.current_stream().wait_stream(side)
        return y"""
GUARD = """const at::cuda::CUDAGuard guard(x.device());
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, x.get_device());
    TORCH_CHECK(properties.multiProcessorCount > 0);
    TORCH_CHECK(x.device() == torch::Device(torch::kCUDA, 0) && x.device() != torch::kCPU);
    TORCH_CHECK(x.device().str() == "cuda:0");"""


def test_host_code_that_a_gpu_runs_is_correct(graded):
    include = "#include <ATen/cuda/CUDAContext.h>\n#include <c10/cuda/CUDAGuard.h>"
    graded(kernel(TWICE | {"other": include, "first": GUARD, "return": HOST})).assert_verdict(Status.CORRECT)


@pytest.mark.parametrize(
    ("forward", "given", "words"),
    [
        ("x.y", "torch.randn(64, 64)", "bare.py, line 7: forward failed: AttributeError"),
        ("x * 2", "torch.nested.nested_tensor([torch.randn(5, 8), torch.randn(9, 8)])", "nested"),
    ],
    ids=["broken", "nested"],
)
def test_a_problem_that_cannot_be_graded_is_refused_in_words(graded, forward, given, words):
    run = graded(module(forward=["return x * 2"]), forward, given)
    assert (run.code, run.card) == (2, None)
    assert words in run.err
    assert "no size" not in run.err


def test_cpp_for_the_cpu_that_refuses_other_tensors_is_no_wrong_kernel(emulated):
    run = emulated(TOP / "solutions" / "relu" / "cpp_plain.py", "relu")
    card = run.assert_verdict(Status.INCONCLUSIVE, Code.NOT_ON_THIS_DEVICE, line=35)
    assert "--device cpu" in card.reason.next_step
