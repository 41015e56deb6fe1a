"""Imported symbols of a library, and kernels of a cubin, read from ELF.

The dynamic loader binds imported names at load time (ELF, "Dynamic Linking"). A function that calls PyTorch operations
by name therefore needs the imports, regardless of source text and flags. The analysis uses no runner output.

nvcc embeds device code as separate ELF files (cubins) inside a container called fatbin. The section `.text.` plus the
mangled name holds a kernel's instructions ("CUDA Binary Utilities", and the output of `nvcc --keep`). The analysis uses
neither runner output nor source text, and therefore also covers macro-generated and stripped kernels.
"""

import functools
import re
import struct
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from evaluator.cuda_source.symbols import plain_name
from evaluator.records import Record

_ELF = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC_SYMBOLS = 11
"""SHT_DYNSYM, the section type of the dynamic symbol table."""
_MOST_SECTIONS, _MOST_SYMBOLS, _MOST_NAME_BYTES = 4096, 16384, 1024
_MOST_LISTED = 1024
_OPERATION = b"_ZN2at4_ops"
_CLASS = b"_ZN5torch10class_base"
_BESIDE = re.compile(
    rb"_ZN2at(?:6native|3cpu|28compositeexplicitautograd)\d"  # Kernels behind the dispatcher.
    rb"|dlm?open$|dlv?sym$|dl_iterate_phdr$|_r_debug$|_dl_|__libc_dl"  # Function lookup by names computed at run time.
    rb"|(?:cblas_|mkl_|dnnl_|LAPACKE_)|[sdcz](?:gemm|gemv|ger|dot|axpy|trsm|syrk|symm)_$"
)


class ImportedSymbols(Record, frozen=True):
    """Imports of libraries. `operations` are PyTorch operations called through the dispatcher, by C++ name.

    `beside` lists imports that compute without the dispatcher, or look up functions at run time. `classes` reports
    registrations for `torch.classes`. Without `readable`, the imports are unknown.
    """

    operations: list[str] = []
    beside: list[str] = []
    classes: bool = False
    readable: bool = True

    @property
    def compute(self) -> bool:
        """Whether any of `operations` computes. Most operations only create or describe tensors."""
        return any(map(_computes, self.operations))


def together(libraries: Iterable[ImportedSymbols]) -> ImportedSymbols:
    """Merge the imports of several libraries."""
    imports = list(libraries)
    return ImportedSymbols(
        operations=sorted({name for library in imports for name in library.operations})[:_MOST_LISTED],
        beside=sorted({name for library in imports for name in library.beside})[:_MOST_LISTED],
        classes=any(library.classes for library in imports),
        readable=all(library.readable for library in imports),
    )


def imported_symbols(library: bytes) -> ImportedSymbols:
    """Read the imports of a shared library; not `readable` without a symbol table of acceptable size."""
    try:
        names = _undefined(library)
    except (struct.error, ValueError):
        return ImportedSymbols(readable=False)
    called = {
        _plain(name).removeprefix("at::_ops::").partition("::")[0] for name in names if name.startswith(_OPERATION)
    }
    return ImportedSymbols(
        operations=sorted(called)[:_MOST_LISTED],
        beside=sorted(_plain(name) for name in names if _BESIDE.match(name))[:_MOST_LISTED],
        classes=any(name.startswith(_CLASS) for name in names),
    )


