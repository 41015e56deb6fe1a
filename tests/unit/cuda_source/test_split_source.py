"""One .cu file in two halves: what each keeps, on which line, and what cannot be split."""

import re

import pytest

from evaluator.cuda_source.declarations import NotSplittable
from evaluator.cuda_source.split import device_headers, split, without_precompiled
from tests.cuda_builds import corpus_texts

KERNEL = "__global__ void k(const float* x, int n) { x[n]; }\n"


def flat(text):
    return re.sub(r"\s+", " ", text).strip()


def halves(text):
    found = split(text)
    return flat(found.host), flat(found.device)


def test_a_kernel_is_declared_for_the_host_and_defined_for_the_device():
    host, device = halves("static " + KERNEL.replace(") {", ") {", 1))
    assert host == "void k(const float* x, int n) ;"
    assert device == "__global__ void k(const float* x, int n) { x[n]; }"


def test_a_launch_becomes_what_nvcc_makes_of_it():
    host, device = halves(KERNEL + "void f(float* x, int n) { k<<<dim3(n, 2), 256, 0, stream>>>(x, n); }")
    assert "(__cudaPushCallConfiguration(dim3(n, 2), 256, 0, stream) ? (void)0 : k(x, n));" in host
    assert "void f" not in device


def test_a_launch_of_a_template_keeps_its_arguments_and_one_in_a_macro_is_found():
    text = f"#define GO(T) t<T, 4><<<1, 2>>>(x)\n{KERNEL}template <class T, int N> __global__ void t(T* x) {{}}\n"
    found = split(text + "void f(float* x) { GO(float); ns::t<int><<<1, 2>>>(x); }")
    assert "#define GO(T) (__cudaPushCallConfiguration( 1, 2) ? (void)0 : t<T,4>(x))" in found.host
    assert "? (void)0 : ns::t<int>(x))" in found.host
    assert (found.kernels, found.templates) == ({"k", "t"}, {"t"})


def test_attributes_of_a_kernel_are_not_for_the_host():
    host, device = halves("__global__ __launch_bounds__(256, 2) void k(const __grid_constant__ int n) {}")
    assert host == "void k(const int n) ;"
    assert "__launch_bounds__(256, 2)" in device


def test_functions_of_the_device_are_not_for_the_host_nor_the_other_way_round():
    text = "__device__ float d(float x) { return x; }\nint h(int x) { return x; }\n" + KERNEL
    host, device = halves(text)
    assert "float d" not in host
    assert "int h" not in device


def test_a_function_for_both_is_kept_where_it_is_named():
    both = "__host__ __device__ inline int up(int a) { return a + 1; }\n"
    assert "up(" not in halves(both + KERNEL)[0]
    host, device = halves(both + KERNEL + "int f() { return up(2); }")
    assert "inline int up(int a) { return a + 1; }" in host
    assert "inline int up(int a) { return a + 1; }" in device


def test_a_function_of_the_host_that_a_kernel_calls_stays_for_nvcc_to_complain_about():
    host, device = halves("int h(int x) { return x; }\n__global__ void k(int* x) { *x = h(1); }")
    assert "int h(int x) { return x; }" in device
    assert "int h(int x) { return x; }" in host


def test_types_and_constants_are_for_both_and_pytorch_is_for_the_host():
    text = (
        "#include <torch/extension.h>\n#include <c10/cuda/CUDAGuard.h>\n#include <cuda_fp16.h>\n"
        "using torch::Tensor;\nconstexpr int kSize = 4;\nstruct Shape { int a, b; };\n"
        "static std::map<int, int> cache;\n"
    )
    host, device = halves(text + KERNEL)
    assert device.startswith("#include <cuda_fp16.h> constexpr int kSize = 4; struct Shape { int a, b; };")
    assert "cache" not in device
    assert "torch/extension.h" not in host
    assert "#include <c10/cuda/CUDAGuard.h>" in host
    assert "static std::map<int, int> cache;" in host


def test_a_types_functions_for_the_device_have_no_body_on_the_host():
    text = "struct Op { float a; __device__ Op(float x) : a(x) {} __device__ float f() const { return __expf(a); } };\n"
    host, device = halves(text + KERNEL + "void g() { sizeof(Op); }")
    assert "__expf" not in host
    assert "float f() const ;" in flat(host)
    assert ": a(x)" not in host
    assert "__expf(a)" in device


