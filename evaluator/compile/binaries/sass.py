"""Parser of a disassembly: kernels, and the instructions of reduced precision in each.

The text comes from cuobjdump, which reads a library that contains a submission's code. A forged line misdescribes the
submission's own kernels; numerics decide the verdict, not this text.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from evaluator.compile.binaries.instructions import Meaning, meaning
from evaluator.cuda_source.kernel_names import plain_name
from evaluator.records import InstructionCount, InstructionKind, KernelInstructions, MachineCode

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
