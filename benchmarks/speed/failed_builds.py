"""CPU time of emulated builds of frequent mistakes, beside the correct builds, and what each mistake is told.

    python -m benchmarks.speed.failed_builds [--kernels FOLDER] [--only NAME ...] [--json FILE]

Each slip is one edit of a correct extension. `--kernels` names a folder of published kernels (`*.py`), none of which
is kept here: each is built as it is, and with one semicolon missing. The shared headers are built before the first
row. Compilers run without a sandbox. CPU time depends little on other work; the load of the machine is printed.
"""

import argparse
import json
import os
import re
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.binding_errors import explained
from evaluator.compile.emulated_builder import EmulatedBuilder
from evaluator.emulator.frontend.front_end import front_end
from evaluator.paths import cache_folder
from evaluator.protocol.frames import BuildRequest
from tests.cuda_builds import local_tool, requests_of

TIMEOUT_S = 600.0
CPP = "torch::Tensor run(torch::Tensor a, torch::Tensor b);"
CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cuda_fp16.h>

#define TILE 16

// C = A B, by tiles.
template <typename T>
__device__ T load(const T* x, int row, int col, int rows, int cols) {
    return row < rows && col < cols ? x[row * cols + col] : T(0);
}

__global__ void product(const float* a, const float* b, float* c, int n, int k, int m) {
    __shared__ float left[TILE][TILE];
    __shared__ float right[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int col = blockIdx.x * TILE + threadIdx.x;
    float acc = 0.0f;
    for (int t = 0; t < (k + TILE - 1) / TILE; ++t) {
        left[threadIdx.y][threadIdx.x] = load(a, row, t * TILE + threadIdx.x, n, k);
        right[threadIdx.y][threadIdx.x] = load(b, t * TILE + threadIdx.y, col, k, m);
        __syncthreads();
        for (int i = 0; i < TILE; ++i) acc += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    if (row < n && col < m) c[row * m + col] = fmaxf(acc, 0.0f) * __half2float(__float2half(1.0f));
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.is_cuda() && b.is_cuda(), "expected tensors on the GPU");
    auto c = torch::empty({a.size(0), b.size(1)}, a.options());
    dim3 block(TILE, TILE);
    dim3 grid((b.size(1) + TILE - 1) / TILE, (a.size(0) + TILE - 1) / TILE);
    product<<<grid, block, 0, at::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), a.size(0), a.size(1), b.size(1));
    return c;
}
"""
SLIPS = {
    "no semicolon in the kernel": ("float acc = 0.0f;", "float acc = 0.0f"),
    "no semicolon in the host code": ("a.options());", "a.options())"),
    "no semicolon before the launch": ("/ TILE);\n    product", "/ TILE)\n    product"),
    "no semicolon after the launch": ("b.size(1));\n    return c", "b.size(1))\n    return c"),
    "undeclared scale": ("acc += left", "acc += scale * left"),
    "misspelt local": ("fmaxf(acc,", "fmaxf(accum,"),
    "misspelt row": ("if (row < n", "if (rows < n"),
    "misspelt barrier": ("__syncthreads();\n        for", "__syncthread();\n        for"),
    "removed intrinsic": ("fmaxf(acc,", "fmaxf(__shfl_down(acc, 1),"),
    "invented call": ("    return c;", "    cudaSynchronize();\n    return c;"),
    "invented function": ("c[row * m + col] = fmaxf", "atomicAddFloat(c, 1); c[row * m + col] = fmaxf"),
    "misspelt index": ("blockIdx.y * TILE", "blockIDx.y * TILE"),
    "misspelt intrinsic": ("__half2float(", "__half2flot("),
    "misspelt tensor method": ("a.options()", "a.option()"),
    "misspelt torch function": ("torch::empty(", "torch::emtpy("),
    "misspelt member of at::cuda": ("getCurrentCUDAStream", "getCurentCUDAStream"),
    "misspelt header": ("CUDAContext.h", "CUDAContex.h"),
    "misspelt local header": ("<cuda_fp16.h>", "<cuda_fp61.h>"),
    "half without its header": ("#include <cuda_fp16.h>\n", ""),
    "stream without its header": ("#include <ATen/cuda/CUDAContext.h>\n", ""),
    "no closing brace of the loop": ("        __syncthreads();\n    }\n", "        __syncthreads();\n"),
    "no closing brace of the kernel": ("(1.0f));\n}\n", "(1.0f));\n"),
    "no closing parenthesis": ("dim3 block(TILE, TILE);", "dim3 block(TILE, TILE;"),
    "no closing parenthesis of the launch": ("a.size(1), b.size(1));\n    return", "a.size(1), b.size(1);\n    return"),
    "extent that is no constant": ("float left[TILE][TILE]", "float left[n][TILE]"),
    "redeclared local": ("float acc = 0.0f;", "float acc = 0.0f; float acc = 1.0f;"),
    "assigned const": ("acc += left", "a[0] = acc; acc += left"),
    "wrong type": ("int row = blockIdx.y", "int* row = blockIdx.y"),
    "too few arguments of a function": ("n, k);\n        right", "n);\n        right"),
    "too few arguments of the kernel": ("a.size(0), a.size(1), b.size(1));\n    return", "a.size(0));\n    return"),
    "wrong argument of the kernel": ("c.data_ptr<float>(), a", "c, a"),
    "line break in a string": ('"expected tensors', '"expected\ntensors'),
    "comment without an end": ("// C = A B", "/* C = A B"),
    "second module": ("    return c;\n}\n", "    return c;\n}\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n"),
}
CPP_SLIPS = {
    "bound function without a declaration": "",
    "declaration without a semicolon": CPP[:-1],
    "bound function without a definition": CPP + " torch::Tensor other(torch::Tensor a);",
}


class Row(NamedTuple):
    """One build: CPU seconds, and the message, empty for a success."""

    name: str
    seconds: float
    code: str
    message: str


def request_of(cpp: str, cuda: str) -> BuildRequest:
    """Return the request of `load_inline` for one bound function."""
    return BuildRequest(name="ext", cpp_sources=[cpp], cuda_sources=[cuda], functions={"run": "run"}, with_cuda=True)


def slips() -> Iterator[tuple[str, BuildRequest]]:
    """Yield the correct extension, and each mistake."""
    yield "correct", request_of(CPP, CUDA)
    for name, (old, new) in SLIPS.items():
        if CUDA.count(old) < 1:
            raise ValueError(f"{name}: the text of the edit is missing")
        yield name, request_of(CPP, CUDA.replace(old, new, 1))
    for name, cpp in CPP_SLIPS.items():
        other = {"other": "other"} if "definition" in name else {"run": "run"}
        cuda = CUDA if "definition" not in name else CUDA.replace("torch::Tensor run(", "torch::Tensor rum(")
        yield name, replace(request_of(cpp, cuda), functions=other)


def published(folder: Path) -> Iterator[tuple[str, BuildRequest]]:
    """Yield each kernel as it is, and without the semicolon nearest to the middle of its CUDA."""
    for path in sorted(folder.glob("*.py")):
        with tempfile.TemporaryDirectory() as own:
            requests = requests_of(path, Path(own))[1]
        for request in requests[:1]:
            text = "\n".join(request.cuda_sources)
            ends = [match.start() for match in re.finditer(r"(?<=[\w)\]]);$", text, re.MULTILINE)]
            if not ends:
                continue
            at = min(ends, key=lambda place: abs(place - len(text) // 2))
            yield f"{path.stem}: correct", request
            yield f"{path.stem}: no semicolon", replace(request, cuda_sources=[text[:at] + text[at + 1 :]])


def measured(name: str, request: BuildRequest) -> Row:
    """Build once with an empty cache of submissions, and the cached parts of the emulator."""
    with tempfile.TemporaryDirectory() as own:
        builds, text = BuildCache(Path(own)), "\n".join([*request.cpp_sources, *request.cuda_sources])
        (Path(own) / "parts").symlink_to(cache_folder() / "parts")
        builder = EmulatedBuilder(local_tool({}), builds, text, TIMEOUT_S, front_end)
        before = sum(os.times()[:4])
        built = builder.build(request)
        seconds = sum(os.times()[:4]) - before
    if built.finding is None:
        return Row(name, seconds, "", "")
    why = explained(built.finding, request, built.unit.diagnostics, text)
    place = "" if why.line is None else f"line {why.line}: "
    return Row(name, seconds, why.code, f"{place}{why.message.splitlines()[0][:150]}")


def summary(title: str, rows: list[Row]) -> str:
    """Return median and maximum of some builds, in CPU seconds."""
    seconds = [row.seconds for row in rows]
    return f"{title}: {len(rows)}, median {statistics.median(seconds):.1f} s, worst {max(seconds):.1f} s"


def main() -> None:
    """Print a line for each build, and the summaries."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=Path, help="folder with published kernels")
    parser.add_argument("--only", nargs="+", help="parts of the names to build")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    wanted = [*slips(), *([] if options.kernels is None else published(options.kernels))]
    if options.only:
        wanted = [each for each in wanted if any(part in each[0] for part in options.only)]
    (cache_folder() / "parts").mkdir(parents=True, exist_ok=True)
    for warm in (request_of(CPP, CUDA), request_of(CPP, CUDA.replace("acc += left", "acc += scale_ * left"))):
        measured("headers", warm)
    rows = []
    for name, request in wanted:
        rows.append(measured(name, request))
        row = rows[-1]
        print(
            f"{row.seconds:6.1f} s  {row.name:40} {row.code} {row.message}  [load {os.getloadavg()[0]:.1f}]", flush=True
        )
    right = [row for row in rows if not row.code]
    wrong = [row for row in rows if row.code]
    for title, some in (("built", right), ("failed", wrong)):
        if some:
            print(summary(title, some))
    if options.json is not None:
        options.json.write_text(json.dumps([row._asdict() for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