def test_headers_and_names_of_cudas_device_side_are_not_for_the_host():
    text = "#include <cooperative_groups.h>\n#include <cub/cub.cuh>\nnamespace cg = cooperative_groups;\n"
    host, device = halves(text + "using namespace nvcuda;\n" + KERNEL)
    assert not set(re.findall(r"\w+", host)) & {"cg", "cub", "cooperative_groups", "nvcuda"}
    assert "namespace cg = cooperative_groups;" in device


def test_a_device_variable_that_the_host_names_is_a_reference_there():
    text = "__constant__ float taps[9];\n__device__ unsigned done = 0;\n" + KERNEL
    host, device = halves(text + "void f() { cudaMemcpyToSymbol(taps, p, 36); }")
    assert "using warpgrade_type_taps = float [9];" in host
    assert "done" not in host
    assert "warpgrade_symbol_taps() { return &taps; }" in device
    assert "warpgrade_symbol_done" not in device


def test_an_unnamed_namespace_has_one_name_in_both_halves():
    text = "namespace {\n__global__ void k(int n) {}\n}\nvoid f() { k<<<1, 1>>>(2); }"
    for half in halves(text):
        assert "inline namespace warpgrade_unnamed {" in half


NOT_SPLITTABLE = {
    "a device lambda": KERNEL + "void f() { auto g = [=] __device__(int i) { return i; }; }",
    "code for one compiler": "#ifdef __CUDACC__\n#endif\n" + KERNEL,
    "a macro that defines kernels": "#define K(name) __global__ void name(int n) {}\nK(a)\n" + KERNEL,
    "two variables at once": "__constant__ int a, b;\n" + KERNEL + "void f() { cudaMemcpyToSymbol(a, &b, 4); }",
    "brackets": "struct A {\n" + KERNEL,
    "a library of kernels in a function of the host": KERNEL + "void f() { cub::DeviceReduce::Sum(a, b, c, d, 1); }",
    "a type of a library, for the host": "using Gemm = cutlass::gemm::device::Gemm<float>;\n"
    + KERNEL
    + "void f() { Gemm gemm; }",
    "nvcc's own accessors": KERNEL + "void f() { x.packed_accessor64<float, 2, torch::RestrictPtrTraits>(); }",
}


@pytest.mark.parametrize("text", NOT_SPLITTABLE.values(), ids=NOT_SPLITTABLE)
def test_what_cannot_be_split_is_said(text):
    with pytest.raises(NotSplittable):
        split(text)


def test_a_library_of_kernels_in_kernels_alone_is_split():
    text = """using namespace cute;
struct Sum { __device__ float operator()(float a) const { return thrust::plus<float>()(a, a); } };
template <class F> __global__ void k(F f) { auto one = cute::_1{}; cub::BlockReduce<float, 256> reduce; }
void f() { k<<<1, 1, 0, at::cuda::getCurrentCUDAStream()>>>(Sum{}); my::cub::g(); }"""
    host, device = halves(text)
    assert "at::cuda::getCurrentCUDAStream()" in host
    assert not re.search(r"\bcute\b|(?<!my::)\bcub\b|thrust", host)
    assert "cute::_1" in device


@pytest.mark.parametrize(("name", "text"), corpus_texts().items(), ids=corpus_texts().keys())
def test_every_token_of_our_own_submissions_stays_on_its_line(name, text):
    try:
        found = split(text)
    except NotSplittable:
        assert name in {"relu_accessor", "relu_extended_lambda"}
        return
    for half in (found.host, found.device):
        lines = half.split("\n")
        assert len(lines) == len(text.split("\n"))
        for line, original in zip(lines, text.split("\n"), strict=True):
            added = r"\(__cudaPush.*|\? \(void\)0 : .*|warpgrade\w*|\binline\b|extern.*"
            words = re.findall(r"[A-Za-z]\w*", re.sub(added, " ", line))
            assert set(words) <= set(re.findall(r"[A-Za-z]\w*", original))


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("float x;", []),
        ("k<c10::Half>", ["c10/util/Half.h"]),
        ("at::BFloat16 x; at::opmath_type<T> y;", ["c10/util/BFloat16.h", "ATen/OpMathType.h"]),
    ],
)
def test_a_device_half_has_few_headers_of_pytorch(text, headers):
    assert device_headers(text) == headers


def test_what_the_precompiled_header_stands_for_is_not_read_again():
    text = '#include <torch/extension.h>\n#include <vector>\nconst char* s = "#include <torch/types.h>";'
    assert without_precompiled(text) == '\n#include <vector>\nconst char* s = "#include <torch/types.h>";'
