"""Which kernels have threads that wait for each other, as the text shows."""

import pytest

from evaluator.emulator.frontend.callgraph import CallGraph


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
