"""Kernel names in a built library, read by the judge from the library's bytes without help from a runner."""

import itertools
import re
from collections.abc import Iterable, Iterator

from evaluator.cuda_source.lexer import Code, tokens
from evaluator.cuda_source.symbols import qualified
from evaluator.protocol.frames import SourceFile
from evaluator.records import Record

_ELF = b"\x7fELF"
_FATBINS = b".nv_fatbin", b"__nv_relfatbin"
"""Two searches for a text take a tenth of the time of one for a pattern: 9 ms for 3 MiB."""
_STUB = re.compile(rb"__device_stub_\w{1,2000}")
_STUB_PREFIX = "__device_stub_"
_NAMES = re.compile(r"(\d{1,4})")
_LIBRARIES = ("at::", "c10::", "torch::", "cub::", "thrust::", "cudnn", "cublas", "cutlass::")
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
    functions = [function for file in files for function in Code(tokens(file.text)).functions()]
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
    return name in kernels.names and not name.startswith(_LIBRARIES)
