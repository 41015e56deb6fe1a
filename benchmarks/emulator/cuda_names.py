"""The names that CUDA's headers declare, for telling misspelt names from those that the emulator lacks.

    python -m benchmarks.emulator.cuda_names            number of names, and the difference from the kept list
    python -m benchmarks.emulator.cuda_names --write    the list, made again; needs nvcc and PyTorch's headers

nvcc preprocesses the toolkit's headers as for kernels of today's GPUs, so removed names are absent. The list has
functions, types, enumerators and macros of file scope, members of structures (`cudaDeviceProp::major`), and headers.
Headers of libraries (cuBLAS, cuRAND) and of CCCL are left out: the list decides nothing about those.
"""

import argparse
import re
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

from evaluator.emulator.frontend.cuda_names import CUDA_NAMES, LIST
from evaluator.toolchain import host_compiler, nvcc

_HEADERS = (
    *("cuda_runtime.h", "cuda.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cuda_fp6.h", "cuda_fp4.h", "mma.h"),
    *("cuda_pipeline.h", "cuda_awbarrier.h", "cuda_occupancy.h"),
    *("cuda_profiler_api.h", "cudaProfiler.h", "cuComplex.h"),
)
_GPUS = ("sm_90", "sm_100")
_PLACE = re.compile(r'# \d+ "(?P<path>[^"]*)"')
_FUNCTION = re.compile(r"@[^;{}()@]*?\b(?P<name>\w+)\s*\(")
_STRUCTURE = re.compile(r"\bstruct(?:\s+@)*\s+(?P<name>cuda\w+)\s*\{(?P<body>[^{}]*)\}")
_SCOPE = re.compile(r'(?:extern\s+"C"|\bnamespace(?:\s+\w+)*)\s*\{')
_SHAPE = r"cuda[A-Z]\w*|cu[A-Z]\w+|CU\w+"
_LISTED = re.compile(rf"{_SHAPE}|__[a-z]\w+")
_LISTED_FUNCTION = re.compile(r"[a-z]\w{2,}[A-Z\d_f]\w*|[a-z]+f")
_INTERNAL = re.compile(r"__(?:internal|cudaCDP|nv_(?:cvta|memcpy|\w+_impl)|cccl)\w*|\w+_impl")
_WIDTH = 120


def main() -> None:
    """Print the numbers of names, or write the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the list into the emulator")
    names, kept = declared(), CUDA_NAMES
    if parser.parse_args().write:
        LIST.write_text(list_text(names), encoding="utf-8")
    print(f"{len(names)} names; {len(names - kept)} missing from the kept list, {len(kept - names)} no longer declared")


def list_text(names: frozenset[str]) -> str:
    """Return the names in alphabetical order, in lines of at most 120 characters."""
    return textwrap.fill(" ".join(sorted(names)), _WIDTH, break_on_hyphens=False, break_long_words=False) + "\n"


def declared() -> frozenset[str]:
    """Return the names that the installed headers declare. Raises ToolchainMissing without nvcc."""
    text = _own_text(_preprocessed())
    macros = set(re.findall(r"^#define (\w+)", text, re.MULTILINE))
    text = re.sub(r"^#.*", "", text, flags=re.MULTILINE)
    text = re.sub(r"__attribute__\(\((?:device|global)\)\)", "@", text)
    text = re.sub(r"__attribute__\(\(.*?\)\)|__declspec\(.*?\)", "", text)
    words = {word for word in re.findall(r"\w+", text) if re.fullmatch(_SHAPE, word)}
    at_file_scope = _without_bodies(text)
    types = set(re.findall(r"\b(?:typedef\b[^;()]*?|struct\s+|enum\s+)\b(\w+)\s*;", at_file_scope))
    functions = {match["name"] for match in _FUNCTION.finditer(at_file_scope)}
    listed = {name for name in words | types | functions | macros if _LISTED.fullmatch(name)}
    listed |= {name for name in functions if _LISTED_FUNCTION.fullmatch(name)}
    return frozenset(
        {name for name in listed if not _INTERNAL.fullmatch(name)} | {*_members(text)} | {*_header_names()}
    )


def _preprocessed() -> str:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "all.cu"
        source.write_text("".join(f"#include <{name}>\n" for name in _HEADERS), encoding="utf-8")
        argv = [nvcc.nvcc().path, "-E", "-std=c++17", "-Xcompiler", "-dD", str(source)]
        runs = (subprocess.run([*argv, f"-arch={each}"], capture_output=True, text=True, check=True) for each in _GPUS)
        return "".join(run.stdout for run in runs)


def _own_text(preprocessed: str) -> str:
    """Return the lines of the toolkit's headers, without those of the C++ library and of CCCL."""
    include, is_own, lines = str((nvcc.cuda_home() / "include").resolve()), False, []
    for line in preprocessed.splitlines():
        if (place := _PLACE.match(line)) is not None:
            path = str(Path(place["path"]).resolve())
            is_own = path.startswith(include) and "/cccl/" not in path
        elif is_own:
            lines.append(line)
    return "\n".join(lines)


def _without_bodies(text: str) -> str:
    """Remove everything in braces, except for the contents of namespaces."""
    text, removed = _SCOPE.sub("", text), 1
    while removed:
        text, removed = re.subn(r"\{[^{}]*\}", ";", text)
    return text


def _members(text: str) -> Iterator[str]:
    for structure in _STRUCTURE.finditer(text):
        for member in re.findall(r"(\w+)\s*(?:\[[^]]*\]\s*)*;", structure["body"]):
            yield f"{structure['name']}::{member}"


def _header_names() -> Iterator[str]:
    """Yield the names of the toolkit's headers, and of those of PyTorch's CUDA half."""
    include, pytorch = nvcc.cuda_home() / "include", Path(host_compiler.include_paths()[0])
    for folder, pattern in ((include, "*.h*"), (include, "nvtx3/*.h*"), (pytorch, "[Ac]*/cuda/*.*h")):
        yield from (path.relative_to(folder).as_posix() for path in folder.glob(pattern))


if __name__ == "__main__":
    main()
