"""Libraries of Warpgrade's own: allocators, the judge's kernels, the emulator's runtime and headers.

Built in the sandbox, once per combination of torch, compiler and emulator. The first use builds the parts of the
first build step in parallel. The headers of a later step are built when a submission first reaches the step. Other
processes that need a part wait for the process that builds parts.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from evaluator.cache.build_cache import LIBRARY, BuildCache
from evaluator.compile.builder import LIMITS, RunTool, read_library, work_folder
from evaluator.emulator import headers
from evaluator.emulator.frontend.build_ladder import FULL_FOLDER, SUPPORT, UNIT, StepName, build_steps
from evaluator.emulator.frontend.front_end import front_end
from evaluator.errors import JudgeFailed, ToolchainMissing
from evaluator.protocol.frames import BuildRequest
from evaluator.toolchain import host_compiler, nvcc
from evaluator.toolchain.light_headers import (
    BINDING_HEADER,
    BINDING_SUPPORT,
    BOUND_FOLDER,
    LIGHT_FOLDER,
    light_headers_for,
)

_ALLOCATOR = Path(__file__).parent.parent / "runner" / "native" / "arena.cpp"
_DEVICE_ALLOCATOR = _ALLOCATOR.with_name("device_arena.cpp")
_KERNELS = sorted((Path(__file__).parent.parent / "judge" / "native").glob("*.cu"))
_COMPILE_S = 120.0


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
    key = _library_key([compiler.version, flags, [path.read_text(encoding="utf-8") for path in _KERNELS]])
    argv = [compiler.path, "judge.cu", *flags, "-o", "native.so"]
    library = _own_library(key, _KERNELS, argv, run_tool, cache)
    if library is None:
        raise JudgeFailed("nvcc does not compile the judge's own kernels", hint="see `warpgrade doctor`")
    return library


def _build(
    sources: list[Path], flags: list[str], headers: list[Path], run_tool: RunTool, cache: BuildCache
) -> bytes | None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources}
    deps = [texts, [path.read_text(encoding="utf-8") for path in headers], sorted(host_compiler.fingerprint().items())]
    key = _library_key([*deps, flags, host_compiler.native_flags()])
    names = [name for name in texts if name.endswith(".cpp")]
    argv = [host_compiler.cxx().path, *names, *flags, *host_compiler.native_flags(), "-o", "native.so"]
    return _own_library(key, sources, argv, run_tool, cache)


def _library_key(inputs: list[object]) -> str:
    return hashlib.sha256(msgspec.json.encode(inputs)).hexdigest()


def _own_library(key: str, sources: list[Path], argv: list[str], run_tool: RunTool, cache: BuildCache) -> bytes | None:
    """Look up a native library, or compile `native.so`; None if the compiler rejects the sources."""
    if (entry := cache.get(key)) is not None:
        return entry.library
    with work_folder() as work:
        for path in sources:
            (work / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        result = run_tool(argv, work=work, limits=LIMITS, timeout_s=_COMPILE_S)
        library = read_library(work / "native.so") if result.ok else None
    if library is not None:
        cache.put(key, library, log=result.output, wall_s=result.wall_s)
    return library


_HEADERS = {
    StepName.BOUND: f"{BOUND_FOLDER}/torch/extension.h",
    StepName.LIGHT: f"{LIGHT_FOLDER}/torch/extension.h",
    StepName.FULL: f"{FULL_FOLDER}/torch/extension.h",
}
PRECOMPILED = {step: f"{header}.gch" for step, header in _HEADERS.items()}
"""Paths in the compiler's folder, by build step: about 220 MB without pybind11, 300 MB with pybind11, and 810 MB with
PyTorch's own headers.
"""

# A macro defined during precompilation must have the same definition in every use.
_OF_ONE_EXTENSION = ("-DTORCH_EXTENSION_NAME=", "-DWARPGRADE_EMU_MARKS_RETURNS")


class Precompilation(NamedTuple):
    """Source `files` by path in the compiler's folder, and the command that creates `PRECOMPILED[step]`."""

    files: dict[str, str]
    argv: list[str]


