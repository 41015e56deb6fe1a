"""Small CUDA submissions of our own, made from a list: eight problems, eight ways to answer each."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from evaluator.records import Status


class Function(NamedTuple):
    """A function of one element: in PyTorch, and in CUDA of `v`."""

    name: str
    torch: str
    cuda: str


class Made(NamedTuple):
    """A submission and what must come of it."""

    problem: str
    name: str
    source: str
    expected: Status


FUNCTIONS = [
    Function("relu", "torch.relu(x)", "v > 0.0f ? v : 0.0f"),
    Function("sigmoid", "torch.sigmoid(x)", "1.0f / (1.0f + expf(-v))"),
    Function("silu", "nn.functional.silu(x)", "v / (1.0f + expf(-v))"),
    Function("hardtanh", "nn.functional.hardtanh(x)", "fminf(fmaxf(v, -1.0f), 1.0f)"),
    Function("leaky_relu", "nn.functional.leaky_relu(x, 0.01)", "v > 0.0f ? v : 0.01f * v"),
    Function("softplus", "nn.functional.softplus(x)", "v > 20.0f ? v : log1pf(expf(v))"),
    Function("tanh", "torch.tanh(x)", "tanhf(v)"),
    Function("polynomial", "x * x + x", "v * v + v"),
]

_REFERENCE = '''"""{name} of every element."""

import torch
from torch import nn

rows = 8192
columns = 8192


class Model(nn.Module):
    """Computes {name}."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return {torch}


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
'''
_TOML = """title = "{name}"
level = 1
description = "{name} of every element: nothing but memory traffic."
split = {{ x = 0 }}

[sizes.full]
rows = 8192
columns = 8192

[sizes.small]
rows = 64
columns = 1024

[sizes.awkward]
rows = 7
columns = 1023
"""
_SUBMISSION = '''import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__device__ __forceinline__ float f(float v) {{ return {f}; }}

__global__ void {name}_kernel(const float* __restrict__ in, float* __restrict__ out, long n) {{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
{body}
}}

torch::Tensor {name}(torch::Tensor x) {{
    auto out = torch::empty_like(x);
    long n = x.numel();
    long blocks = {blocks};
    {name}_kernel<<<(unsigned)blocks, {threads}, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}}
"""

extension = load_inline(
    name="{name}",
    cpp_sources="torch::Tensor {name}(torch::Tensor x);",
    cuda_sources="#include <ATen/cuda/CUDAContext.h>\\n" + SOURCE,
    functions=["{name}"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        {forward}
'''
_EACH = "(n + {threads} - 1) / {threads}"
_VECTORS = """    if (4 * i + 3 < n) {
        float4 v = reinterpret_cast<const float4*>(in)[i];
        reinterpret_cast<float4*>(out)[i] = make_float4(f(v.x), f(v.y), f(v.z), f(v.w));
    } else {
        for (long k = 4 * i; k < n; k++) out[k] = f(in[k]);
    }"""
_STRIDE = "    for (; i < n; i += (long)gridDim.x * blockDim.x) out[i] = f(in[i]);"
_PAIRS = """    long half = (n + 1) / 2;
    if (i < half) out[i] = f(in[i]);
    if (i < half && i + half < n) out[i + half] = f(in[i + half]);"""


class _Way(NamedTuple):
    name: str
    body: str
    expected: Status
    blocks: str = _EACH
    threads: int = 256
    forward: str = "return extension.{name}(x)"


_WAYS = [
    _Way("plain", "    if (i < n) out[i] = f(in[i]);", Status.CORRECT),
    _Way("vectors", _VECTORS, Status.CORRECT, blocks="(n / 4 + {threads}) / {threads}"),
    _Way("stride", _STRIDE, Status.CORRECT, blocks="4096", threads=512),
    _Way("off", "    if (i < n) out[i] = f(in[i]) + 0.01f;", Status.WRONG_RESULT),
    _Way("gaps", "    if (i < n && i % 1000 != 999) out[i] = f(in[i]);", Status.WRONG_RESULT),
    _Way("undeclared", "    if (i < n) out[i] = g(in[i]);", Status.BUILD_ERROR),
    _Way("wild", "    if (i < n) out[i] = reinterpret_cast<const float*>(16)[i];", Status.RUNTIME_ERROR),
]
_PAIRWISE = _Way("pairs", _PAIRS, Status.CORRECT, threads=128)
_LAST = {
    "relu": _Way(
        "endless_kernel", "    while (*(volatile const float*)in < 1e30f) {}\n    out[i] = 0;", Status.TIMEOUT
    ),
    "tanh": _Way(
        "endless_forward", "    if (i < n) out[i] = f(in[i]);", Status.TIMEOUT, forward="while True:\n            pass"
    ),
}
"""The eighth way to answer: two problems have one that never ends."""


def problems(folder: Path) -> None:
    """Write the problems into `folder`."""
    for function in FUNCTIONS:
        place = folder / function.name
        place.mkdir(parents=True)
        (place / "reference.py").write_text(_REFERENCE.format(name=function.name, torch=function.torch))
        (place / "problem.toml").write_text(_TOML.format(name=function.name))


def submissions() -> Iterator[Made]:
    """Make all of them: the ways of one problem after those of another."""
    for function in FUNCTIONS:
        for way in [*_WAYS, _LAST.get(function.name, _PAIRWISE)]:
            name = f"{function.name}_{way.name}"
            source = _SUBMISSION.format(
                name=name,
                f=function.cuda,
                body=way.body,
                blocks=way.blocks.format(threads=way.threads),
                threads=way.threads,
                forward=way.forward.format(name=name),
            )
            yield Made(function.name, way.name, source, way.expected)
