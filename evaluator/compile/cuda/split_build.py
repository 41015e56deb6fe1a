"""Files and commands of a split build.

The host unit contains the C++ sources, their bindings and the host half of the .cu file; the device unit contains the
device half. The units compile in parallel, except for kernel templates: then the host unit compiles first and
determines the required instantiations.
"""

import re
from typing import NamedTuple

from evaluator.compile.cuda.precompiled import Precompiled, header_flags
from evaluator.cuda_source.bindings import why_not_tabled, with_table
from evaluator.cuda_source.declarations import NotSplittable
from evaluator.cuda_source.lexer import Kind, tokens
from evaluator.cuda_source.source_files import source_files
from evaluator.cuda_source.split import Halves, device_headers, split, without_precompiled
from evaluator.cuda_source.symbols import instantiations, missing
from evaluator.protocol.frames import BuildRequest
from evaluator.toolchain import host_compiler, nvcc
from evaluator.toolchain.flags import words
from evaluator.toolchain.nvcc_flags import nvcc_flags

HOST_LISTING, DEVICE_LISTING = "host.undefined", "device.defined"
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


class SplitBuild(NamedTuple):
    """Splittable request. `host` is a complete unit; the device half in `halves` may lack template instantiations."""

    request: BuildRequest
    architecture: str
    prepared: Precompiled
    host: str
    halves: Halves
    own_words: frozenset[str]

    @property
    def two_steps(self) -> bool:
        """Whether the host unit must be compiled first."""
        return bool(self.halves.templates)

    def device(self, listing: str = "") -> str:
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

    def ninja_text(self) -> str:
        """Return the build file with the targets `host.o` and the library."""
        request, compiler = self.request, host_compiler.cxx().path
        cuda_cflags = nvcc_flags(request.extra_cuda_cflags).kept
        folders = [f"-I{path}" for path in request.extra_include_paths if path]
        names = [f"-DTORCH_EXTENSION_NAME={request.name}"]
        stubs = [_STUBS_VISIBLE] if _hides_stubs() else []
        cuda = nvcc.cuda_flags(request.name, self.architecture, [*folders, *cuda_cflags, *stubs])
        host = [*header_flags(), *names, *folders]
        objects = f"host.o device.o {self.prepared.support}"
        device_listing = f"nm -C --defined-only $out > {DEVICE_LISTING}"
        described = "description = compile $in"
        host_command = f"{compiler} -include {self.prepared.header} {host_compiler.joined(host)} -c $in -o $out"
        device_command = f"{nvcc.both_front_ends()} {host_compiler.joined(cuda)} -c $in -o $out"
        libraries = host_compiler.joined(["-shared", *words(request.extra_ldflags), *nvcc.link_flags()])
        return "\n".join(
            [
                "ninja_required_version = 1.3",
                f"rule host\n  command = {host_command} && nm -uC $out > {HOST_LISTING}\n  {described}",
                f"rule device\n  command = {device_command} && {device_listing}\n  {described}",
                f"rule link\n  command = {compiler} $in {libraries} -o $out\n  description = link $out",
                "build host.o: host host.cpp",
                "build device.o: device device.cu",
                f"build {request.name}.so: link {objects}",
                "",
            ]
        )

    def holes(self, undefined: str, defined: str) -> list[str]:
        """List the submission's own functions that the library calls but lacks."""
        return missing(undefined, defined, self.own_words)


def split_build(request: BuildRequest, architecture: str, prepared: Precompiled) -> SplitBuild:
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
    return SplitBuild(request, architecture, prepared, _host_unit(request, files, halves), halves, identifiers)


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
