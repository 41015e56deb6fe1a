"""Machine code of kernels: disassembly, instructions of reduced precision, resources.

The text comes from cuobjdump, which reads a library that contains a submission's code. A forged line misdescribes the
submission's own kernels; numerics decide the verdict, not this text.

The names are those of cuobjdump for Turing to Blackwell ("CUDA Binary Utilities", instruction set reference; spellings
checked with compiled kernels). Two of them look like half precision in every fp32 kernel and are not:

- `HFMA2.MMA R4, -RZ, RZ, 1.875, 0` loads a constant: the product is of zero registers.
- `HADD2.F32 R0, -RZ, R2.H0_H0` widens a half to fp32, which is exact. The result of `.F32` has fp32's bits.

Comparisons, minima and maxima (`HSETP2`, `HMNMX2`) round nothing. `DMMA` multiplies fp64.

cuobjdump parses bytes that a submission influenced. Its output goes to a file of limited size, and is untrusted text.
"""

import hashlib
import inspect
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.builder import LIMITS, RunTool, read_library, work_folder
from evaluator.cuda_source.symbols import kernels_in_library, plain_name
from evaluator.records import (
    InstructionCount,
    InstructionKind,
    KernelInstructions,
    KernelResources,
    MachineCode,
    NumberFormat,
)
from evaluator.sandbox import ToolResult
from evaluator.toolchain.host_compiler import InstalledTool
from evaluator.toolchain.nvcc import cuobjdump

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


VERBOSE = "-Xptxas=-v"
_MOST = 64
_ENTRY = re.compile(r"ptxas info\s+: Compiling entry function '([^']{1,4096})'")
_STACK = re.compile(r"(\d{1,9}) bytes stack frame, (\d{1,9}) bytes spill stores, (\d{1,9}) bytes spill loads")
_USED = re.compile(r"ptxas info\s+: Used (\d{1,9}) registers(.*)")
_SHARED = re.compile(r"(\d{1,9})(?:\+\d{1,9})? bytes smem")


def kernel_resources(log: str) -> list[KernelResources]:
    r"""Parse the kernels of a build log, most registers first.

    The log may contain submission text. A forged ptxas line misdescribes a kernel, without any advantage. Dynamic
    shared memory is not included.

    >>> kernel_resources("ptxas info    : Compiling entry function '_Z4reluPf' for 'sm_90a'\n"
    ...     "ptxas info    : Used 32 registers, used 1 barriers, 1024 bytes smem\n")[0].shared_bytes
    1024
    """
    kernels: dict[str, KernelResources] = {}
    name, stack = "", (0, 0, 0)
    for line in log.splitlines():
        if (entry := _ENTRY.search(line)) is not None:
            name, stack = entry[1], (0, 0, 0)
        elif (frame := _STACK.search(line)) is not None and name:
            stack = int(frame[1]), int(frame[2]), int(frame[3])
        elif (used := _USED.search(line)) is not None and name:
            shared = _SHARED.search(used[2])
            kernels[name] = KernelResources(plain_name(name), int(used[1]), int(shared[1]) if shared else 0, *stack)
            name = ""
    return sorted(kernels.values(), key=lambda kernel: (-kernel.registers, kernel.name))[:_MOST]


_LIBRARY, _LISTING = "library.so", "listing.sass"
_MOST_LISTING_BYTES = 64 << 20
"""400,000 instructions. A usual extension has a few thousand."""
_LIMITS = replace(LIMITS, memory_bytes=4 << 30, file_bytes=_MOST_LISTING_BYTES, work_bytes=256 << 20, processes=16)


def read_machine_code(library: bytes, run_tool: RunTool, cache: BuildCache, timeout_s: float) -> MachineCode:
    """Return the machine code of a built library, from `cache` if known. An unknown machine code has its reason."""
    if not kernels_in_library(library).device_code:
        return MachineCode()
    tool = cuobjdump()
    if tool is None:
        return MachineCode(not_looked_at="cuobjdump not found beside nvcc")
    store, key = cache.machine_code, _key(library, tool)
    if (entry := store.get(key)) is not None:
        try:
            return msgspec.json.decode(entry.library, type=MachineCode)
        except msgspec.DecodeError:
            store.discard(key)
    code, wall_s = _disassembled(library, tool, run_tool, timeout_s)
    if code.not_looked_at is None:
        store.put(key, msgspec.json.encode(code), log="", wall_s=wall_s)
    return code


def _disassembled(
    library: bytes, tool: InstalledTool, run_tool: RunTool, timeout_s: float
) -> tuple[MachineCode, float]:
    """Return the machine code, and the duration of the disassembly."""
    with work_folder() as work:
        (work / _LIBRARY).write_bytes(library)
        # cuobjdump has no option for an output file, and the sandbox keeps little of what a program prints.
        argv = ["/bin/sh", "-c", f'exec "$0" -sass {_LIBRARY} >{_LISTING}', tool.path]
        result = run_tool(argv, work=work, limits=_LIMITS, timeout_s=timeout_s)
        listing = read_library(work / _LISTING, _MOST_LISTING_BYTES)
        reason = _why_not(result, work / _LISTING)
    if reason is not None:
        return MachineCode(not_looked_at=reason), result.wall_s
    code = machine_code((listing or b"").decode(errors="replace"))
    if code == MachineCode():
        code = MachineCode(not_looked_at="cuobjdump shows no kernel of a library with device code")
    return code, result.wall_s


def _why_not(result: ToolResult, listing: Path) -> str | None:
    """Return why a disassembly is incomplete."""
    if result.ok:
        return None
    if result.timed_out:
        return "cuobjdump was stopped at its time limit"
    if os.path.lexists(listing) and listing.lstat().st_size >= _MOST_LISTING_BYTES:
        return f"the disassembly exceeds {_MOST_LISTING_BYTES >> 20} MiB"
    last_line = (result.output.strip().splitlines() or [f"ended with {result.signal or result.exit_code}"])[-1]
    return f"cuobjdump failed: {last_line[:200]}"


def _key(library: bytes, tool: InstalledTool) -> str:
    """Hash everything that determines the record: the library, the disassembler, the parser, the record's fields."""
    parser = inspect.getsource(sys.modules[machine_code.__module__])
    parts = [hashlib.sha256(library).hexdigest(), tool, msgspec.json.schema(MachineCode), parser]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
