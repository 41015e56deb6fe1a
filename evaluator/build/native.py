"""Our own native code: the runner's allocator. Built in the sandbox, once for each torch and compiler."""

import hashlib
from pathlib import Path

import msgspec

from evaluator.build import toolchain
from evaluator.build.builder import LIMITS, RunTool, read_library, work_folder
from evaluator.build.cache import BuildCache
from evaluator.emulator import runtime
from evaluator.errors import JudgeFailed, ToolchainMissing

_ALLOCATOR = Path(__file__).parent.parent / "runner" / "native" / "arena.cpp"
_TIMEOUT_S = 120.0


def build_allocator(run_tool: RunTool, cache: BuildCache) -> bytes | None:
    """Give the allocator's library; None where there is no compiler, and outputs are copied instead."""
    try:
        return _build([_ALLOCATOR], ["-O2"], [], run_tool, cache)
    except ToolchainMissing:
        return None


def build_emulator(run_tool: RunTool, cache: BuildCache) -> bytes:
    """Give the emulator's runtime. Raises ToolchainMissing where there is no compiler: nothing works without it."""
    library = _build(runtime.runtime_sources(), runtime.runtime_flags(), runtime.header_files(), run_tool, cache)
    if library is None:
        raise JudgeFailed("the emulator's runtime does not compile with this compiler", hint="see `warpgrade doctor`")
    return library


def _build(
    sources: list[Path], flags: list[str], headers: list[Path], run_tool: RunTool, cache: BuildCache
) -> bytes | None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources}
    parts = [texts, [path.read_text(encoding="utf-8") for path in headers], sorted(toolchain.fingerprint().items())]
    key = hashlib.sha256(msgspec.json.encode([*parts, flags, toolchain.native_flags()])).hexdigest()
    if (entry := cache.get(key)) is not None:
        return entry.library
    with work_folder() as work:
        for name, text in texts.items():
            (work / name).write_text(text, encoding="utf-8")
        names = [name for name in texts if name.endswith(".cpp")]
        argv = [toolchain.cxx().path, *names, *flags, *toolchain.native_flags(), "-o", "native.so"]
        result = run_tool(argv, work=work, limits=LIMITS, timeout_s=_TIMEOUT_S)
        library = read_library(work / "native.so") if result.ok else None
    if library is not None:
        cache.put(key, library, log=result.output, wall_s=result.wall_s)
    return library