def precompilation(step: StepName) -> Precompilation | None:
    """Return the precompilation of a step's headers, with the flags of all builds.

    None without g++. The step SPLIT has the headers of FULL.
    """
    if step not in _HEADERS or is_clang():
        return None
    argv, files = general_flags(step)
    return Precompilation(files, [*argv, "-x", "c++-header", _HEADERS[step], "-o", PRECOMPILED[step]])


def is_clang() -> bool:
    """Return whether the compiler is clang."""
    return "clang" in host_compiler.cxx().version.lower()


def general_flags(step: StepName) -> tuple[list[str], dict[str, str]]:
    """Return compiler and flags common to all builds of a step, and the files needed by the flags."""
    functions: dict[str, str] | None = {} if step is StepName.BOUND else None  # None: bindings by pybind11
    request = BuildRequest(name="unused", cpp_sources=[""], functions=functions, with_cuda=True)
    (build_step,) = [candidate for candidate in build_steps(request, front_end(request)) if candidate.name is step]
    argv = [flag for flag in build_step.argv[: build_step.argv.index(UNIT)] if not flag.startswith(_OF_ONE_EXTENSION)]
    return argv, {name: text for name, text in build_step.files.items() if name != UNIT}


_TIMEOUT_S = 1200.0  # 20 to 30 s of work, on a machine that may be busy
_RUNTIME, _RUNTIME_UNIT = "runtime.so", "runtime.cpp"
_OPTIONAL = frozenset((SUPPORT, *PRECOMPILED.values()))
"""Optional outputs: builds only take longer without."""


class _Artefact(NamedTuple):
    """Artefact to build: source `files` by path, and the ninja rules."""

    key: str
    output: str
    files: dict[str, str]
    rules: str


def runtime_is_built(cache: BuildCache) -> bool:
    """Return whether the emulator's runtime is cached. Raises ToolchainMissing without a compiler."""
    return cache.parts.folder(_runtime().key) is not None


def full_headers_are_built(cache: BuildCache) -> bool:
    """Return whether no build error has to precompile PyTorch's own headers. Raises ToolchainMissing."""
    artefact = _headers(StepName.FULL)
    return artefact is None or cache.parts.folder(artefact.key) is not None


def build_runtime(run_tool: RunTool, cache: BuildCache) -> bytes:
    """Return the emulator's headers, built if necessary. Raises ToolchainMissing without a compiler."""
    cache = cache.parts
    runtime_artefact = _runtime()
    if (entry := cache.get(runtime_artefact.key)) is not None:
        return entry.library
    optional = [artefact for artefact in (_support(), _headers(StepName.BOUND)) if artefact is not None]
    with cache.one_writer():
        if (entry := cache.get(runtime_artefact.key)) is not None:
            return entry.library
        # The longest builds start first.
        artefacts = [*(artefact for artefact in optional if cache.folder(artefact.key) is None), runtime_artefact]
        library = _make(artefacts, run_tool, cache).get(runtime_artefact.key)
    if library is None:
        raise JudgeFailed("the emulator's runtime does not compile with this compiler", hint="see `warpgrade doctor`")
    return library


def precompiled_headers(run_tool: RunTool, cache: BuildCache, step: StepName) -> Path | None:
    """Return the path of a step's precompiled headers; None if the compiler cannot create them."""
    artefact = _headers(step)
    return None if artefact is None else _get_or_build(artefact, run_tool, cache.parts)


def binding_support(run_tool: RunTool, cache: BuildCache) -> Path | None:
    """Return the path of the support of bindings without pybind11; None if the compiler rejects the support."""
    return _get_or_build(_support(), run_tool, cache.parts)


