"""The three ways of building inline CUDA, compiled for real: one machine code, and the same functions for Python."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from evaluator.compile.cuda_steps import steps
from evaluator.compile.disassembly import VERBOSE, kernel_resources
from evaluator.compile.precompiled import precompile
from evaluator.protocol.frames import BuildRequest, SourceFile
from evaluator.toolchain import nvcc
from tests import once
from tests.cuda_builds import ARCHITECTURE, has_nvcc, local_tool, stand_ins
from tests.grading.folders import HALVES

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.skipif(not has_nvcc(), reason="there is no nvcc here")]

CUDA = """
#include <c10/cuda/CUDAException.h>
namespace {
constexpr int kTaps = 4;
__constant__ float taps[kTaps];
__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }
}
__global__ void __launch_bounds__(256) plain_kernel(const float* __restrict__ x, float* out, int n) {
    __shared__ float tile[256];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? gelu(x[i]) : 0.0f;
    __syncthreads();
    if (i < n) out[i] = tile[threadIdx.x] * taps[i % kTaps];
}
template <typename T, int kWidth>
__global__ void wide_kernel(const T* x, T* out, int n) {
    for (int i = threadIdx.x * kWidth; i < n; i += blockDim.x) out[i] = x[i] / T(kWidth);
}
torch::Tensor run(torch::Tensor x, double scale, bool wide) {
    auto out = torch::empty_like(x);
    const float host[kTaps] = {1, 2, 3, 4};
    cudaMemcpyToSymbol(taps, host, sizeof(host));
    if (wide) {
        wide_kernel<float, 4><<<1, 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
        wide_kernel<double, 2><<<1, 32>>>(nullptr, nullptr, 0);
    } else {
        plain_kernel<<<1, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    }
    return out.fill_(scale);
}
std::tuple<torch::Tensor, int64_t> two(const torch::Tensor& x, std::vector<int64_t> sizes, c10::optional<double> a) {
    TORCH_CHECK(x.numel() > 0, "empty");
    return {x, static_cast<int64_t>(sizes.size())};
}
void nothing() {}
"""
CPP = """
torch::Tensor run(torch::Tensor x, double scale, bool wide);
std::tuple<torch::Tensor, int64_t> two(const torch::Tensor& x, std::vector<int64_t> sizes, c10::optional<double> a);
void nothing();
"""
REQUEST = BuildRequest(
    name="three_ways",
    cpp_sources=[CPP],
    cuda_sources=[CUDA],
    functions={"run": "runs", "two": 'says "two"', "nothing": "nothing"},
    extra_cuda_cflags=["-no-compress", VERBOSE],
)
CALLS = """
import importlib.util, json, os, sys
import torch
sys.setdlopenflags(os.RTLD_LAZY)
spec = importlib.util.spec_from_file_location("three_ways", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
x = torch.ones(8)
calls = [
    lambda: module.run(x, 3, False).tolist(), lambda: module.two(x, [1, 2], None), lambda: module.two(x, (3,), 1),
    lambda: module.nothing(), lambda: module.run(x, "3", False), lambda: module.run(x), lambda: module.run(x=x),
    lambda: module.two(torch.empty(0), [], None), lambda: module.two(1, [], None), lambda: module.two(x, [1.5], None),
    lambda: module.run(x, torch.tensor(2.0), True).sum(), lambda: module.nothing(1),
]
for call in calls:
    try:
        answer = [str(call())]
    except Exception as error:
        answer = [type(error).__name__, str(error).splitlines()[0]]
    print("answer:", json.dumps(answer))
"""


class Built(NamedTuple):
    """The libraries of each step, and what its compilers said."""

    libraries: dict[str, Path]
    outputs: dict[str, str]


def build_all(folder):
    tool = local_tool(stand_ins(folder / "stand-ins"))
    assert precompile(tool, folder) is not None
    for step in steps(REQUEST, ARCHITECTURE, folder).steps:
        attempt = step.build(tool, 600.0)
        assert attempt.library is not None, f"{step.name}: {attempt.why}\n{attempt.result.output}"
        (folder / step.name).mkdir()
        (folder / step.name / "three_ways.so").write_bytes(attempt.library)
        (folder / step.name / "output").write_text(attempt.result.output)


@pytest.fixture(scope="module")
def all_built():
    """Four minutes of CPU: once for all processes of a run."""
    folder = once.made_once("three-ways", build_all)
    outputs = {path.parent.name: path.read_text() for path in folder.glob("*/output")}
    return Built({name: folder / name / "three_ways.so" for name in outputs}, outputs)


@pytest.fixture
def built(all_built):
    return all_built.libraries


def sections(elf):
    table, size, count, names_at = *struct.unpack_from("<Q", elf, 0x28), *struct.unpack_from("<HHH", elf, 0x3A)
    heads = [struct.unpack_from("<IIQQQQIIQQ", elf, table + index * size) for index in range(count)]
    names = elf[heads[names_at][4] :]
    no_bits = 8
    return {
        names[head[0] : names.index(b"\0", head[0])].decode(): elf[head[4] : head[4] + head[5]]
        for head in heads
        if head[1] != no_bits
    }


def device_code(path):
    """Give the machine code, the parameters' and shared memory's layout of each kernel, and the `__constant__` data.

    Other banks hold what variables in PyTorch's headers bring along, which no kernel here uses.
    """
    fat = sections(path.read_bytes())[".nv_fatbin"]
    start = fat.index(b"\x7fELF")
    found = sections(fat[start:])
    kinds = (".text.", ".nv.constant0.", ".nv.constant3", ".nv.shared.")
    return {name: content for name, content in found.items() if name.startswith(kinds)}


def test_every_step_gives_the_same_machine_code(built):
    assert set(built) == {"split", "light", "plain"}
    plain = device_code(built["plain"])
    assert sum(name.startswith(".text.") for name in plain) == 3
    assert ".nv.constant3" in plain
    assert device_code(built["light"]) == plain
    assert device_code(built["split"]) == plain


def test_every_step_lets_ptxas_be_heard(all_built):
    for name, output in all_built.outputs.items():
        found = {each.name: each for each in kernel_resources(output)}
        assert found["plain_kernel"].shared_bytes == 1024, name
        assert found["plain_kernel"].registers > 0


def test_the_functions_are_to_python_what_pybind11_makes_them(built):
    answers = {}
    for name, library in built.items():
        folders = [str(built["split"].parents[1] / "stand-ins"), str(nvcc.cuda_home() / "lib64")]
        environment = os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(folders)}
        said = subprocess.run(
            [sys.executable, "-c", CALLS, library], env=environment, capture_output=True, text=True, check=False
        )
        lines = [line for line in said.stdout.splitlines() if line.startswith("answer:")]
        assert len(lines) == 12, said.stderr
        answers[name] = [json.loads(line.partition(" ")[2]) for line in lines]
    assert answers["light"] == answers["plain"]
    assert answers["split"] == answers["plain"]


def test_nvcc_compiles_a_folder_with_the_headers_of_each_file(tmp_path):
    """Both kernels have the same file name, and a header of the same name beside the file. One name is the longest."""
    texts = {path: text for path, text in HALVES.items() if path.startswith(("csrc/", "include/"))}
    first = texts.pop("csrc/first/kernel.cu").replace('"place', '"csrc/first/place').replace("../", "")
    texts["x" * 97 + ".cu"] = first
    files = [SourceFile(path, text) for path, text in texts.items()]
    request = BuildRequest(
        name="halves",
        files=[file for file in files if file.name.endswith((".cu", ".cpp"))],
        headers=[file for file in files if file.name.endswith(".cuh")],
        with_cuda=True,
    )
    tool = local_tool(stand_ins(tmp_path / "stand-ins"))
    ways = {step.name: step for step in steps(request, ARCHITECTURE, tmp_path).steps}
    assert set(ways) == {"light", "plain"}
    if os.environ.get("WARPGRADE_CORPUS") != "all":  # PyTorch's own way takes two minutes for two files.
        del ways["plain"]
    for name, step in ways.items():
        attempt = step.build(tool, 600.0)
        assert attempt.library is not None, f"{name}: {attempt.result.output}"
        assert b"first_kernel" in attempt.library
        assert b"second_kernel" in attempt.library
