"""Machine code of kernels in a library built by nvcc: location and removal.

nvcc embeds device code as separate ELF files (cubins) inside a container called fatbin. The section `.text.` plus the
mangled name holds a kernel's instructions ("CUDA Binary Utilities", and the output of `nvcc --keep`). The analysis uses
neither runner output nor source text, and therefore also covers macro-generated and stripped kernels.
"""

import struct
from collections.abc import Collection, Iterator
from typing import NamedTuple

_ELF = b"\x7fELF\x02\x01"
_CUDA = 190
"""EM_CUDA, the ELF machine number of cubins."""
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_TEXT = b".text."
_MOST_NAME_BYTES = 8192
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
        end = library.find(b"\0", name_offset, name_offset + _MOST_NAME_BYTES)
        if end < 0:
            yield None, size + _MOST_NAME_BYTES
        else:
            yield KernelCode(library[name_offset:end].decode(errors="replace"), start, length), size + end - name_offset