def _get_or_build(artefact: _Artefact, run_tool: RunTool, cache: BuildCache) -> Path | None:
    if (folder := cache.folder(artefact.key)) is None:
        with cache.one_writer():
            if cache.folder(artefact.key) is None:
                _make([artefact], run_tool, cache)
        folder = cache.folder(artefact.key)
    # An empty file records a failed build.
    return folder / LIBRARY if folder is not None and (folder / LIBRARY).stat().st_size != 0 else None


def _make(artefacts: Sequence[_Artefact], run_tool: RunTool, cache: BuildCache) -> dict[str, bytes]:
    """Build artefacts in parallel and cache them. Failed artefacts are missing from the result."""
    with work_folder() as work:
        for name, text in {name: text for artefact in artefacts for name, text in artefact.files.items()}.items():
            path = work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        (work / "build.ninja").write_text("".join(artefact.rules for artefact in artefacts), encoding="utf-8")
        # -k 0: one failure must not stop the other builds.
        argv = [host_compiler.ninja(), "-f", "build.ninja", "-k", "0", "-j", str(len(os.sched_getaffinity(0)))]
        result = run_tool(argv, work=work, limits=LIMITS, timeout_s=_TIMEOUT_S)
        # ninja removes the output of failed or interrupted compilers.
        outputs = {artefact.key: read_library(work / artefact.output) for artefact in artefacts}
    for artefact in artefacts:
        # An empty entry records the failure, so later submissions do not retry.
        content = outputs[artefact.key] or (b"" if artefact.output in _OPTIONAL else None)
        if content is not None:
            cache.put(artefact.key, content, log=result.output, wall_s=result.wall_s)
    return {key: content for key, content in outputs.items() if content is not None}


def _runtime() -> _Artefact:
    """Return the emulator's runtime: one unit, which compiles in 4 s of CPU time, where 15 units take 11."""
    files = {path.name: path.read_text(encoding="utf-8") for path in headers.runtime_sources()}
    unit = "".join(f'#include "{name}"\n' for name in files if name.endswith(".cpp"))
    flags = host_compiler.joined([*headers.runtime_flags(), *host_compiler.native_flags()])
    rules = (
        f"rule runtime\n  command = {host_compiler.cxx().path} {_RUNTIME_UNIT} {flags} -o $out\n"
        f"build {_RUNTIME}: runtime {_RUNTIME_UNIT} {' '.join(files)}\n"
    )
    return _Artefact(_key(rules, files), _RUNTIME, {**files, _RUNTIME_UNIT: unit}, rules)


def _headers(step: StepName) -> _Artefact | None:
    plan = precompilation(step)
    if plan is None:
        return None
    output = PRECOMPILED[step]
    command = host_compiler.joined(plan.argv)
    rules = f"rule precompile\n  command = {command}\nbuild {output}: precompile {' '.join(plan.files)}\n"
    return _Artefact(_key(rules, plan.files), output, plan.files, rules)


def _support() -> _Artefact:
    sources = {path.name: path.read_text(encoding="utf-8") for path in (BINDING_HEADER, BINDING_SUPPORT)}
    files = {**sources, **light_headers_for(sources.values())}
    flags = [f"-I{LIGHT_FOLDER}", "-O1", "-w", "-fvisibility=hidden", *host_compiler.compile_flags("warpgrade_support")]
    command = f"{host_compiler.cxx().path} -c {BINDING_SUPPORT.name} {host_compiler.joined(flags)} -o {SUPPORT}"
    rules = f"rule support\n  command = {command}\nbuild {SUPPORT}: support {' '.join(files)}\n"
    return _Artefact(_key(rules, files), SUPPORT, files, rules)


def _key(rules: str, files: dict[str, str]) -> str:
    """Hash everything that determines an artefact's contents, including the emulator's headers."""
    texts = [(path.relative_to(headers.INCLUDE).as_posix(), path.read_text("utf-8")) for path in headers.header_files()]
    inputs = [rules, sorted(files.items()), texts, sorted(host_compiler.fingerprint().items())]
    return hashlib.sha256(msgspec.json.encode(inputs)).hexdigest()
