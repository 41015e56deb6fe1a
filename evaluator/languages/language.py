"""Record of a kernel language: marks in a submission's text, and the installation."""

import importlib.metadata
import importlib.util
import itertools
import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from evaluator.records import DeviceKind, Toolchain


class Mentions(NamedTuple):
    """Names in a submission, as evidence of its language.

    `dotted` are full names of imported and used objects, `includes` the paths of included C++ headers. `has_kernel`
    states whether the text holds CUDA code.
    """

    dotted: frozenset[str]
    includes: frozenset[str]
    has_kernel: bool


class Package(NamedTuple):
    """Installed language: version, and include folders of C++ headers."""

    version: str
    include_paths: tuple[Path, ...] = ()


class Installation(NamedTuple):
    """Search for a language on the machine, and the command for the installation."""

    find: Callable[[], Package | None]
    command: str


class Language(NamedTuple):
    """Language of kernels.

    `is_in` recognizes the language in a submission. `installation` is None for the languages of the C++ and CUDA
    compilers. `packages` are the root packages in imports. `code` are all functions of the language, as prefixes of
    `module.function`; `compiler` and `launcher` those for compiling and launching a kernel.

    Languages with `marks` compile kernels in the runner, at the first call. A text names such a language by a match of
    one of these regular expressions. `decorators` are the full names of decorators of kernels. `kernels` returns the
    names of the kernels in a text, for a language whose launches a runner can leave out.
    """

    toolchain: Toolchain
    title: str
    is_in: Callable[[Mentions], bool]
    runs_on: frozenset[DeviceKind]
    installation: Installation | None = None
    packages: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    compiler: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    decorators: tuple[str, ...] = ()
    kernels: Callable[[str], list[str]] | None = None


def names(*prefixes: str) -> Callable[[Mentions], bool]:
    """Return a recognizer for Python names with any of `prefixes`.

    >>> names("tilelang")(Mentions(frozenset({"tilelang.language"}), frozenset(), has_kernel=False))
    True
    """
    return lambda mentions: any(begins_with(name, prefixes) for name in mentions.dotted)


def includes(*prefixes: str) -> Callable[[Mentions], bool]:
    """Return a recognizer for C++ headers with any of `prefixes` in front of the path."""
    return lambda mentions: any(path.startswith(prefixes) for path in mentions.includes)


def begins_with(name: str, prefixes: Collection[str]) -> bool:
    """Return whether a dotted name equals any of `prefixes`, or lies below.

    >>> begins_with("cupy.RawKernel", ("cupy",)), begins_with("cupyx", ("cupy",))
    (True, False)
    """
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


_OF_PARTS_ALONE = ("cuda",)
"""Packages without code of their own, for the parts of several distributions."""
_PARTS = ("MAJOR", "MINOR", "PATCH")
_RELEASE = re.compile(r"^#define \w{1,40}_(MAJOR|MINOR|PATCH) (\d{1,9})", re.MULTILINE)


def distribution(*candidates: str, package: str) -> Callable[[], Package | None]:
    """Return a search for the first installed distribution among `candidates`.

    `package` is imported by submissions, and must be importable. Wheels that lack another wheel, and `.pth` files
    without effect (`pip install --target`), leave a distribution without its package, or with an empty folder.
    """

    def find() -> Package | None:
        if not is_importable(package):
            return None
        versions = (_version(name) for name in candidates)
        return next((Package(version) for version in versions if version is not None), None)

    return find


def is_importable(package: str, *, with_code: bool = True) -> bool:
    """Return whether Python finds a root package, `with_code` of its own: an empty folder has none."""
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # A module without a spec, such as `__main__`, is installed.
        return True
    return spec is not None and (not with_code or spec.origin is not None or package in _OF_PARTS_ALONE)


def headers(variable: str, header: str, *, folders: tuple[str, ...], package: str = "") -> Callable[[], Package | None]:
    """Return a search for C++ headers: in the folder of an environment variable, else in a Python package.

    The headers lie in `folders` below the variable's folder, or below `source` of the package. `header` must exist in
    the first folder.
    """

    def find() -> Package | None:
        for root in _roots(variable, package):
            if (root / folders[0] / header).is_file():
                paths = tuple(root / folder for folder in folders if (root / folder).is_dir())
                return Package(f"{_release(root / folders[0] / header)} in {paths[0]}", paths)
        return None

    return find


def _roots(variable: str, package: str) -> list[Path]:
    """Return the possible folders of the headers. A set variable excludes the package."""
    if chosen := os.environ.get(variable):
        return [Path(chosen).resolve()]
    spec = importlib.util.find_spec(package) if package else None
    return [] if spec is None or spec.origin is None else [Path(spec.origin).resolve().parent / "source"]


