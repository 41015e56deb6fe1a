"""Which submissions are C++ for the CPU alone: shipped ones, answers, and texts made up for one mark each."""

from pathlib import Path

import pytest

from evaluator.submission.requirements import is_for_the_cpu

TOP = Path(__file__).parents[3]
SHIPPED = sorted((TOP / "solutions").glob("*/*.py"))
ANSWERS = sorted((TOP / "tests" / "data" / "answers").iterdir())
HOST = 'import torch\nload_inline(name="x", cpp_sources="float* p = x.data_ptr<float>();")\n'


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_of_the_shipped_solutions_those_in_cpp_are(path):
    assert is_for_the_cpu(path.read_text(encoding="utf-8")) is path.stem.startswith("cpp")


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.name)
def test_no_answer_with_a_kernel_is(path):
    assert not is_for_the_cpu(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "more",
    [
        "",
        'load_inline(cpp_sources=S, cuda_sources="")',
        "load_inline(cpp_sources=S, cuda_sources = None)",
        "load_inline(cpp_sources=S, cuda_sources=[])",
        "TORCH_CHECK(!x.is_cuda())",
        "assert not x.is_cuda",
        "TORCH_CHECK(x.device() == at::kCPU)",
        "# no CUDA here",
    ],
)
def test_cpp_on_a_tensors_memory_is(more):
    assert is_for_the_cpu(HOST + more)


@pytest.mark.parametrize(
    "more",
    [
        "__global__ void k() {}",
        "k<<<1, 32>>>();",
        "load_inline(cuda_sources=[SOURCE])",
        'load_inline(cuda_sources="""code""")',
        'load(sources=["a.cpp", "kernel.cu"])',
        "#include <cuda_runtime.h>",
        "#include <ATen/cuda/CUDAContext.h>",
        "import triton",
        "import cupy",
        "from numba import cuda",
        "TORCH_CHECK(x.is_cuda())",
        'x.to("cuda")',
        "x.cuda()",
        "torch.cuda.current_stream()",
        "if (x.device().type() == at::kCUDA)",
    ],
)
def test_what_has_something_for_a_gpu_is_not(more):
    assert not is_for_the_cpu(HOST + more)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "class ModelNew: pass",
        'load_inline(cpp_sources="at::Tensor f(at::Tensor x) { return x.clamp_min(0); }")',
        "x.data_ptr()",
    ],
    ids=["empty", "python", "operations alone", "no extension"],
)
def test_what_runs_on_every_device_is_not(text):
    assert not is_for_the_cpu(text)
