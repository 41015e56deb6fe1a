"""What the text shows: who waits for whom, what the emulator lacks, and numbers of the full size."""

import pytest

from evaluator.emulator.features import CallGraph, hard_coded, lacking, unsupported


def waits(*texts, kernel="k"):
    return CallGraph(texts).waits(kernel)


@pytest.mark.parametrize(
    "body",
    [
        "__syncthreads();",
        "n = __syncthreads_count(n);",
        "__syncwarp();",
        "n = __shfl_down_sync(~0u, n, 1);",
        "n = __ballot_sync(~0u, n);",
        "n = __reduce_add_sync(~0u, n);",
        "auto mask = __activemask();",
        "cg::sync(cg::this_thread_block());",
        "auto tile = cg::tiled_partition<32>(b); n = tile.shfl_down(n, 1);",
        "n = cub::BlockReduce<int, 32>(temp).Sum(n);",
        "n = first(n);",
        "n = MACRO(n);",
        "n = Method().go(n);",
    ],
)
def test_kernels_that_wait(body):
    helpers = """
#define MACRO(n) second(n)
__device__ int second(int n) { return __any_sync(~0u, n); }
__device__ int first(int n) { return n > 0 ? second(n) : first(n - 1); }
struct Method { __device__ int go(int n) { __syncwarp(); return n; } };
"""
    assert waits(helpers + "template <int N> __global__ void k(int n) {" + body + "}")


@pytest.mark.parametrize(
    "body",
    [
        "p[0] = n;",
        "atomicAdd(p, 1.f);",
        "__threadfence();",
        "p[0] = other(n);",
        '}\n#include "cuda_runtime.h"\n#include <helpers>\n__device__ void f() {',
        "// __syncthreads();\n",
        'printf("__syncthreads()");',
        "if (n) { return; } p[0] = scalar_t(n);",
    ],
)
def test_kernels_that_do_not(body):
    helpers = """
__device__ int other(int n) { return n; }
__global__ void waiting() { __syncthreads(); }
"""
    assert not waits(helpers + "__global__ void k(float* p, int n) {" + body + "}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#define MAKE(name) __global__ void name() {}\nMAKE(k)",
        "__global__ void k(int (*f)(int)) { f(1); }",
        "template <class F> __global__ void k(F f, int n) { if (n) f(n); }",
        '#include "helpers.cuh"\n__global__ void k() { helper(); }',
        "using Reduce = cub::BlockReduce<int, 32>; __global__ void k() { Reduce(t).Sum(1); }",
        "struct Op { __device__ void operator()() { __syncwarp(); } }; __global__ void k() { Op()(); }",
        "void host() { run([=] __device__ (int i) { __syncthreads(); }); } __global__ void k() {}",
    ],
)
def test_in_doubt_threads_wait(text):
    assert waits(text)


def test_functions_of_other_files_count():
    kernel = "__device__ void helper(); __global__ void k() { helper(); }"
    assert not waits(kernel, "__device__ void helper() { }")
    assert waits(kernel, "__device__ void helper() { __syncthreads(); }")


def test_a_macro_can_stand_for_the_qualifier():
    assert not waits("#define DEV __device__ inline\nDEV void f() { __syncwarp(); } __global__ void k() { }")


def found(text):
    return [tuple(item) for item in unsupported(text, lambda name: name in {"cuda_runtime.h", "cub/cub.cuh"})]


