"""Kernels compiled by Triton in this process, and their transfer to the next runner of the same submission.

Triton compiles in the runner, in the first checked call: under the runner's limits, in the runner's sandbox, under the
time limit of a first call, and before anything is timed. A submission can write anything into the compiler's cache. The
cache is therefore private to a runner, and only runners of the same submission in the same grade receive the content.
A submission can change the own kernels alone, as in any call, and no kernel of another submission or grade. No compiled
kernel is stored on disk, so every grade of a text compiles once. The alternative, a shared store of kernels, would
require a judge that compiles Triton's intermediate form in a separate sandbox.

The cache also holds the autotuner's choice (`TRITON_CACHE_AUTOTUNING`): the checked configuration is the timed one.
"""

import gc
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from evaluator.protocol.frames import CompiledKernel, CompiledKernels
from evaluator.protocol.frames.bounds import MOST_CACHE_BYTES
from evaluator.protocol.triton_variables import names_variables

_FOLDER = "triton-cache"
_EXTENSIONS = "triton._C"
_GROUP = "__grp__"
_MOST_RAW_BYTES = 64 << 20
_MOST_KERNELS, _MOST_NAME, _MOST = 64, 1024, 1 << 31
_BYTES_PER_SPILL = 4
"""Triton's `n_spills` is a kernel's local memory per thread, divided by 4."""


class _Packed(msgspec.Struct):
    """Files of a cache by relative path; the groups among them name absolute paths below `root`."""

    root: str
    files: dict[str, bytes]


def forget_import(source: str) -> None:
    """Let a submission that names Triton's variables import Triton anew: the fork server may have imported Triton.

    Triton's extension modules stay loaded.
    """
    if names_variables(source):
        for name in [name for name in sys.modules if name.partition(".")[0] == "triton" and _EXTENSIONS not in name]:
            del sys.modules[name]


def use_folder(private: Path, cache: bytes) -> None:
    """Give Triton a cache folder in the runner's private folder, with the content packed by an earlier runner."""
    folder = private / _FOLDER
    os.environ["TRITON_CACHE_DIR"] = str(folder)
    os.environ["TRITON_HOME"] = str(private)  # In the fork server, Triton took the home folder from there.
    os.environ["TRITON_CACHE_AUTOTUNING"] = "1"
    if (driver := _driver_folder()) is not None:
        os.environ.setdefault("TRITON_LIBCUDA_PATH", driver)
    if not cache:
        return
    packed = msgspec.msgpack.decode(zlib.decompress(cache), type=_Packed)
    for name, content in packed.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # A group lists members by absolute path, and the folder has changed.
        group = path.name.startswith(_GROUP)
        path.write_bytes(content.replace(packed.root.encode(), str(folder).encode()) if group else content)


def _driver_folder() -> str | None:
    """Return the folder of the CUDA driver in this process. ldconfig, which Triton asks, may not list the folder."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    return next((str(Path(line.split()[-1]).parent) for line in maps.splitlines() if "/libcuda.so" in line), None)


def compiled_kernels(private: Path) -> CompiledKernels:
    """Return the kernels of this process, most registers first, and the content of its cache folder."""
    kernels = sorted(_loaded(), key=lambda kernel: (-kernel.registers, kernel.name))
    return CompiledKernels(cache=_packed(private / _FOLDER), kernels=kernels[:_MOST_KERNELS])


def _packed(folder: Path) -> bytes:
    """Return the files of a cache folder, compressed; nothing if there are too many bytes."""
    files: dict[str, bytes] = {}
    left_bytes = _MOST_RAW_BYTES
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            left_bytes -= path.stat().st_size
            if left_bytes < 0:
                return b""
            files[str(path.relative_to(folder))] = path.read_bytes()
    packed = zlib.compress(msgspec.msgpack.encode(_Packed(str(folder), files)), level=1) if files else b""
    return packed if len(packed) <= MOST_CACHE_BYTES else b""


def _loaded() -> Iterator[CompiledKernel]:
    """Yield the kernels that Triton has loaded onto the GPU."""
    kind = getattr(sys.modules.get("triton.compiler.compiler"), "CompiledKernel", None)
    kernels: list[Any] = [] if kind is None else [value for value in gc.get_objects() if type(value) is kind]
    for kernel in kernels:
        registers, spills = getattr(kernel, "n_regs", None), getattr(kernel, "n_spills", None)
        shared = getattr(getattr(kernel, "metadata", None), "shared", None)
        if isinstance(registers, int) and isinstance(spills, int) and isinstance(shared, int):
            yield CompiledKernel(
                name=str(kernel.name)[:_MOST_NAME],
                registers=_bounded(registers),
                local_bytes=_bounded(spills * _BYTES_PER_SPILL),
                shared_bytes=_bounded(shared),
            )


def _bounded(number: int) -> int:
    return min(max(number, 0), _MOST)
