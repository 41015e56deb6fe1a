"""Symbols of objects, and names of kernels."""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator

from evaluator.cuda_source.declarations import NotSplittable
from evaluator.cuda_source.lexer import CodeTokens, tokens
from evaluator.protocol.frames import SourceFile
from evaluator.records import Record

_UNSPEAKABLE = re.compile(r"\{lambda|'lambda|\(anonymous|\{unnamed|\{default")
_LIBRARIES = ("at::", "c10::", "torch::", "std::", "caffe2::", "warpgrade::", "operator ", "__gnu_cxx::")


def symbols(listing: str) -> list[str]:
    """Return the demangled names of an nm listing.

    >>> symbols("                 U void k<float>(float*)")
    ['void k<float>(float*)']
    """
    return [match[1] for line in listing.splitlines() if (match := re.match(r"\s*(?:[0-9a-f]+\s+)?\w (.+)$", line))]


def instantiations(undefined: str, templates: Collection[str]) -> list[str]:
    """List the kernel template instantiations called by a host half. Raises NotSplittable.

    >>> instantiations(" U void ns::k<float, 4>(float*)", {"k"})
    ['ns::k<float, 4>']
    """
    names = []
    for symbol in symbols(undefined):
        name = _function_name(symbol)
        if symbol.startswith("void ") and name.endswith(">") and _base(name) in templates:
            if _UNSPEAKABLE.search(symbol):
                raise NotSplittable("a kernel of a type without a name")
            names.append(name)
    return names


def missing(undefined: str, defined: str, own: Collection[str]) -> list[str]:
    """List the submission's own symbols that a host half needs and the device half lacks.

    A shared library with a missing symbol links but fails on import.
    """
    defined_symbols = set(symbols(defined))
    return [symbol for symbol in symbols(undefined) if symbol not in defined_symbols and _is_own(symbol, own)]


def _is_own(symbol: str, own: Collection[str]) -> bool:
    if symbol.startswith("warpgrade_symbol_"):
        return True
    name = _function_name(symbol)
    return name != symbol and not name.startswith(_LIBRARIES) and _base(name) in own


def _function_name(symbol: str) -> str:
    """Strip the parameters (the last brackets) and the return type of templates.

    >>> _function_name("float* at::TensorBase::data_ptr<float>() const")
    'at::TensorBase::data_ptr<float>'
    """
    symbol = _without_suffixes(symbol)
    end = len(symbol)
    depth = 0
    if symbol.endswith(")"):
        for end in range(len(symbol) - 1, -1, -1):
            depth += {")": 1, "(": -1}.get(symbol[end], 0)
            if depth == 0:
                break
    name = symbol[:end]
    return name if name.startswith("operator ") else name[_last_space(name) + 1 :]


def _without_suffixes(symbol: str) -> str:
    """Strip suffixes behind the parameters.

    >>> _without_suffixes("f(int) const [clone .cold]")
    'f(int)'
    """
    end = len(symbol)
    while symbol.endswith("]", 0, end) and (start := symbol.rfind("[", 0, end)) >= 0:
        if not symbol.startswith(" [clone ", start - 1):
            break
        end = start - 1
    for suffix in (" &&", " &", " const"):
        end -= len(suffix) if symbol.endswith(suffix, 0, end) else 0
    return symbol[:end]


def _last_space(name: str) -> int:
    """Return the index of the last space outside template arguments; -1 without such a space."""
    depth = 0
    for index in range(len(name) - 1, -1, -1):
        depth += {">": 1, "<": -1}.get(name[index], 0)
        if depth == 0 and name[index] == " ":
            return index
    return -1


def qualified(symbol: str) -> str:
    """Strip parameters, return type and template arguments from a demangled function name.

    >>> qualified("void ns::k<float, 4>(float*)")
    'ns::k'
    """
    return "".join(_outside_of_templates(_function_name(symbol)))


def _base(name: str) -> str:
    """Strip namespaces and template arguments."""
    return "".join(_outside_of_templates(name)).rpartition("::")[2]


def _outside_of_templates(name: str) -> Iterator[str]:
    depth = 0
    for character in name:
        depth += character == "<"
        if depth == 0:
            yield character
        depth -= character == ">"