@pytest.mark.parametrize(
    ("statement", "construct"),
    [
        ('asm volatile("mov.u32 %0, %laneid;" : "=r"(x));', "inline PTX (asm)"),
        ('__asm__("trap;");', "inline PTX (asm)"),
        ("nvcuda::wmma::fragment<A> a;", "tensor cores (wmma)"),
        ("__pipeline_commit();", "asynchronous copies to shared memory"),
        ("cg::memcpy_async(b, s, g, 4);", "asynchronous copies to shared memory"),
        ("cuda::barrier<cuda::thread_scope_block> b;", "cuda::barrier"),
        ("cuda::pipeline<cuda::thread_scope_thread> p;", "cuda::pipeline"),
        ("CUtensorMap map;", "TMA"),
        ("cutlass::gemm::device::Gemm<float> g;", "CUTLASS"),
        ("auto t = cute::make_tensor(p);", "CUTLASS"),
        ("thrust::sort(a, b);", "Thrust"),
        ("cub::DeviceReduce::Sum(t, n, in, out, size);", "cub::DeviceReduce"),
        ("cudnnHandle_t handle;", "cuDNN"),
        ("cusparseCreate(&h);", "cuSPARSE"),
        ("cufftExecC2C(p, a, b, 1);", "cuFFT"),
        ("cudaTextureObject_t t;", "textures and surfaces"),
        ("x = tex2D<float>(t, u, v);", "textures and surfaces"),
        ("cg::this_grid().sync();", "synchronisation of the whole grid"),
        ("cudaLaunchCooperativeKernel(f, g, b, a);", "synchronisation of the whole grid"),
        ("cg::this_cluster().sync();", "thread block clusters"),
        ("nvrtcCompileProgram(p, 0, nullptr);", "code compiled or loaded at run time"),
        ("cudaGraphLaunch(g, s);", "CUDA graphs"),
        ("inner<<<1, 32>>>(p);", "a launch inside of a kernel"),
        ("} void host() { k<<<1, 32>>>(p, {1, 2});", "a braced list as an argument of a kernel"),
    ],
)
def test_constructs_that_are_lacking(statement, construct):
    assert found("\n__global__ void k() {\n" + statement + "\n}") == [(construct, 3)]


@pytest.mark.parametrize(
    "text",
    [
        'asm volatile("" ::: "memory");',
        '// asm("trap;")\nconst char* s = "thrust::sort";',
        "cub::BlockReduce<int, 32> r;",
        "int thrust = 1, cute_size = 2; double mma = 3;",
        "void host() { k<<<{1, 2}, 2>>>(p, S{1, 2}, [=](int i) { return i; }); }",
        '#define UNUSED asm("trap;")',
        "#include <cuda_runtime.h>\n#include <cub/cub.cuh>\n#include <vector>\n#include <torch/extension.h>",
        "at::cuda::getCurrentCUDAStream();",
    ],
)  # fmt: skip
def test_what_the_emulator_has(text):
    assert found(text) == []


def test_a_macro_that_is_used_counts_at_its_own_line():
    text = '\n#define LANE(x) \\\n  asm("mov %0, %laneid;" : "=r"(x))\n__global__ void k() { LANE(x); }'
    assert found(text) == [("inline PTX (asm)", 3)]


@pytest.mark.parametrize(
    "text",
    [
        "#define CONFIG(g, b) <<<g, b>>>\nvoid f() { k CONFIG(1, 2)(p); }",
        "#define START k<<<1, 2>>>\nvoid f() { START(p); }",
    ],
)
def test_launches_put_together_by_macros(text):
    assert found(text) == [("a launch put together by macros", 1)]


@pytest.mark.parametrize(
    "name",
    ["mma.h", "cuda/barrier", "cuda_pipeline.h", "cub/device/x.cuh", "thrust/sort.h", "cutlass/a.h", "cudnn.h"],
)  # fmt: skip
def test_headers_that_are_lacking(name):
    assert found(f"#include <vector>\n# include <{name}>") == [(f"the header {name}", 2)]


STEPS = "s[t] += s[t + 16];\n s[t] += s[t + 8];"


@pytest.mark.parametrize(
    "text",
    [
        "__device__ void f(volatile float* s, int t) {\n" + STEPS + "}",
        "__global__ void f() { extern __shared__ float a[];\n if (t < 32) { volatile float* s = a;" + STEPS + "} }",
        "__global__ void f() { __shared__ volatile float s[64]; int t = 0;\n" + STEPS + "}",
        "__device__ void f(volatile T* s, int t) {\n s[t] = max(s[t], s[t + 2]); s[t] = max(s[t], s[t + 1]); }",
        "__device__ void f(volatile T* s, int t) {\n for (int i = 16; i; i /= 2) s[t] += s[t + i]; }",
        "__device__ void f(volatile T* s, int t) {\n for (int i = 16; i; i /= 2) { if (t < i) s[t] += s[t + i]; } }",
    ],
)  # fmt: skip
def test_reductions_that_rely_on_a_warp_in_step(text):
    assert found(text) == [("volatile memory instead of __syncwarp()", 2)]


