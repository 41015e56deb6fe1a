"""Cases that users of other graders met, each with its right verdict; the others stand beside their rules.

The answer in reasoning: `test_answers.py`; launches beyond a limit: `test_emulated.py`; random references, infinities,
inputs made on a GPU, histograms and changed defaults: `test_sizes.py`; long builds: `test_building.py`.
"""

import pytest

from evaluator.findings import Code
from evaluator.records import Status

pytestmark = pytest.mark.slow

PROBLEM = """\
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
EXTENSION = """\
import torch
from torch.utils.cpp_extension import CUDA_HOME, load_inline

cuda = r'''
#include <torch/extension.h>
INCLUDE
__global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = TWICE;
}
torch::Tensor run(torch::Tensor x) {
    GUARD
    auto y = torch::empty_like(x);
    twice<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
'''
made = load_inline(name="made", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=cuda, functions="run")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        RETURN
"""
HOST = """assert torch.cuda.get_device_capability() >= (7, 0) and CUDA_HOME is not None
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.device(x.device), torch.cuda.stream(side):
            y = made.run(x.to("cuda:0", non_blocking=True))
            y.record_stream(side)
        torch.cuda.current_stream().wait_stream(side)
        return y"""
GUARD = """const at::cuda::CUDAGuard guard(x.device());
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, x.get_device());
    TORCH_CHECK(properties.multiProcessorCount > 0);"""
PLAIN = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return FORWARD\n"


@pytest.fixture
def graded(grader, tmp_path):
    """Grade a submission on the emulator against a bare file of a forward and an input."""

    def run(submission, forward="x * 2", given="torch.randn(64, 96)", **options):
        problem = tmp_path / "bare.py"
        problem.write_text(PROBLEM.replace("FORWARD", forward).replace("INPUT", given))
        return grader(tmp_path, submission, "--device", "emulated", problem=str(problem), **options)

    return run


def extension(**changes):
    source = EXTENSION
    defaults = {"INCLUDE": "", "TWICE": "2 * x[i]", "GUARD": "", "RETURN": "return made.run(x)"}
    for name, text in {**defaults, **changes}.items():
        source = source.replace(name, text)
    return source


def test_a_dict_of_outputs_is_compared_by_key(graded):
    made = '{"top": x.argmax(1), "all": made.run(x)}'
    forward = '{"all": x * 2, "top": x.argmax(1)}'
    graded(extension(RETURN=f"return {made}"), forward).assert_verdict(Status.CORRECT)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("torch.randn(0, 64)", "no element to compare"),
        ("torch.eye(64).to_sparse_csr()", "sparse"),
        ("torch.nested.nested_tensor([torch.randn(5, 8), torch.randn(9, 8)])", "nested"),
    ],
    ids=["empty batch", "sparse", "nested"],
)
def test_a_problem_whose_inputs_cannot_be_graded_is_refused_in_words(graded, given, words):
    run = graded(PLAIN.replace("FORWARD", "x * 2"), given=given)
    assert run.code == 2
    assert words in run.err
    assert "Traceback" not in run.err


def test_host_code_of_torch_cuda_is_correct(graded):
    include = "#include <ATen/cuda/CUDAContext.h>\n#include <c10/cuda/CUDAGuard.h>"
    graded(extension(INCLUDE=include, GUARD=GUARD, RETURN=HOST)).assert_verdict(Status.CORRECT)


@pytest.mark.long  # An error beside PyTorch's headers: they are precompiled, which takes a minute.
def test_a_missing_semicolon_is_a_build_error_at_its_line(graded):
    source = extension(GUARD="int n = 1")
    card = graded(source).assert_verdict(Status.BUILD_ERROR, Code.COMPILE_FAILED)
    at = source.splitlines().index("    int n = 1") + 1
    assert card.reason.line in (at, at + 1)


@pytest.mark.long
def test_a_type_of_a_header_that_is_missing_is_a_build_error(graded):
    source = extension(TWICE="__half(x[i]); y[i] = __half(x[i]) * 2")
    graded(source).assert_verdict(Status.BUILD_ERROR, Code.COMPILE_FAILED)


def test_plain_code_in_answer_tags_is_the_answer(graded):
    text = f"<think>\nTwice.\n</think>\n<answer>\n{extension()}</answer>\n"
    graded(text, name="mine.md").assert_verdict(Status.CORRECT)
