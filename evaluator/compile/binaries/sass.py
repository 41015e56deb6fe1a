"""Parser of a disassembly: kernels, and the instructions of reduced precision in each.

The text comes from cuobjdump, which reads a library that contains a submission's code. A forged line misdescribes the
submission's own kernels; numerics decide the verdict, not this text.

The names are those of cuobjdump for Turing to Blackwell ("CUDA Binary Utilities", instruction set reference; spellings
checked with compiled kernels). Two of them look like half precision in every fp32 kernel and are not:

- `HFMA2.MMA R4, -RZ, RZ, 1.875, 0` loads a constant: the product is of zero registers.
- `HADD2.F32 R0, -RZ, R2.H0_H0` widens a half to fp32, which is exact. The result of `.F32` has fp32's bits.

Comparisons, minima and maxima (`HSETP2`, `HMNMX2`) round nothing. `DMMA` multiplies fp64.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.cuda_source.kernel_names import plain_name
from evaluator.records import InstructionCount, InstructionKind, KernelInstructions, MachineCode, NumberFormat

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


_LINE = re.compile(
    r"Function : (\S{1,8192})"
    r"|/\*[0-9a-f]{4,8}\*/ {1,80}(?:@!?U?P\w{1,2} +)?"
    r"([A-Z][A-Z0-9]{0,8}MMA\b[\w.]{0,60}|H(?:FMA|ADD|MUL)2\b[\w.]{0,60}"
    r"|(?:F2FP?|I2FP?|MUFU|IDP|ATOM[GS]?|REDG?|UBLKRED)\.[\w.]{1,60})([^;\n]{0,400})"
)
_HALF_TYPES = re.compile(
    r"6__half|7__half2|13__nv_bfloat16|14__nv_bfloat162|4HalfE|8BFloat16E|6half_tE|10bfloat16_tE|_fp8_|Float8_|float_e\dm\d"
)
"""Mangled names of the types of half precision and below, of CUDA, PyTorch and CUTLASS."""
_KINDS = list(InstructionKind)
_ANONYMOUS = re.compile(r"_GLOBAL__N_\w*::")
_MOST_FUNCTIONS = 65_536
_MOST_KERNELS, _MOST_INSTRUCTIONS, _MOST_NAME = 16, 16, 200

_Counts = Counter[tuple[str, Meaning]]


def machine_code(text: str) -> MachineCode:
    r"""Return the kernels of a disassembly (`cuobjdump -sass`) and their instructions of reduced precision.

    >>> machine_code("Function : _Z4gemmPf\n/*0010*/  HMMA.1688.F32.TF32 R4, R4, R8, RZ ;\n").reduced[0].name
    'gemm'
    """
    kernels: dict[str, _Counts] = {}
    current = _Counts()
    for match in _LINE.finditer(text):
        if match[1] is not None:
            current = kernels.setdefault(match[1], _Counts())
            if len(kernels) > _MOST_FUNCTIONS:
                return MachineCode(not_looked_at=f"the library has more than {_MOST_FUNCTIONS} functions")
        elif (op := meaning(match[2], match[3])) is not None:
            current[match[2], op] += 1
    return _cut(MachineCode(kernels=len(kernels), reduced=_kernels(kernels)))


def together(libraries: Iterable[MachineCode]) -> MachineCode:
    """Merge the machine code of several libraries."""
    codes = list(libraries)
    merged = MachineCode(
        kernels=sum(code.kernels for code in codes),
        reduced=[kernel for code in codes for kernel in code.reduced],
        other_reduced=sum(code.other_reduced for code in codes),
        not_looked_at=next((code.not_looked_at for code in codes if code.not_looked_at is not None), None),
    )
    return _cut(merged)


def _kernels(kernels: Mapping[str, _Counts]) -> list[KernelInstructions]:
    """Return the functions with instructions of reduced precision; the instances of a template are one entry."""
    names = {mangled: _plain(mangled) for mangled in kernels}
    with_others = {names[name] for name, counts in kernels.items() if not counts and _HALF_TYPES.search(name) is None}
    merged: dict[tuple[str, bool], _Counts] = {}
    for mangled, counts in kernels.items():
        other_dtype = names[mangled] in with_others and _HALF_TYPES.search(mangled) is not None
        merged.setdefault((names[mangled], other_dtype), _Counts()).update(counts)
    return [
        KernelInstructions(name=name, instructions=_instructions(counts), other_dtype=other_dtype)
        for (name, other_dtype), counts in merged.items()
        if counts
    ]


def _instructions(counts: _Counts) -> list[InstructionCount]:
    entries = [InstructionCount(name, op.kind, op.format, count) for (name, op), count in counts.items()]
    return sorted(entries, key=lambda entry: (_KINDS.index(entry.kind), -entry.count, entry.name))[:_MOST_INSTRUCTIONS]


def _cut(code: MachineCode) -> MachineCode:
    """Return the record with a limited number of kernels: those with tensor cores first, then the most instructions."""
    ordered = sorted(code.reduced, key=_weight)
    left_out = max(len(ordered) - _MOST_KERNELS, 0)
    return replace(code, reduced=ordered[:_MOST_KERNELS], other_reduced=code.other_reduced + left_out)


def _weight(kernel: KernelInstructions) -> tuple[bool, int, int, str]:
    """Return the place of a kernel in the list. An instance for another dtype comes last."""
    total = sum(instruction.count for instruction in kernel.instructions)
    return kernel.other_dtype, _KINDS.index(kernel.instructions[0].kind), -total, kernel.name


def _plain(mangled: str) -> str:
    return _ANONYMOUS.sub("", plain_name(mangled))[:_MOST_NAME]
