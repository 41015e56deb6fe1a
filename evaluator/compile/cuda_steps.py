"""Steps for building one CUDA extension, in order of attempts."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from evaluator.compile.build_memory import compilers_at_once
from evaluator.compile.builder import (
    MOST_BUILT_BYTES,
    SUBMISSION_LIMITS,
    RunTool,
    read_library,
    work_folder,
    write_files,
)
from evaluator.compile.precompiled import Precompiled, header_flags, precompiled
from evaluator.cuda_source.declarations import NotSplittable
from evaluator.cuda_source.lexer import Kind, tokens
from evaluator.cuda_source.source_files import source_files, why_not_tabled, with_table
from evaluator.cuda_source.split import Halves, device_headers, split, without_precompiled
from evaluator.cuda_source.symbols import instantiations, missing
from evaluator.protocol.frames import BuildRequest
from evaluator.sandbox import ToolResult
from evaluator.toolchain import host_compiler, nvcc
from evaluator.toolchain.light_headers import LIGHT_FOLDER, light_headers_for
from evaluator.toolchain.nvcc_flags import nvcc_flags, words

_HOST_LISTING, _DEVICE_LISTING = "host.undefined", "device.defined"
_STUBS_VISIBLE = "-static-global-template-stub=false"
"""From CUDA 13 on, stubs of kernel templates are local to their object by default."""
_STANDARD_HEADERS = ("algorithm", "cassert", "climits", "cmath", "cstdint", "cstdio", "limits", "type_traits")
"""Standard headers normally included by PyTorch's headers."""
_INCLUDE = r'#[ \t]*include[ \t]*[<"]'
_FORGOTTEN = (
    (
        re.compile(r"\b(?:at|c10)::cuda\b|\b(?:C10|AT)_CUDA_\w+|\bCUDAStream\b"),
        re.compile(_INCLUDE + "(?:ATen|c10)/cuda/"),
    ),
    (re.compile(r"\bAT_CUDA_\w+|\bCUDABlas|\bgetCurrentDeviceProperties\b"), re.compile(_INCLUDE + "ATen/cuda/")),
    (re.compile(r"\bCUDA(?:Stream)?Guard\b"), re.compile(_INCLUDE + r"(?:c10/cuda/CUDAGuard|ATen/cuda/CUDAEvent)\.h")),
    (re.compile(r"\bCUDAEvent\b"), re.compile(_INCLUDE + r"ATen/cuda/CUDAEvent\.h")),
)
"""Names of PyTorch's CUDA API, and the headers that declare them."""
_LOOPS = frozenset(("for", "while"))


class Attempt(NamedTuple):
    """Result of one step. `why` explains a failure without compiler errors."""

    result: ToolResult
    library: bytes | None
    why: str = ""


class _Split(NamedTuple):
    """*split*. `host` is a complete unit; the device half in `halves` may lack template instantiations."""

    request: BuildRequest
    architecture: str
    prepared: Precompiled
    host: str
    halves: Halves
    own_words: frozenset[str]

    @property
    def name(self) -> str:
        return "split"

    def build(self, run_tool: RunTool, timeout_s: float) -> Attempt:
        with work_folder() as work:
            write_files(work, {"host.cpp": self.host, "build.ninja": self._ninja_text(), **_front_ends()})
            first = None
            if self.halves.templates:  # The host's object names the instantiations.
                first = _ninja(run_tool, work, timeout_s, "host.o")
                if not first.ok:
                    return Attempt(first, None)
            try:
                device = self._device(_text(work / _HOST_LISTING) if first else "")
            except NotSplittable as reason:
                return Attempt(first or _no_result(), None, str(reason))
            write_files(work, {"device.cu": device})
            spent_s = first.wall_s if first else 0.0
            result = _together(first, _ninja(run_tool, work, timeout_s - spent_s))
            if not result.ok:
                return Attempt(result, None)
            try:
                holes = missing(_text(work / _HOST_LISTING), _text(work / _DEVICE_LISTING), self.own_words)
            except NotSplittable as reason:
                return Attempt(result, None, str(reason))
            if holes:
                return Attempt(result, None, f"the device's half does not have {holes[0]}")
            return Attempt(result, read_library(work / f"{self.request.name}.so", MOST_BUILT_BYTES))

    def _device(self, listing: str) -> str:
        """Return the device unit, with the template instantiations required by nm's `listing` of the host object."""
        kernels = instantiations(listing, self.halves.templates)
        text = self.halves.device + "\n" + " ".join(kernels)
        half = ["cuda_fp16.h"] if re.search(r"\b_{0,2}half2?\b|\bHalf\b", text) else []
        brain = ["cuda_bf16.h"] if re.search(r"nv_bfloat16|BFloat16", text) else []
        headers = [*_STANDARD_HEADERS, *half, *brain, *device_headers(text)]
        lines = [
            *(f"#include <{header}>" for header in headers),
            '#line 1 "cuda.cu"',
            self.halves.device,
        ]
        if kernels:
            addresses = ", ".join(f"reinterpret_cast<const void*>(&{name})" for name in kernels)
            lines.append(f"__attribute__((used)) static const void* const warpgrade_kernels[] = {{{addresses}}};")
        return "\n".join([*lines, ""])

    def _ninja_text(self) -> str:
        """Return the build file with the targets `host.o` and the library."""
        request, compiler = self.request, host_compiler.cxx().path
        cuda_cflags = nvcc_flags(request.extra_cuda_cflags).kept
        folders = [f"-I{path}" for path in request.extra_include_paths if path]
        names = [f"-DTORCH_EXTENSION_NAME={request.name}"]
        stubs = [_STUBS_VISIBLE] if _hides_stubs() else []
        cuda = nvcc.cuda_flags(request.name, self.architecture, [*folders, *cuda_cflags, *stubs])
        host = [*header_flags(), *names, *folders]
        objects = f"host.o device.o {self.prepared.support}"
        device_listing = f"nm -C --defined-only $out > {_DEVICE_LISTING}"
        described = "description = compile $in"
        host_command = f"{compiler} -include {self.prepared.header} {host_compiler.joined(host)} -c $in -o $out"
        device_command = f"{nvcc.both_front_ends()} {host_compiler.joined(cuda)} -c $in -o $out"
        libraries = host_compiler.joined(["-shared", *words(request.extra_ldflags), *nvcc.link_flags()])
        return "\n".join(
            [
                "ninja_required_version = 1.3",
                f"rule host\n  command = {host_command} && nm -uC $out > {_HOST_LISTING}\n  {described}",
                f"rule device\n  command = {device_command} && {device_listing}\n  {described}",
                f"rule link\n  command = {compiler} $in {libraries} -o $out\n  description = link $out",
                "build host.o: host host.cpp",
                "build device.o: device device.cu",
                f"build {request.name}.so: link {objects}",
                "",
            ]
        )


