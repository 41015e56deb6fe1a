"""Disassembly of a submission's library by cuobjdump, in the compilers' sandbox.

cuobjdump parses bytes that a submission influenced. Its output goes to a file of limited size, and is untrusted text.
"""

import hashlib
import inspect
import os
import sys
from pathlib import Path

import msgspec
from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.binaries.sass import machine_code
from evaluator.compile.extension.builder import LIMITS, RunTool, read_library, work_folder
from evaluator.cuda_source.kernel_names import kernels_in_library
from evaluator.records import MachineCode
from evaluator.sandbox import ToolResult
from evaluator.toolchain.host_compiler import Toolchain
from evaluator.toolchain.nvcc import cuobjdump

_LIBRARY, _LISTING = "library.so", "listing.sass"
_MOST_LISTING_BYTES = 64 << 20
"""400,000 instructions. A usual extension has a few thousand."""
_LIMITS = replace(LIMITS, memory_bytes=4 << 30, file_bytes=_MOST_LISTING_BYTES, work_bytes=256 << 20, processes=16)


def read_machine_code(library: bytes, run_tool: RunTool, cache: BuildCache, timeout_s: float) -> MachineCode:
    """Return the machine code of a built library, from `cache` if known. An unknown machine code has its reason."""
    if not kernels_in_library(library).device_code:
        return MachineCode()
    tool = cuobjdump()
    if tool is None:
        return MachineCode(not_looked_at="cuobjdump not found beside nvcc")
    store, key = cache.machine_code, _key(library, tool)
    if (entry := store.get(key)) is not None:
        try:
            return msgspec.json.decode(entry.library, type=MachineCode)
        except msgspec.DecodeError:
            store.discard(key)
    code, wall_s = _disassembled(library, tool, run_tool, timeout_s)
    if code.not_looked_at is None:
        store.put(key, msgspec.json.encode(code), log="", wall_s=wall_s)
    return code


def _disassembled(library: bytes, tool: Toolchain, run_tool: RunTool, timeout_s: float) -> tuple[MachineCode, float]:
    """Return the machine code, and the duration of the disassembly."""
    with work_folder() as work:
        (work / _LIBRARY).write_bytes(library)
        # cuobjdump has no option for an output file, and the sandbox keeps little of what a program prints.
        argv = ["/bin/sh", "-c", f'exec "$0" -sass {_LIBRARY} >{_LISTING}', tool.path]
        result = run_tool(argv, work=work, limits=_LIMITS, timeout_s=timeout_s)
        listing = read_library(work / _LISTING, _MOST_LISTING_BYTES)
        reason = _why_not(result, work / _LISTING)
    if reason is not None:
        return MachineCode(not_looked_at=reason), result.wall_s
    code = machine_code((listing or b"").decode(errors="replace"))
    if code == MachineCode():
        code = MachineCode(not_looked_at="cuobjdump shows no kernel of a library with device code")
    return code, result.wall_s


def _why_not(result: ToolResult, listing: Path) -> str | None:
    """Return why a disassembly is incomplete."""
    if result.ok:
        return None
    if result.timed_out:
        return "cuobjdump was stopped at its time limit"
    if os.path.lexists(listing) and listing.lstat().st_size >= _MOST_LISTING_BYTES:
        return f"the disassembly exceeds {_MOST_LISTING_BYTES >> 20} MiB"
    last_line = (result.output.strip().splitlines() or [f"ended with {result.signal or result.exit_code}"])[-1]
    return f"cuobjdump failed: {last_line[:200]}"


def _key(library: bytes, tool: Toolchain) -> str:
    """Hash everything that determines the record: the library, the disassembler, the parser, the record's fields."""
    parser = inspect.getsource(sys.modules[machine_code.__module__])
    parts = [hashlib.sha256(library).hexdigest(), tool, msgspec.json.schema(MachineCode), parser]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
