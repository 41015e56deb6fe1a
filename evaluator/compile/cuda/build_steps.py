"""Steps for building one CUDA extension, in order of attempts."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from evaluator.compile.cuda.precompiled import precompiled
from evaluator.compile.cuda.split_build import DEVICE_LISTING, HOST_LISTING, SplitBuild, split_build
from evaluator.compile.extension.build_memory import compilers_at_once
from evaluator.compile.extension.builder import (
    MOST_BUILT_BYTES,
    SUBMISSION_LIMITS,
    RunTool,
    read_library,
    work_folder,
    write_files,
)
from evaluator.cuda_source.declarations import NotSplittable
from evaluator.cuda_source.source_files import source_files
from evaluator.protocol.frames import BuildRequest
from evaluator.sandbox import ToolResult
from evaluator.toolchain import host_compiler, nvcc
from evaluator.toolchain.flags import words
from evaluator.toolchain.light_headers import LIGHT_FOLDER, light_headers_for
from evaluator.toolchain.nvcc_flags import nvcc_flags

CUDA_SUFFIXES = frozenset((".cu", ".cuh"))
_BINDINGS = re.compile(r"\bPYBIND11_|\bpy::|\bpybind11\b")
_MOST_LISTING_BYTES = 1 << 20
"""Size limit of nm's output for an object. Parsing takes the judge 1 us per character."""
_LIGHTER_FOLDER = ".lighter"
"""Light headers for nvcc without pybind11, which takes as long to parse as all others and is rarely needed."""


class Attempt(NamedTuple):
    """Result of one step. `why` explains a failure without compiler errors."""

    result: ToolResult
    library: bytes | None
    why: str = ""


class CudaStep(Protocol):
    """One way of building."""

    @property
    def name(self) -> str:
        """Name of the step."""

    def build(self, run_tool: RunTool, timeout_s: float) -> Attempt:
        """Build within `timeout_s`. Raises JudgeFailed without space for the compiler's files."""


class Ladder(NamedTuple):
    """Steps of a build, and notes about omitted steps."""

    steps: list[CudaStep]
    notes: list[str]


def _nothing(_: BuildRequest) -> None:
    """Accept every request."""


def steps(
    request: BuildRequest,
    architecture: str,
    cache_root: Path,
    too_much: Callable[[BuildRequest], str | None] = _nothing,
) -> Ladder:
    """Return the steps of a build, PyTorch's own step last. `too_much` returns why a request must not be split."""
    plain = _OneUnitEach(request, architecture, light=False)
    if not plain.with_cuda:
        return Ladder([plain], [])
    light = _OneUnitEach(request, architecture, light=True)
    prepared = precompiled(cache_root)
    if prepared is None:
        return Ladder(
            [light, plain], ["note: split left out: its headers are not prepared (warpgrade doctor --prepare)"]
        )
    if (objection := too_much(request)) is not None:
        return Ladder([light, plain], [f"note: split left out: {objection}"])
    try:
        return Ladder([_Split(split_build(request, architecture, prepared)), light, plain], [])
    except NotSplittable as reason:
        return Ladder([light, plain], [f"note: split left out: {reason}"])


class _OneUnitEach:
    """*light* and *plain*: each file compiled as by PyTorch, with light headers or with PyTorch's headers."""

    def __init__(self, request: BuildRequest, architecture: str, *, light: bool) -> None:
        self.name = "light" if light else "plain"
        self._request = request
        self._files = {file.name: file.text for file in source_files(request)}
        self._headers = {file.name: file.text for file in request.headers}
        self._architecture = architecture
        self._light = light
        self.with_cuda = request.with_cuda or any(_is_cuda(name) for name in self._files)

    def build(self, run_tool: RunTool, timeout_s: float) -> Attempt:
        texts = {**self._beside(), **self._headers, **self._files, "build.ninja": self._ninja_text()}
        with work_folder() as work:
            write_files(work, texts)
            result = _ninja(run_tool, work, timeout_s)
            return Attempt(
                result, read_library(work / f"{self._request.name}.so", MOST_BUILT_BYTES) if result.ok else None
            )

    def _beside(self) -> dict[str, str]:
        """Return the headers that shadow PyTorch's headers, and the script for nvcc."""
        if not self._light:
            return {}
        headers = light_headers_for([*self._files.values(), *self._headers.values()])
        return headers | _without_bindings(headers) | _front_ends()

    def _ninja_text(self) -> str:
        request = self._request
        includes = [f"-I{path}" for path in request.extra_include_paths if path]
        shadow = [f"-I{LIGHT_FOLDER}"] if self._light else []
        cflags, ldflags = [*shadow, *words(request.extra_cflags), *includes], words(request.extra_ldflags)
        if not self.with_cuda:
            return host_compiler.ninja_text(request.name, list(self._files), cflags, ldflags)
        units = [nvcc.CompileUnit(name, _is_cuda(name)) for name in self._files]
        binds = any(_is_cuda(name) and _BINDINGS.search(text) for name, text in (self._files | self._headers).items())
        if self._light and not binds:
            shadow = [f"-I{_LIGHTER_FOLDER}"]
        flags = [*shadow, *includes, *nvcc_flags(request.extra_cuda_cflags).kept]
        cuda = nvcc.cuda_flags(request.name, self._architecture, flags)
        command = nvcc.both_front_ends() if self._light else nvcc.nvcc().path
        return nvcc.ninja_text(request.name, units, cflags, cuda, ldflags, command)


