"""Our own native code: the runner's allocator. Built in the sandbox, once for each torch and compiler."""

import hashlib
from pathlib import Path

import msgspec

from evaluator.build import toolchain
from evaluator.build.builder import LIMITS, RunTool, read_library, work_folder
from evaluator.build.cache import BuildCache
from evaluator.errors import ToolchainMissing

_SOURCE = Path(__file__).parent.parent / "runner" / "native" / "arena.cpp"
_TIMEOUT_S = 120.0


def build_allocator(run_tool: RunTool, cache: BuildCache) -> bytes | None:
    """Give the allocator's library; None where there is no compiler, and outputs are copied instead."""
    text = _SOURCE.read_text(encoding="utf-8")
    try:
        parts = [text, sorted(toolchain.fingerprint().items()), toolchain.native_flags()]
    except ToolchainMissing:
        return None
    key = hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
    if (entry := cache.get(key)) is not None:
        return entry.library
    with work_folder() as work:
        (work / _SOURCE.name).write_text(text, encoding="utf-8")
        argv = [toolchain.cxx().path, _SOURCE.name, *toolchain.native_flags(), "-o", "arena.so"]
        result = run_tool(argv, work=work, limits=LIMITS, timeout_s=_TIMEOUT_S)
        library = read_library(work / "arena.so") if result.ok else None
    if library is not None:
        cache.put(key, library, log=result.output, wall_s=result.wall_s)
    return library
