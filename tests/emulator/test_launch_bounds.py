"""`__launch_bounds__` in a text: where the kernel asks for its bound, and where it had better not."""

import pytest

from evaluator.emulator.frontend.rewriter import rewrite_unit

ASKS = "{{ if (emu::beyond_bounds({})) return; x[0] = 1; }}"
BODY = "{ x[0] = 1; }"


@pytest.mark.parametrize(
    ("head", "bound"),
    [
        ("__global__ void __launch_bounds__(128) k(float* x) ", "128"),
        ("__global__ __launch_bounds__(128) void k(float* x) ", "128"),
        ("__launch_bounds__(128) __global__ void k(float* x) ", "128"),
        ("__global__ void __launch_bounds__(2 * WIDTH, 4) k(float* x) ", "2*WIDTH"),
        ("__global__ void __launch_bounds__(Tile<T, 2>::threads, 1, 1) k(float* x) ", "Tile<T,2>::threads"),
        ("template <int N> __global__ void __launch_bounds__(N) k(float* x) ", "N"),
        ("static __global__ void C10_LAUNCH_BOUNDS_1(512) k(float* x) ", "512"),
        ("__global__ void\n__launch_bounds__(\n128\n)\nk(float* x)\n", "128"),
        ("#define BOUNDS __launch_bounds__(64, 2)\n__global__ void BOUNDS k(float* x) ", "64"),
    ],
)
def test_a_kernel_asks_for_its_bound_first_thing(head, bound):
    assert rewrite_unit([head + BODY]) == [head + ASKS.format(bound)]


def test_a_bound_that_another_file_defines():
    define, kernel = "#define BOUNDS __launch_bounds__(64)\n", "__global__ void BOUNDS k(float* x) "
    assert rewrite_unit([define, kernel + BODY]) == [define, kernel + ASKS.format("64")]


def test_a_kernel_that_a_macro_defines():
    text = "#define KERNEL(NAME, N) __global__ void __launch_bounds__(N) NAME(float* x) "
    assert rewrite_unit([text + BODY]) == [text + ASKS.format("N")]


@pytest.mark.parametrize(
    "text",
    [
        # In the body, the name would be the parameter's.
        f"constexpr int n = 256; __global__ void __launch_bounds__(n) k(float* x, int n) {BODY}",
        f"__global__ void __launch_bounds__() k(float* x) {BODY}",
        "__global__ void __launch_bounds__(128) k(float* x);",
        f"__global__ void k(float* x) {BODY}",
        f"__device__ void f(float* x) {BODY}",
    ],
)
def test_what_is_left_alone(text):
    assert rewrite_unit([text]) == [text]
