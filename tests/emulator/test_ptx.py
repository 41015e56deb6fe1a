"""What nvcc says of kernels that g++ compiles; and when its word is not taken."""

import pytest

from evaluator.compile import emulated_builder
from evaluator.cuda_source.edits import device_code
from evaluator.protocol.frames import SourceFile
from evaluator.toolchain.host_compiler import InstalledTool
from tests.cuda_builds import local_tool
from tests.unit.compile.tool_results import ended

needs_nvcc = pytest.mark.skipif(emulated_builder.nvcc_version() is None, reason="there is no nvcc on this machine")


RUN_HERE = local_tool({})


def errors(text, *flags, run_tool=RUN_HERE):
    found = emulated_builder.device_errors(
        [SourceFile(name="cuda.cu", text=text)], {"cuda.cu": device_code(text) or ""}, flags, run_tool, text
    )
    return [(entry.message, entry.submission_line) for entry in found]


def kernel(body):
    host = "#include <torch/types.h>\nfloat on_host(float x) { return x; }\n"
    return f"{host}__global__ void k(float* x, int n) {{\n{body}\n}}\nvoid f(torch::Tensor x) {{ k<<<1, 1>>>(x, 1); }}"


@needs_nvcc
@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("x[0] = on_host(x[0]);", 'calling a __host__ function("on_host(float)") from a __global__ function("k")'),
        ("float y[n]; y[0] = 1; x[0] = y[0];", "expression must have a constant value"),
        ("if (n) throw 1;", "device code does not support exception handling"),
    ],
)
def test_rules_of_the_device_that_were_broken(body, part):
    (message, line), *_ = errors(kernel(body))
    assert part in message
    assert line == 4


@needs_nvcc
@pytest.mark.parametrize(
    "body",
    [
        "x[0] = expf(x[0]) + __ldg(x) + std::max(x[0], FLT_MAX);",
        "x[0] = somewhere_in_torch(x[0]);",
        "x[0] = somewhere_in_torch(x[0]); float y[n]; x[0] = y[0];",
        "at::opmath_type<float> y = x[0];",
    ],
)
def test_what_may_come_from_what_was_left_out_is_no_error(body):
    assert errors(kernel(body)) == []


@needs_nvcc
def test_flags_of_the_submission_count():
    text = """template <class F> __global__ void k(F f) { f(); }
void f() { k<<<1, 1>>>([=] __device__ () {}); }"""
    assert errors(text)[0][1] == 2
    assert errors(text, "--extended-lambda") == []
    assert errors("__global__ void k(float* x) { x[0] = N; }", "-DN=1") == []


def answering(output, exit_code=1):
    return lambda argv, **_: ended(exit_code, output)


HOST_CALL = 'cuda.cu(1): error: calling a __host__ function("f") from a __global__ function("k") is not allowed\n'


@pytest.mark.parametrize(
    ("output", "count"),
    [
        (HOST_CALL, 1),
        (HOST_CALL + 'cuda.cu(1): error: identifier "kTile" is undefined\n', 0),
        (HOST_CALL + "other.h(1): error: device code does not support exception handling\n", 0),
        ("nvcc fatal   : Unsupported gpu architecture 'sm_90'\n", 0),
        ("", 0),
    ],
)
def test_one_error_of_another_kind_and_nothing_counts(monkeypatch, output, count):
    monkeypatch.setattr(emulated_builder.nvcc, "nvcc", lambda: InstalledTool("/nvcc", "13.0"))
    text = "__global__ void k() {}"
    assert len(errors(text, run_tool=answering(output))) == count
    assert errors(text, run_tool=answering(output, exit_code=0)) == []


def test_without_nvcc_nothing_is_run(monkeypatch):
    monkeypatch.setattr(emulated_builder, "nvcc_version", lambda: None)
    assert errors("__global__ void k() {}", run_tool=None) == []
