"""How much slower the emulator runs a kernel than plain C++ runs the same loop, compiled with the same flags.

    python -m benchmarks.emulator.emulator_speed [--elements 1048576] [--matmul-size 256] [--json FILE]

One thread, CPU time, the fastest of seven. The ratio of a kernel that waits is about its barriers: each of them is one
switch of stacks per thread, however little happens between two of them.
"""

import argparse
import ctypes
import json
import os
import subprocess
import tempfile
from pathlib import Path

from evaluator.emulator import headers
from evaluator.toolchain import host_compiler

# As in evaluator/emulator/frontend/build_ladder.py.
_KERNEL_FLAGS = ["-O1", "-g1", "-w", "-fstack-clash-protection", "-fno-strict-aliasing", "-ffp-contract=off"]
_NAMES = ("relu", "gelu", "tiled matmul", "block reduction", "warp reduction")
_BARRIERS_PER_THREAD = {"block reduction": 9, "warp reduction": 5}


def build(folder: Path) -> ctypes.CDLL:
    """Compile the headers, but for its PyTorch allocator, and the kernels; load both."""
    stand_in = folder / "no_torch.cpp"
    stand_in.write_text("namespace emu { void install_torch_allocator() {} }\n")
    sources = [path for path in headers.runtime_sources() if path.suffix == ".cpp" and "torch" not in path.name]
    emulator, kernels = folder / "libemulator.so", folder / "kernels.so"
    compiler = [host_compiler.cxx().path, "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden"]
    own = [str(path) for path in [*sources, stand_in]]
    subprocess.run([*compiler, *own, *headers.runtime_flags(), "-o", str(emulator)], check=True)
    source = str(Path(__file__).with_suffix(".cpp"))
    flags = [*_KERNEL_FLAGS, f"-isystem{headers.INCLUDE}"]
    subprocess.run([*compiler, source, *flags, "-o", str(kernels)], check=True)
    ctypes.CDLL(str(emulator), mode=os.RTLD_GLOBAL | os.RTLD_NOW)
    return ctypes.CDLL(str(kernels))


def measure(library: ctypes.CDLL, elements: int, matmul_size: int) -> list[dict[str, float | str]]:
    """Give a row for each kernel: milliseconds emulated and plain, and how many times slower."""
    times = (ctypes.c_double * (2 * len(_NAMES)))()
    library.measure(elements, matmul_size, times)
    rows: list[dict[str, float | str]] = []
    for index, name in enumerate(_NAMES):
        emulated_ms, plain_ms = times[2 * index], times[2 * index + 1]
        row: dict[str, float | str] = {
            "kernel": name,
            "emulated_ms": round(emulated_ms, 3),
            "plain_ms": round(plain_ms, 3),
            "ratio": round(emulated_ms / plain_ms, 1),
        }
        if name in _BARRIERS_PER_THREAD:
            row["ns_per_wait"] = round(1e6 * emulated_ms / elements / _BARRIERS_PER_THREAD[name], 1)
        rows.append(row)
    return rows


def main() -> None:
    """Print the table, and write it as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=1 << 20, help="of the elementwise kernels and reductions")
    parser.add_argument("--matmul-size", type=int, default=256)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(build(Path(folder)), options.elements // 256 * 256, options.matmul_size // 16 * 16)
    print(f"{'kernel':<16} {'emulated ms':>12} {'plain ms':>10} {'times slower':>13} {'ns per wait':>12}")
    for row in rows:
        wait = row.get("ns_per_wait", "")
        print(f"{row['kernel']:<16} {row['emulated_ms']:>12} {row['plain_ms']:>10} {row['ratio']:>13} {wait:>12}")
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