class _Split:
    """*split*: see `split_build`."""

    name = "split"

    def __init__(self, plan: SplitBuild) -> None:
        self._plan = plan

    def build(self, run_tool: RunTool, timeout_s: float) -> Attempt:
        library = f"{self._plan.request.name}.so"
        with work_folder() as work:
            write_files(work, {"host.cpp": self._plan.host, "build.ninja": self._plan.ninja_text(), **_front_ends()})
            first = None
            if self._plan.two_steps:
                first = _ninja(run_tool, work, timeout_s, "host.o")
                if not first.ok:
                    return Attempt(first, None)
            try:
                device = self._plan.device(_text(work / HOST_LISTING) if first else "")
            except NotSplittable as reason:
                return Attempt(first or _no_result(), None, str(reason))
            write_files(work, {"device.cu": device})
            spent_s = first.wall_s if first else 0.0
            result = _together(first, _ninja(run_tool, work, timeout_s - spent_s))
            if not result.ok:
                return Attempt(result, None)
            try:
                holes = self._plan.holes(_text(work / HOST_LISTING), _text(work / DEVICE_LISTING))
            except NotSplittable as reason:
                return Attempt(result, None, str(reason))
            if holes:
                return Attempt(result, None, f"the device's half does not have {holes[0]}")
            return Attempt(result, read_library(work / library, MOST_BUILT_BYTES))


def _front_ends() -> dict[str, str]:
    return {nvcc.FRONT_ENDS_NAME: nvcc.FRONT_ENDS.read_text(encoding="utf-8")}


def _without_bindings(headers: Mapping[str, str]) -> dict[str, str]:
    moved = {name.replace(f"{LIGHT_FOLDER}/", f"{_LIGHTER_FOLDER}/", 1): text for name, text in headers.items()}
    return moved | {f"{_LIGHTER_FOLDER}/torch/extension.h": "#pragma once\n#include <torch/types.h>\n"}


def _is_cuda(name: str) -> bool:
    return PurePath(name).suffix in CUDA_SUFFIXES


def _ninja(run_tool: RunTool, work: Path, timeout_s: float, *targets: str) -> ToolResult:
    """Run the build file and continue after failures, so every compiler reports its errors."""
    argv = [host_compiler.ninja(), "-f", "build.ninja", "-k", "0", "-j", str(compilers_at_once()), *targets]
    return run_tool(argv, work=work, limits=SUBMISSION_LIMITS, timeout_s=max(timeout_s, 1.0))


def _text(path: Path) -> str:
    """Read a listing written in the sandbox; empty if missing. Raises NotSplittable for an oversized listing."""
    listing = read_library(path, _MOST_LISTING_BYTES)
    if listing is None and os.path.lexists(path):
        raise NotSplittable("its halves name too much of each other")
    return (listing or b"").decode(errors="replace")


def _together(first: ToolResult | None, second: ToolResult) -> ToolResult:
    if first is None:
        return second
    return replace(second, output=first.output + second.output, wall_s=first.wall_s + second.wall_s)


def _no_result() -> ToolResult:
    return ToolResult(exit_code=1, signal=None, timed_out=False, output="", wall_s=0.0)
