"""Meaning of one instruction in a disassembly: whether it computes with fewer bits than fp32, and in which format.

The names are those of cuobjdump for Turing to Blackwell ("CUDA Binary Utilities", instruction set reference; spellings
checked with compiled kernels). Two of them look like half precision in every fp32 kernel and are not:

- `HFMA2.MMA R4, -RZ, RZ, 1.875, 0` loads a constant: the product is of zero registers.
- `HADD2.F32 R0, -RZ, R2.H0_H0` widens a half to fp32, which is exact. The result of `.F32` has fp32's bits.

Comparisons, minima and maxima (`HSETP2`, `HMNMX2`) round nothing. `DMMA` multiplies fp64.
"""

import re
from typing import NamedTuple

from evaluator.records import InstructionKind, NumberFormat

_FORMATS = {
    "E2M1": NumberFormat.FP4,
    "E3M2": NumberFormat.FP8,
    "E2M3": NumberFormat.FP8,
    "E4M3": NumberFormat.FP8,
    "E5M2": NumberFormat.FP8,
    "BF16": NumberFormat.BF16,
    "F16": NumberFormat.FP16,
    "TF32": NumberFormat.TF32,
}
"""Formats in the names of instructions, coarsest first. The formats of six bits count as fp8."""
_TENSOR_CORES = {
    "HMMA": NumberFormat.FP16,
    "HGMMA": NumberFormat.FP16,
    "UTCHMMA": NumberFormat.UNSTATED,
    "QMMA": NumberFormat.FP8,
    "QGMMA": NumberFormat.FP8,
    "UTCQMMA": NumberFormat.FP8,
    "OMMA": NumberFormat.FP4,
    "UTCOMMA": NumberFormat.FP4,
    "IMMA": NumberFormat.INTEGER,
    "IGMMA": NumberFormat.INTEGER,
    "UTCIMMA": NumberFormat.INTEGER,
    "BMMA": NumberFormat.INTEGER,
    "BGMMA": NumberFormat.INTEGER,
}
"""Matrix products, with the format of operands that the name does not state."""
_ZERO = re.compile(r"[-~|]*U?RZ\b")
_WIDE = frozenset(("F32", "F64"))


class Meaning(NamedTuple):
    """Kind and format of an instruction of reduced precision."""

    kind: InstructionKind
    format: NumberFormat


def meaning(name: str, operands: str) -> Meaning | None:
    """Return the meaning of an instruction; None if nothing is computed with fewer bits than fp32.

    >>> meaning("HMMA.1688.F32.TF32", "R4, R4, R8, RZ").format.value
    'tf32'
    >>> meaning("HFMA2.MMA", "R4, -RZ, RZ, 1.875, 0"), meaning("HADD2.F32", "R0, -RZ, R2.H0_H0")
    (None, None)
    """
    base, *words = name.split(".")
    if base.endswith("MMA"):
        return _matrix_product(base, words)
    if base in ("HFMA2", "HADD2", "HMUL2") and "F32" not in words:
        return _half_arithmetic(words, [word.strip() for word in operands.split(",")])
    if base in ("F2F", "F2FP", "I2F", "I2FP"):
        return _conversion(base, words)
    if base == "MUFU" or (base.startswith(("ATOM", "RED", "UBLKRED")) and "ADD" in words):
        number_format = _coarsest(words)
        return None if number_format is None else Meaning(InstructionKind.ARITHMETIC, number_format)
    if base == "IDP":  # Products of four or two small integers (__dp4a).
        return Meaning(InstructionKind.ARITHMETIC, NumberFormat.INTEGER)
    return None


def _matrix_product(base: str, words: list[str]) -> Meaning | None:
    if base == "DMMA":
        return None
    default = _TENSOR_CORES.get(base, NumberFormat.UNSTATED)
    stated = _coarsest(words) if default is not NumberFormat.INTEGER else None
    return Meaning(InstructionKind.TENSOR_CORE, stated or default)


def _half_arithmetic(words: list[str], operands: list[str]) -> Meaning | None:
    if any(_ZERO.match(word) for word in operands[1:3]):  # A sum with zero, or a product with zero, rounds nothing.
        return None
    return Meaning(InstructionKind.ARITHMETIC, _coarsest(words) or NumberFormat.FP16)


def _conversion(base: str, words: list[str]) -> Meaning | None:
    """Return the meaning of a conversion, named with its result first. Packing without a format is to fp16."""
    formats = [word for word in words if word in _FORMATS or word in _WIDE]
    if formats and formats[0] in _WIDE:
        return None
    number_format = _coarsest(words) or (NumberFormat.FP16 if base == "F2FP" and "PACK_AB" in words else None)
    return None if number_format is None else Meaning(InstructionKind.CONVERSION, number_format)


def _coarsest(words: list[str]) -> NumberFormat | None:
    """Return the format with the fewest bits among the words of a name (`BF16_V2` and `F16x2` are pairs)."""
    singles = {word.removesuffix("_V2").removesuffix("x2") for word in words}
    return next((number_format for word, number_format in _FORMATS.items() if word in singles), None)
