"""Which kernels a built library holds, read from its own bytes by the judge: no word of a runner's is in it."""

import itertools
import re
from collections.abc import Iterable, Iterator

from evaluator.build.split_symbols import qualified
from evaluator.emulator.lexer import Code, tokens
from evaluator.protocol.frames import SourceFile
from evaluator.records import Record

_ELF = b"\x7fELF"
_FATBIN = re.compile(rb"\.nv_fatbin|__nv_relfatbin")
_STUB = re.compile(rb"__device_stub_\w{1,2000}")
_STUB_PREFIX = "__device_stub_"
_NAMES = re.compile(r"(\d{1,4})")
_LIBRARIES = ("at::", "c10::", "torch::", "cub::", "thrust::", "cudnn", "cublas", "cutlass::")
_MAX_KERNELS = 256
_MOST_STUBS = 16_384
_MOST_NAMES_BYTES = 2 << 20


class Kernels(Record, frozen=True):
    """The kernels of one or several libraries. `device_code` may be there without a name: a library can be stripped.

    `names` are qualified, without template arguments.
    """

    device_code: bool
    names: list[str]


NONE = Kernels(device_code=False, names=[])


def joined(found: Iterable[Kernels]) -> Kernels:
    """Give the kernels of several libraries."""
    parts = list(found)
    names = sorted({name for part in parts for name in part.names})
    return Kernels(device_code=any(part.device_code for part in parts), names=names[:_MAX_KERNELS])


def kernels_in_library(library: bytes) -> Kernels:
    """Read the kernels of a library that nvcc made.

    nvcc puts device code into a section of its own, `.nv_fatbin`, and makes for each kernel a function of the host
    that is called `__device_stub__` and the kernel's mangled name (CUDA Toolkit, "CUDA Binary Utilities", and the
    output of `nvcc --keep`).
    """
    if not library.startswith(_ELF) or _FATBIN.search(library) is None:
        return NONE
    # A pattern that began with the digits would be tried at every byte of megabytes.
    found = {(_digits_before(library, match.start()), match[0].decode()) for match in _stubs(library)}
    names = {_of_stub(digits, symbol) for digits, symbol in found}
    return Kernels(device_code=True, names=sorted(names)[:_MAX_KERNELS])


def _stubs(library: bytes) -> Iterator[re.Match[bytes]]:
    """Find the stubs' names, as many as a library honestly has: a text section can hold any number."""
    left_bytes = _MOST_NAMES_BYTES
    for match in itertools.islice(_STUB.finditer(library), _MOST_STUBS):
        left_bytes -= len(match[0])
        if left_bytes < 0:
            return
        yield match


def _digits_before(library: bytes, place: int) -> str:
    before = library[max(place - 4, 0) : place]
    return before[len(before.rstrip(b"0123456789")) :].decode()


def _of_stub(length: str, symbol: str) -> str:
    """Give the kernel of a stub. The stub is mangled too: its own length stands before it, its parameters behind."""
    own = symbol[: int(length)] if length else symbol
    name = own.removeprefix(_STUB_PREFIX)
    return plain_name(name) if name.startswith("_Z") else name.removeprefix("_")


def kernels_in_text(files: Iterable[SourceFile]) -> Kernels:
    """Read the kernels that sources define: on `emulated` a kernel is a function like any other in the library."""
    functions = [function for file in files for function in Code(tokens(file.text)).functions()]
    names = sorted({function.name for function in functions if "__global__" in function.qualifiers})
    return Kernels(device_code=bool(names), names=names[:_MAX_KERNELS])


def plain_name(mangled: str) -> str:
    """Take the parameters and template arguments off a mangled name (Itanium C++ ABI, 5.1).

    >>> plain_name("_Z11relu_kernelPKfPfl"), plain_name("_ZN2ns4kernIfEEvPT_"), plain_name("plain")
    ('relu_kernel', 'ns::kern', 'plain')
    """
    place = mangled.find("_Z")
    if place < 0:
        return mangled
    place += 2
    nested = mangled.startswith("N", place)
    place += nested
    if mangled.startswith("L", place):
        place += 1
    parts = []
    while (length := _NAMES.match(mangled, place)) is not None:
        start = length.end()
        place = start + int(length[1])
        parts.append(mangled[start:place])
        if not nested:
            break
    return "::".join(parts) if parts else mangled


def is_own(profiled: str, kernels: Kernels) -> bool:
    """Say whether a kernel that a profiler saw, under its demangled or mangled name, is one of `kernels`.

    A name in a library's own namespace never is: a submission may define a kernel of that name too.

    >>> own = Kernels(device_code=True, names=["relu_kernel"])
    >>> is_own("relu_kernel(float const*, float*, long)", own), is_own("void at::native::relu_kernel<4>(int)", own)
    (True, False)
    """
    name = plain_name(profiled) if profiled.startswith("_Z") else qualified(profiled)
    name = name.replace("(anonymous namespace)::", "").replace("_GLOBAL__N__", "")
    return name in kernels.names and not name.startswith(_LIBRARIES)
