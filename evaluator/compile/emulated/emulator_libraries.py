"""Emulator artefacts: the runtime library, and the precompiled headers.

Built in the sandbox, once per combination of torch, compiler and emulator. If both are missing, the builds run in
parallel.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from evaluator.cache.build_cache import LIBRARY, BuildCache
from evaluator.compile.emulated.precompiled_headers import PRECOMPILED, precompilation
from evaluator.compile.extension.builder import LIMITS, RunTool, read_library, work_folder
from evaluator.emulator import runtime
from evaluator.errors import JudgeFailed
from evaluator.toolchain import host_compiler

_TIMEOUT_S = 300.0
_RUNTIME = "runtime.so"


class _Part(NamedTuple):
    """Artefact to build: source `files` by path, and the ninja rules."""

    key: str
    output: str
    files: dict[str, str]
    rules: str


def runtime_is_built(cache: BuildCache) -> bool:
    """Return whether the emulator's runtime is cached. Raises ToolchainMissing without a compiler."""
    return cache.parts.folder(_runtime_part().key) is not None


def build_runtime(run_tool: RunTool, cache: BuildCache) -> bytes:
    """Return the emulator's runtime, built if necessary. Raises ToolchainMissing without a compiler."""
    cache = cache.parts
    part = _runtime_part()
    if (entry := cache.get(part.key)) is not None:
        return entry.library
    header = _header_part()
    parts = [part] if header is None or cache.folder(header.key) is not None else [part, header]
    library = _make(parts, run_tool, cache).get(part.key)
    if library is None:
        raise JudgeFailed("the emulator's runtime does not compile with this compiler", hint="see `warpgrade doctor`")
    return library


def precompiled_headers(run_tool: RunTool, cache: BuildCache) -> Path | None:
    """Return the path of the precompiled light headers; None if the compiler cannot create them."""
    part = _header_part()
    if part is None:
        return None
    cache = cache.parts
    if (folder := cache.folder(part.key)) is None:
        _make([part], run_tool, cache)
        folder = cache.folder(part.key)
    # An empty file records a failed precompilation.
    return folder / LIBRARY if folder is not None and (folder / LIBRARY).stat().st_size != 0 else None


def _make(parts: Sequence[_Part], run_tool: RunTool, cache: BuildCache) -> dict[str, bytes]:
    """Build artefacts in parallel and cache them. Failed artefacts are missing from the result."""
    with work_folder() as work:
        for name, text in {name: text for part in parts for name, text in part.files.items()}.items():
            path = work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        (work / "build.ninja").write_text("".join(part.rules for part in parts), encoding="utf-8")
        # -k 0: one failure must not stop the other builds.
        argv = [host_compiler.ninja(), "-f", "build.ninja", "-k", "0", "-j", str(len(os.sched_getaffinity(0)))]
        result = run_tool(argv, work=work, limits=LIMITS, timeout_s=_TIMEOUT_S)
        # ninja removes the output of failed or interrupted compilers.
        made = {part.key: read_library(work / part.output) for part in parts}
    for part in parts:
        # An empty entry records the failure, so later submissions do not retry.
        content = made[part.key] or (b"" if part.output == PRECOMPILED else None)
        if content is not None:
            cache.put(part.key, content, log=result.output, wall_s=result.wall_s)
    return {key: content for key, content in made.items() if content is not None}


def _runtime_part() -> _Part:
    files = {path.name: path.read_text(encoding="utf-8") for path in runtime.runtime_sources()}
    units = [name for name in files if name.endswith(".cpp")]
    flags = [*runtime.runtime_flags(), *host_compiler.native_flags()]
    compiler = host_compiler.cxx().path
    rules = "".join(
        [
            f"rule compile\n  command = {compiler} -c $in {host_compiler.joined(_without_libraries(flags))} -o $out\n",
            f"rule link\n  command = {compiler} $in {host_compiler.joined(flags)} -o $out\n",
            *(f"build {name}.o: compile {name}\n" for name in units),
            f"build {_RUNTIME}: link {' '.join(f'{name}.o' for name in units)}\n",
        ]
    )
    return _Part(_key(rules, files), _RUNTIME, files, rules)


def _header_part() -> _Part | None:
    plan = precompilation()
    if plan is None:
        return None
    command = host_compiler.joined(plan.argv)
    rules = f"rule precompile\n  command = {command}\nbuild {PRECOMPILED}: precompile {' '.join(plan.files)}\n"
    return _Part(_key(rules, plan.files), PRECOMPILED, plan.files, rules)


def _without_libraries(flags: Sequence[str]) -> list[str]:
    return [flag for flag in flags if flag != "-shared" and not flag.startswith(("-l", "-L"))]


def _key(rules: str, files: dict[str, str]) -> str:
    """Hash everything that determines an artefact's contents, including the emulator's headers."""
    own = [(path.relative_to(runtime.INCLUDE).as_posix(), _text(path)) for path in runtime.header_files()]
    parts = [rules, sorted(files.items()), own, sorted(host_compiler.fingerprint().items())]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
