"""What the emulator lacks: by the text of a submission, and by what the compiler says."""

import pytest

from evaluator.emulator.frontend.unsupported_features import lacking, suggestion, unsupported


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
        ("using namespace kittens;", "ThunderKittens"),
        ("thrust::sort(a, b);", "Thrust"),
        ("cub::DeviceReduce::Sum(t, n, in, out, size);", "cub::DeviceReduce"),
        ("cudnnHandle_t handle;", "cuDNN"),
        ("cusparseCreate(&h);", "cuSPARSE"),
        ("cufftExecC2C(p, a, b, 1);", "cuFFT"),
        ("cudaTextureObject_t t;", "textures and surfaces"),
        ("x = tex2D<float>(t, u, v);", "textures and surfaces"),
        ("cg::this_grid().sync();", "synchronisation of the whole grid"),
        ("auto g = cg::this_grid(); g.sync();", "synchronisation of the whole grid"),
        ("cg::grid_group g(cg::this_grid()); cg::sync(g);", "synchronisation of the whole grid"),
        ("cg::this_multi_grid().sync();", "synchronisation of the whole grid"),
        ("auto t = cg::tiled_partition<64>(b);", "tiles of more than a warp"),
        ("cg::thread_block_tile<128> t = u;", "tiles of more than a warp"),
        ("cub::BlockRadixSort<float, 128, 4>(t).Sort(keys);", "cub::BlockRadixSort"),
        ("cub::WarpMergeSort<int, 4>(t).Sort(keys, Less());", "cub::WarpMergeSort"),
        ("cuda::atomic_ref<int> r(p[0]);", "cuda::atomic_ref"),
        ("cudaLaunchCooperativeKernel(f, g, b, a);", "synchronisation of the whole grid"),
        ("cg::this_cluster().sync();", "thread block clusters"),
        ("nvrtcCompileProgram(p, 0, nullptr);", "code compiled or loaded at run time"),
        ("cudaGraphLaunch(g, s);", "CUDA graphs"),
        ("inner<<<1, 32>>>(p);", "a launch inside of a kernel"),
        ("} void host() { other<<<1, 32>>>(p, {1, 2});", "a braced list as an argument of a kernel"),
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
        "auto g = cg::this_grid(); auto b = cg::this_thread_block(); i = g.thread_rank(); b.sync(); cg::sync(b);",
        "auto t = cg::tiled_partition<32>(b); cg::thread_block_tile<kSize> u = t;",
        "__global__ void k(int2 n) {} void host() { k<<<1, 2>>>({1, 2}); t<int2><<<1, 2>>>({1, 2}); }",
        "cub::BlockLoad<float, 128, 4> l; cub::WarpReduce<float> w;",
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
    "text",
    [
        "void f() { k<<<1, 2>>(p); }",
        "constexpr int THREADS = 2;\nvoid f() { k<<<1, THREADS>>(p); }",
        "void f() { k<<<1, threads(p); }",
        "void f() { k<<<1, 2>>>; }",
    ],
)
def test_a_mistyped_launch_is_left_to_the_compiler(text):
    assert found(text) == []


def test_a_name_in_capitals_may_be_a_macro_of_a_header():
    assert found("void f() { k<<<1, 2 END(p); }") == [("a launch put together by macros", 1)]


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
        ("'invoke_one' is not a member of 'cg'", "invoke_one"),
        ("'cuda' has not been declared", "cuda"),
        ("'class cooperative_groups::grid_group' has no member named 'sync'", "cooperative_groups::grid_group::sync"),
        ("'struct cudaDeviceProp' has no member named 'uuid'", "cudaDeviceProp::uuid"),
        ("'using R = class cub::Block<8>' {aka 'class cub::Block<8>'} has no member named 'Top'", "cub::Block::Top"),
        ("static assertion failed: the emulator has tiles of 1 or 32 threads", "more than tiles of 1 or 32 threads"),
        ("'class at::Tensor' has no member named 'row'", None),
        ("'struct Rows' has no member named 'count'", None),
        ("no matching function for call to 'atomicMax(float*&, float)'", None),
        ("'rows' was not declared in this scope", None),
        ("'__ffma2_rn' was not declared in this scope", "__ffma2_rn"),
        ("'normcdff' was not declared in this scope", "normcdff"),
        ("'CUdeviceptr' does not name a type", "CUdeviceptr"),
        ("'getCurrentCUDABlasLtHandle' is not a member of 'at::cuda'", "getCurrentCUDABlasLtHandle"),
        ("cuda_fp6.h: No such file or directory", "cuda_fp6.h"),
        ("'struct cudaDeviceProp' has no member named 'cores'", None),
        ("cuda_helpers.h: No such file or directory", None),
        ("'__warp_sum' was not declared in this scope", None),
        ("mine.h: No such file or directory", None),
        ("expected ';' before '}' token", None),
        ("'foo' is not a member of 'torch'", None),
    ],
)  # fmt: skip
def test_errors_about_names_of_cuda(message, name):
    assert lacking(message) == name


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("__shfl_down", "__shfl_down_sync"),
        ("__any", "__any_sync"),
        ("cudaSynchronize", "cudaDeviceSynchronize"),
        ("cudaDeviceSync", "cudaDeviceSynchronize"),
        ("__syncthread", "__syncthreads"),
        ("atomicAddFloat", "atomicAdd"),
        ("cudaBindTexture", None),
        ("cudaMallocAsync", None),
        ("rows", None),
    ],
)
def test_a_removed_or_invented_name_has_a_suggestion(name, meant):
    message = f"'{name}' was not declared in this scope"
    assert suggestion(message) == meant
    assert meant is None or lacking(message) is None


def test_a_missing_brace_puts_no_launch_into_a_kernel():
    assert found("__global__ void k() { if (x) {\n}\nvoid f() { k<<<1, 1>>>(); }") == []
    assert found("__global__ void k() { k<<<1, 1>>>(); }") == [("a launch inside of a kernel", 1)]


@pytest.mark.parametrize(("name", "lacks"), [("cuda_fp61.h", False), ("cuda_fp6.h", True), ("cuda_pipeline.h", True)])
def test_a_misspelt_header_is_left_to_the_compiler(name, lacks):
    assert bool(found(f"#include <{name}>")) is lacks
