"""What is left of a text for a compiler that has no PyTorch."""

import pytest

from evaluator.cuda_source.edits import device_code

KERNEL = "__global__ void k(float* x) { x[0] = f(x[0]); }"


def left(text):
    result = device_code(f"{text}\n{KERNEL}")
    assert result.count("\n") == text.count("\n") + 1
    assert result.endswith(KERNEL)
    return "".join(result.removesuffix(KERNEL).split())


@pytest.mark.parametrize(
    "text",
    [
        "#include <torch/extension.h>\n#include <ATen/cuda/CUDAContext.h>\n#include <c10/cuda/CUDAStream.h>",
        "torch::Tensor relu(torch::Tensor x);",
        "torch::Tensor relu(torch::Tensor x) {\n auto y = x;\n if (n) { n = 1; }\n return y;\n}",
        "void launch(float* x) { k<<<1, 1, 0, at::cuda::getCurrentCUDAStream()>>>(x); }",
        "using torch::Tensor;",
        "namespace F = torch::nn::functional;",
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("relu", &relu); }',
        "template <typename T>\nstruct Rows { at::TensorAccessor<T, 2> rows; };",
        "__global__ void other(torch::PackedTensorAccessor32<float, 2> x) { x[0][0] = 1; }",
    ],
)
def test_what_mentions_pytorch_goes(text):
    assert left(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "#include <cuda_fp16.h>\n#include <vector>",
        "#define TILE 16\nconstexpr int kTile = TILE;",
        "static float f(float x) { return x; }",
        "__device__ __forceinline__ float f(float x) { return x; }",
        "template <typename T> struct Op { T a; __device__ T operator()(T b) const { return a + b; } };",
        "__constant__ float weights[64];",
        "void launch(float* x, int n) { k<<<n, 32>>>(x); }",
    ],
)
def test_everything_else_stays(text):
    assert left(text) == "".join(text.split())


def test_namespaces_are_looked_into():
    text = 'namespace a::b {\nextern "C" {\nint f(int x) { return x; }\ntorch::Tensor g();\n}\n}'
    assert left(text) == 'namespacea::b{extern"C"{intf(intx){returnx;}}}'


@pytest.mark.parametrize("text", ["", "int f() { return 1; }", "__global__ void k(at::Tensor x) {}"])
def test_without_a_kernel_there_is_nothing_to_judge(text):
    assert device_code(text) is None
