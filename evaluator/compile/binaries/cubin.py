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
_TEXT = ".text."
_MAX_SECTIONS = 65536
EXIT = struct.pack("<QQ", 0x000000000000794D, 0x000FEA0003800000)
"""`EXIT` instruction without dependencies, from Volta to Hopper: the encoding that nvcc emits in an empty kernel."""


class KernelCode(NamedTuple):
    """Instructions of one kernel in a library: mangled name and location."""

    name: str
    start: int
    size: int


def kernel_code(library: bytes) -> list[KernelCode]:
    """Find all kernels of a library. Compressed device code yields no kernels."""
    found: list[KernelCode] = []
    place = library.find(_ELF)
    while place >= 0:
        found += _of_cubin(library, place)
        place = library.find(_ELF, place + 1)
    return found


def without(library: bytes, names: Collection[str] | None = None) -> bytes | None:
    """Return a copy of the library whose kernels, all or those in `names`, exit at once; None without such kernels."""
    left_out = [code for code in kernel_code(library) if names is None or code.name in names]
    if not left_out:
        return None
    changed = bytearray(library)
    for code in left_out:
        changed[code.start : code.start + len(EXIT)] = EXIT
    return bytes(changed)


def _of_cubin(library: bytes, place: int) -> Iterator[KernelCode]:
    if place + _HEADER.size > len(library):
        return
    header = _HEADER.unpack_from(library, place)
    machine, table, size, count, names = header[2], header[6], header[11], header[12], header[13]
    if machine != _CUDA or size != _SECTION.size or count > _MAX_SECTIONS or names >= count:
        return
    if place + table + count * size > len(library):
        return
    sections = [_SECTION.unpack_from(library, place + table + number * size) for number in range(count)]
    strings = place + sections[names][4]
    for section in sections:
        start, length = place + section[4], section[5]
        name = _string(library, strings + section[0])
        if name.startswith(_TEXT) and len(EXIT) <= length and start + length <= len(library):
            yield KernelCode(name.removeprefix(_TEXT), start, length)


def _string(library: bytes, start: int) -> str:
    end = library.find(b"\0", start, start + 8192)
    return library[start:end].decode(errors="replace") if end >= 0 else ""