@pytest.mark.parametrize(
    "text",
    [
        "__device__ void f(float* s, int t) { " + STEPS + "}",
        "__device__ void f(volatile float* s, int t) { s[t] += s[t + 16]; __syncwarp(); s[t] += s[t + 8]; }",
        "__device__ void f(volatile float* s, int t) { for (; i; i /= 2) { s[t] += s[t + i]; __syncwarp(); } }",
        "__device__ void f(volatile float* s, int t) { s[t] = s[t] * 2; s[t] += 1; }",
        "__device__ void f(volatile int* flag) { while (flag[0] == 0) { } }",
    ],
)  # fmt: skip
def test_other_volatile_code(text):
    assert found(text) == []


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("'__dp4a' was not declared in this scope", "__dp4a"),
        ("\u2018cudaMallocAsync\u2019 was not declared in this scope", "cudaMallocAsync"),
        ("'BlockRadixSort' is not a member of 'cub'", "BlockRadixSort"),
        ("'BlockShuffle' in namespace 'cub' does not name a template type", "BlockShuffle"),
        ("cudnn.h: No such file or directory", "cudnn.h"),
        ("'rows' was not declared in this scope", None),
        ("mine.h: No such file or directory", None),
        ("expected ';' before '}' token", None),
        ("'foo' is not a member of 'torch'", None),
    ],
)  # fmt: skip
def test_errors_about_names_of_cuda(message, name):
    assert lacking(message) == name


FULL = {"batch": 4096, "dim": 393216, "kernel": 3, "name": "x", "flag": True, "shape": [128, 500]}
SMALL = {"batch": 64, "dim": 512, "kernel": 3, "name": "x", "flag": True, "shape": [16, 40]}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = f(4096)", [(4096, 1)]),
        ("\nclass ModelNew:\n    def forward(self):\n        return g(393216)", [(393216, 4)]),
        ("n = f(1610612736)", [(4096 * 393216, 1)]),
        ("n = f(500)", [(500, 1)]),
        ("n = 4096\nblocks = n // 2\nf(blocks)", [(4096, 1)]),
        ("y = f(x) / 393216.0", [(393216, 1)]),
        ("src = '''\n__global__ void k() {\n  int n = 393'216;\n  m = 1 / 4096.0f;\n}'''", [(393216, 3), (4096, 4)]),
        ("src = f'''\n__global__ void k() {{\n  if (i < 4096u) x;\n}}'''", [(4096, 3)]),
        ("load(cpp_sources='int f() { return 0x1000; }')", [(4096, 1)]),
    ],
)  # fmt: skip
def test_numbers_of_the_full_size(source, expected):
    assert hard_coded(source, FULL, SMALL) == expected


@pytest.mark.parametrize(
    "source",
    [
        "batch = 4096\nshape = (batch, 393216)\ndef get_inputs():\n    return [torch.rand(*shape)]",
        "x = f(64, 512, 3, 128, True)",
        "# 4096 rows\nx = 1",
        '"""For 4096 rows;\n{ 393216 }\n"""\nx = 1',
        "def f():\n    '''Takes 4096;\n    rows {'''\n",
        "src = '''\n// 4096 rows\n/* 393216 */ int x;\n'''",
        'src = "expects 4096 rows"',
        "batch = 4096\ndim = 393216\ndef get_inputs():\n    return [torch.rand(batch, dim)]",
        "if __name__ == '__main__':\n    print(4096)",
        "x = 'a'\ndef broken(:",
    ],
)
def test_numbers_that_do_not_count(source):
    assert hard_coded(source, FULL, SMALL) == []


def test_block_sizes_and_the_small_sizes_own_numbers_do_not_count():
    full, small = {"rows": 1024, "columns": 2048, "depth": 768}, {"rows": 64, "columns": 16, "depth": 768}
    assert hard_coded("f(1024, 2048, 768, 64 * 16)", full, small) == [(2048, 1)]
    assert hard_coded("f(2048)", {"rows": 4096, "columns": 2048}, {"rows": 2048, "columns": 32}) == []
    assert hard_coded("f(4096 * 768)", {"a": 4096, "b": 4096}, {"a": 4096, "b": 4096}) == []