def _undefined(library: bytes) -> set[bytes]:
    """Return the mangled names of undefined symbols. Raises ValueError or struct.error for invalid libraries."""
    if not library.startswith(_ELF):
        raise ValueError("no ELF file of 64 bits")
    header = _HEADER.unpack_from(library, 0)
    table, size, count = header[6], header[11], header[12]
    if size != _SECTION.size or count > _MOST_SECTIONS or table + count * size > len(library):
        raise ValueError("no table of sections")
    sections = [_SECTION.unpack_from(library, table + number * size) for number in range(count)]
    (symbols,) = [section for section in sections if section[1] == _DYNAMIC_SYMBOLS]
    too_many = symbols[5] > _MOST_SYMBOLS * _SYMBOL.size
    if too_many or symbols[4] + symbols[5] > len(library) or symbols[6] >= count:
        raise ValueError("no table of symbols that is looked at")
    strings = sections[symbols[6]]
    entries = _SYMBOL.iter_unpack(library[symbols[4] : symbols[4] + symbols[5] // _SYMBOL.size * _SYMBOL.size])
    return {_name(library, strings[4] + name) for name, _, _, section, _, _ in entries if section == 0 and name}


def _name(library: bytes, start: int) -> bytes:
    end = library.find(b"\0", start, start + _MOST_NAME_BYTES)
    return library[start : end if end >= 0 else start + _MOST_NAME_BYTES]


def _plain(mangled: bytes) -> str:
    return plain_name(mangled.decode(errors="replace"))


def _computes(name: str) -> bool:
    from evaluator.protocol.operations import computes, operator_of

    operation = _operations().get(name)
    operator = None if operation is None else operator_of(operation)
    return operator is None or computes(operator)


@functools.cache
def _operations() -> dict[str, str]:
    """Map the C++ names of PyTorch operations to their dispatcher names."""
    import torch

    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]  # noqa: SLF001
    return {name.removeprefix("aten::").replace(".", "_"): name for name in names}


_CUDA = 190
"""EM_CUDA, the ELF machine number of cubins."""
_TEXT = b".text."
_MOST_KERNEL_NAME_BYTES = 8192
EXIT = struct.pack("<QQ", 0x000000000000794D, 0x000FEA0003800000)
"""`EXIT` instruction without dependencies, from Volta to Hopper: the encoding that nvcc emits in an empty kernel."""


class KernelCode(NamedTuple):
    """Instructions of one kernel in a library: mangled name and location."""

    name: str
    start: int
    size: int


def kernel_code(library: bytes) -> list[KernelCode]:
    """Find all kernels of a library. Compressed device code and forged cubins that share bytes yield no kernels.

    Tables and names of a compiler's cubins never overlap, so all together are no larger than the library. The sum is
    the limit of work: a submission can write a library with many headers in front of one large table.
    """
    kernels: list[KernelCode] = []
    unread_bytes = len(library)
    offset = library.find(_ELF)
    while offset >= 0:
        for code, read_bytes in _of_cubin(library, offset):
            unread_bytes -= read_bytes
            if unread_bytes < 0:
                return []
            if code is not None:
                kernels.append(code)
        offset = library.find(_ELF, offset + 1)
    return kernels


def without(library: bytes, names: Collection[str] | None = None) -> bytes | None:
    """Return a copy of the library whose kernels, all or those in `names`, exit at once; None without such kernels."""
    left_out = [code for code in kernel_code(library) if names is None or code.name in names]
    if not left_out:
        return None
    changed = bytearray(library)
    for code in left_out:
        changed[code.start : code.start + len(EXIT)] = EXIT
    return bytes(changed)


def _of_cubin(library: bytes, offset: int) -> Iterator[tuple[KernelCode | None, int]]:
    """Yield for each section the kernel, if it is one, and the number of bytes of table and names that were read."""
    if offset + _HEADER.size > len(library):
        return
    header = _HEADER.unpack_from(library, offset)
    machine, table, size, count, names = header[2], header[6], header[11], header[12], header[13]
    if machine != _CUDA or size != _SECTION.size or names >= count:
        return
    if offset + table + count * size > len(library):
        return
    strings = offset + _SECTION.unpack_from(library, offset + table + names * size)[4]
    for number in range(count):
        section = _SECTION.unpack_from(library, offset + table + number * size)
        start, length, name_offset = offset + section[4], section[5], strings + section[0]
        if not library.startswith(_TEXT, name_offset) or length < len(EXIT) or start + length > len(library):
            yield None, size
            continue
        name_offset += len(_TEXT)
        end = library.find(b"\0", name_offset, name_offset + _MOST_KERNEL_NAME_BYTES)
        if end < 0:
            yield None, size + _MOST_KERNEL_NAME_BYTES
        else:
            yield KernelCode(library[name_offset:end].decode(errors="replace"), start, length), size + end - name_offset