def _release(header: Path) -> str:
    """Return the version by macros of a header (`CUTLASS_MAJOR`); "headers" without the macros."""
    numbers = dict(_RELEASE.findall(header.read_text(encoding="utf-8", errors="replace")))
    return ".".join(numbers[part] for part in _PARTS) if numbers.keys() >= set(_PARTS) else "headers"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


EXTENSION = "torch.utils.cpp_extension"
_IMPORT = re.compile(r"^[ \t]{0,200}(?:import|from)[ \t]+(?P<rest>[^\n#]{1,400})", re.MULTILINE)
_MODULE = re.compile(r"(?<![\w.])[A-Za-z_][\w.]{0,200}")
_USED = re.compile(r"\b(?:torch\.cuda\._compile_kernel|torch\.utils\.cpp_extension|triton\.jit)\b")
_EXTENSION = re.compile(r"\b(?:load_inline|cpp_extension)\b|^\[extension\]", re.MULTILINE)
_CUDA = re.compile(r"__global__|\bcuda_sources?\b|\.cuh?\b['\"]")
_INCLUDE = re.compile(r"^[ \t]{0,200}#[ \t]{0,20}include[ \t]{0,20}[<\"](?P<path>[^>\"\n]{1,200})[>\"]", re.MULTILINE)
_TRITON = re.compile(r"^[ \t]*(?:import|from)[ \t][^\n#]{0,400}\btriton\b|\btriton\.jit\b", re.MULTILINE)
_JIT = re.compile(
    r"^[ \t]*@(?:triton\.)?jit\b[^\n]{0,400}\n(?:[ \t]*(?:[@#)][^\n]{0,400})?\n){0,8}"
    r"[ \t]*def[ \t]+(?P<name>\w{1,200})",
    re.MULTILINE,
)
"""A kernel's decorator, up to eight further lines, and its `def`. The bounds keep the time linear."""
_NVRTC = re.compile(r"\b_compile_kernel\b")
_GLOBAL = re.compile(r"\b__global__\b(?P<head>[^;{}='\"]{0,400})")
_BOUNDS = re.compile(r"__launch_bounds__\s{0,9}\([^()]{0,80}\)")
_CALLED = re.compile(r"\b(?P<name>[A-Za-z_]\w{0,200})\s{0,9}\(")
MOST_KERNELS = 256
_MOST = 4096


def mentions_in_text(source: str) -> Mentions:
    """Return the names in the import lines of `source`, a few further names, and all included headers.

    >>> sorted(mentions_in_text("import torch, tilelang  # not triton").dotted)
    ['tilelang', 'torch']
    """
    dotted = {name for line in _IMPORT.finditer(source) for name in _MODULE.findall(line["rest"])}
    dotted |= set(_USED.findall(source))
    if _EXTENSION.search(source) is not None:
        dotted.add(EXTENSION)
    return Mentions(frozenset(dotted), included_headers(source), has_kernel=_CUDA.search(source) is not None)


def included_headers(text: str) -> frozenset[str]:
    """Return the paths of all headers in the `#include` lines of C++ text."""
    return frozenset(match["path"] for _, match in zip(range(_MOST), _INCLUDE.finditer(text), strict=False))


def uses_triton(source: str) -> bool:
    """Return whether `source` names Triton."""
    return _TRITON.search(source) is not None


def nvrtc_kernels(source: str) -> list[str]:
    r"""Return the names of the CUDA kernels in a text that calls `torch.cuda._compile_kernel`.

    >>> text = 'K = "__global__ void __launch_bounds__(256) relu(float* x) {"\ntorch.cuda._compile_kernel(K, "relu")'
    >>> nvrtc_kernels(text), nvrtc_kernels("__global__ void relu(float* x) {")
    (['relu'], [])
    """
    if _NVRTC.search(source) is None:
        return []
    heads = (_BOUNDS.sub("", match["head"]) for match in itertools.islice(_GLOBAL.finditer(source), _MOST))
    return sorted({name["name"] for head in heads if (name := _CALLED.search(head)) is not None})[:MOST_KERNELS]


def triton_kernels(source: str) -> list[str]:
    r"""Return the names of the functions decorated with `triton.jit`.

    >>> triton_kernels("@triton.autotune(configs=[])\n@triton.jit\ndef relu_kernel(x, out):\n    pass\n")
    ['relu_kernel']
    """
    return sorted({match["name"] for match in _JIT.finditer(source)})[:MOST_KERNELS]
