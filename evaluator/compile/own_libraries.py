"""Build of Warpgrade's native code, in the sandbox, once per torch and compiler."""

import hashlib
from pathlib import Path

import msgspec

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.extension.builder import LIMITS, RunTool, read_library, work_folder
from evaluator.errors import JudgeFailed, ToolchainMissing
from evaluator.toolchain import host_compiler, nvcc

_ALLOCATOR = Path(__file__).parent.parent / "runner" / "native" / "arena.cpp"
_DEVICE_ALLOCATOR = _ALLOCATOR.with_name("device_arena.cpp")
_KERNELS = sorted((Path(__file__).parent.parent / "judge" / "native").glob("*.cu"))
_TIMEOUT_S = 120.0


def build_allocator(run_tool: RunTool, cache: BuildCache) -> bytes | None:
    """Return the library of device `cpu`: the allocator. None without a compiler: outputs are copied then."""
    try:
        return _build([_ALLOCATOR], ["-O2"], [], run_tool, cache)
    except ToolchainMissing:
        return None


def build_device_allocator(run_tool: RunTool, cache: BuildCache) -> bytes:
    """Return the library of the GPU allocator, which allocates in the judge's memory."""
    library = _build([_DEVICE_ALLOCATOR], ["-O2"], [], run_tool, cache)
    if library is None:
        raise JudgeFailed("the GPU's allocator does not compile with this compiler", hint="see `warpgrade doctor`")
    return library


def build_kernels(run_tool: RunTool, cache: BuildCache, architecture: str) -> bytes:
    """Return the judge's kernels, as a cubin for one architecture ("90a")."""
    flags = ["-cubin", f"-gencode=arch=compute_{architecture},code=sm_{architecture}", "-O3", "-std=c++17"]
    compiler = nvcc.nvcc()
    key = _key([compiler.version, flags, [path.read_text(encoding="utf-8") for path in _KERNELS]])
    argv = [compiler.path, "judge.cu", *flags, "-o", "native.so"]
    library = _get_or_build(key, _KERNELS, argv, run_tool, cache)
    if library is None:
        raise JudgeFailed("nvcc does not compile the judge's own kernels", hint="see `warpgrade doctor`")
    return library


def _build(
    sources: list[Path], flags: list[str], headers: list[Path], run_tool: RunTool, cache: BuildCache
) -> bytes | None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources}
    deps = [texts, [path.read_text(encoding="utf-8") for path in headers], sorted(host_compiler.fingerprint().items())]
    key = _key([*deps, flags, host_compiler.native_flags()])
    names = [name for name in texts if name.endswith(".cpp")]
    argv = [host_compiler.cxx().path, *names, *flags, *host_compiler.native_flags(), "-o", "native.so"]
    return _get_or_build(key, sources, argv, run_tool, cache)


def _key(inputs: list[object]) -> str:
    return hashlib.sha256(msgspec.json.encode(inputs)).hexdigest()


def _get_or_build(key: str, sources: list[Path], argv: list[str], run_tool: RunTool, cache: BuildCache) -> bytes | None:
    """Look up a native library, or compile `native.so`; None if the compiler rejects the sources."""
    if (entry := cache.get(key)) is not None:
        return entry.library
    with work_folder() as work:
        for path in sources:
            (work / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        result = run_tool(argv, work=work, limits=LIMITS, timeout_s=_TIMEOUT_S)
        library = read_library(work / "native.so") if result.ok else None
    if library is not None:
        cache.put(key, library, log=result.output, wall_s=result.wall_s)
    return library