def _split(request: BuildRequest, architecture: str, prepared: Precompiled) -> _Split:
    """Split a request. Raises NotSplittable with the reason."""
    files = {file.name: file.text for file in source_files(request)}
    if request.files or request.headers or set(files) != {"main.cpp", "cuda.cu"}:
        raise NotSplittable("it has files of its own, or no CUDA")
    if (reason := why_not_tabled(request)) is not None:
        raise NotSplittable(reason)
    _check_flags(request)
    for text in ("\n".join(request.cpp_sources), files["cuda.cu"]):
        _check_headers(text)
    halves = split(files["cuda.cu"])
    identifiers = frozenset(token.text for text in files.values() for token in tokens(text) if token.kind is Kind.WORD)
    return _Split(request, architecture, prepared, _host_unit(request, files, halves), halves, identifiers)


def _check_headers(text: str) -> None:
    """Raise NotSplittable for missing includes that only the precompiled header would hide."""
    for names, headers in _FORGOTTEN:
        if (name := names.search(text)) is not None and not headers.search(text):
            raise NotSplittable(f"{name[0]} may lack its header")


def _check_flags(request: BuildRequest) -> None:
    """Raise NotSplittable for flags incompatible with the precompiled header."""
    host = words(request.extra_cflags)
    cuda = nvcc_flags(request.extra_cuda_cflags).kept
    if unfit := [flag for flag in host if not re.fullmatch(r"-O\w*|-g\d?|-w|-W[\w=+-]*|-pipe|-fPIC|-std=.*", flag)]:
        raise NotSplittable(f"{unfit[0]} is not what the precompiled header was made with")
    if unfit := [flag for flag in cuda if re.match(r"-[DU]|-?-std|-rdc=true|--relocatable-device-code=true|-G$", flag)]:
        raise NotSplittable(f"{unfit[0]} is for both halves")
    standard = f"-std={host_compiler.language_standard()}"
    if any(flag.startswith(("-std=", "--std=")) and flag != standard for flag in [*host, *cuda]):
        raise NotSplittable("another language standard")
    optimised = any(re.match(r"-O[1-3sf]", flag) for flag in [*host, *cuda])
    if optimised and any(_has_loop(text) for text in request.cpp_sources):
        raise NotSplittable("a loop on the CPU, to be optimised")


def _has_loop(text: str) -> bool:
    return any(token.kind is Kind.WORD and token.text in _LOOPS for token in tokens(text))


def _host_unit(request: BuildRequest, files: dict[str, str], halves: Halves) -> str:
    """Return the host unit. Bindings precede the .cu half, since PyTorch's binding unit does not see the .cu file."""
    if (texts := with_table(files["main.cpp"], request)) is None:
        raise NotSplittable("its bindings are its own")
    sources, table = texts
    return "\n".join(
        [
            '#line 1 "main.cpp"',
            without_precompiled(sources),
            table,
            '#line 1 "cuda.cu"',
            halves.host,
            "",
        ]
    )


def _hides_stubs() -> bool:
    release = re.search(r"(?:cuda_|release )(\d+)", nvcc.nvcc().version)
    return release is not None and int(release[1]) >= 13


CUDA_SUFFIXES = frozenset((".cu", ".cuh"))
_BINDINGS = re.compile(r"\bPYBIND11_|\bpy::|\bpybind11\b")
_MOST_LISTING_BYTES = 1 << 20
"""Size limit of nm's output for an object. Parsing takes the judge 1 us per character."""
_LIGHTER_FOLDER = ".lighter"
"""Light headers for nvcc without pybind11, which takes as long to parse as all others and is rarely needed."""


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


def steps(
    request: BuildRequest,
    architecture: str,
    cache_root: Path,
    too_much: Callable[[BuildRequest], str | None] = lambda _: None,
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
        return Ladder([_split(request, architecture, prepared), light, plain], [])
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