_ELF = b"\x7fELF"
_FATBINS = b".nv_fatbin", b"__nv_relfatbin"
"""Two searches for a text take a tenth of the time of one for a pattern: 9 ms for 3 MiB."""
_STUB = re.compile(rb"__device_stub_\w{1,2000}")
_STUB_PREFIX = "__device_stub_"
_NAMES = re.compile(r"(\d{1,4})")
_KERNEL_LIBRARIES = ("at::", "c10::", "torch::", "cub::", "thrust::", "cudnn", "cublas", "cutlass::")
_MAX_KERNELS = 256
_MOST_STUBS = 16_384
_MOST_NAMES_BYTES = 2 << 20


class Kernels(Record, frozen=True):
    """Kernels of one or more libraries. A stripped library has `device_code` without names.

    `names` are qualified names without template arguments.
    """

    device_code: bool
    names: list[str]


NONE = Kernels(device_code=False, names=[])


def joined(libraries: Iterable[Kernels]) -> Kernels:
    """Merge the kernels of several libraries."""
    kernels = list(libraries)
    names = sorted({name for library in kernels for name in library.names})
    return Kernels(device_code=any(library.device_code for library in kernels), names=names[:_MAX_KERNELS])


def kernels_in_library(library: bytes) -> Kernels:
    """Read the kernel names of a library built by nvcc.

    nvcc stores device code in the section `.nv_fatbin`. For each kernel, nvcc generates a host stub named
    `__device_stub__` plus the kernel's mangled name (CUDA Toolkit, "CUDA Binary Utilities", and the output of `nvcc
    --keep`).
    """
    if not library.startswith(_ELF) or not any(name in library for name in _FATBINS):
        return NONE
    # A pattern with leading digits would be tried at every byte of several megabytes.
    stubs = {(_digits_before(library, match.start()), match[0].decode()) for match in _stubs(library)}
    names = {_of_stub(digits, symbol) for digits, symbol in stubs}
    return Kernels(device_code=True, names=sorted(names)[:_MAX_KERNELS])


def _stubs(library: bytes) -> Iterator[re.Match[bytes]]:
    """Yield stub names up to an honest library's number and size: a hostile text section can contain any number."""
    left_bytes = _MOST_NAMES_BYTES
    for match in itertools.islice(_STUB.finditer(library), _MOST_STUBS):
        left_bytes -= len(match[0])
        if left_bytes < 0:
            return
        yield match


def _digits_before(library: bytes, position: int) -> str:
    before = library[max(position - 4, 0) : position]
    return before[len(before.rstrip(b"0123456789")) :].decode()


def _of_stub(length: str, symbol: str) -> str:
    """Return the kernel name of a stub. The stub's mangled name has its length in front and its parameters behind."""
    stub = symbol[: int(length)] if length else symbol
    name = stub.removeprefix(_STUB_PREFIX)
    return plain_name(name) if name.startswith("_Z") else name.removeprefix("_")


def kernels_in_text(files: Iterable[SourceFile]) -> Kernels:
    """Read the kernel names from sources. In an `emulated` library, kernels are ordinary host functions."""
    functions = [function for file in files for function in CodeTokens(tokens(file.text)).functions()]
    names = sorted({function.name for function in functions if "__global__" in function.qualifiers})
    return Kernels(device_code=bool(names), names=names[:_MAX_KERNELS])


def plain_name(mangled: str) -> str:
    """Strip parameters and template arguments from a mangled name (Itanium C++ ABI, 5.1).

    >>> plain_name("_Z11relu_kernelPKfPfl"), plain_name("_ZN2ns4kernIfEEvPT_"), plain_name("plain")
    ('relu_kernel', 'ns::kern', 'plain')
    """
    position = mangled.find("_Z")
    if position < 0:
        return mangled
    position += 2
    nested = mangled.startswith("N", position)
    position += nested
    if mangled.startswith("L", position):
        position += 1
    names = []
    while (length := _NAMES.match(mangled, position)) is not None:
        start = length.end()
        position = start + int(length[1])
        names.append(mangled[start:position])
        if not nested:
            break
    return "::".join(names) if names else mangled


def is_own(profiled: str, kernels: Kernels) -> bool:
    """Return whether a kernel in a profiler trace, by demangled or mangled name, is one of `kernels`.

    Names in a library's namespace never match: a submission may define a kernel of the same base name.

    >>> own = Kernels(device_code=True, names=["relu_kernel"])
    >>> is_own("relu_kernel(float const*, float*, long)", own), is_own("void at::native::relu_kernel<4>(int)", own)
    (True, False)
    """
    name = plain_name(profiled) if profiled.startswith("_Z") else qualified(profiled)
    name = name.replace("(anonymous namespace)::", "").replace("_GLOBAL__N__", "")
    return name in kernels.names and not name.startswith(_KERNEL_LIBRARIES)
