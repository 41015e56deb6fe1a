"""Finding about instructions of reduced precision in the machine code, beside the numeric checks.

A finding names instructions and never decides: the size and direction of errors do. Code that the judge did not build
(Triton, NVRTC, libraries) has no machine code here; of library kernels, a profile shows names.
"""

import re

from msgspec.structs import replace

from evaluator.findings import Code, finding
from evaluator.records import (
    ElementFormat,
    Finding,
    Formats,
    KernelInstructions,
    MachineCode,
    NumberFormat,
    Precision,
    Profiling,
)

_BELOW_HALF = frozenset((NumberFormat.FP8, NumberFormat.FP4, NumberFormat.INTEGER))
_BELOW_TF32 = _BELOW_HALF | {NumberFormat.BF16, NumberFormat.FP16}
_REDUCED = {
    Precision.FP32: frozenset(NumberFormat),
    Precision.TF32: _BELOW_TF32,
    Precision.BF16: _BELOW_HALF,
    Precision.FP16: _BELOW_HALF,
}
"""Formats with fewer bits than a precision asks for. fp16 has TF32's significand, but overflows above 65504."""
_DECLARED = {
    ElementFormat.INT8: frozenset((NumberFormat.INTEGER,)),
    ElementFormat.FP8_E4M3: frozenset((NumberFormat.FP8,)),
    ElementFormat.FP8_E5M2: frozenset((NumberFormat.FP8,)),
    ElementFormat.INT4: frozenset((NumberFormat.INTEGER,)),
    # Values of e2m1 are values of e4m3 too, and so are the scales of nvfp4.
    ElementFormat.MXFP4: frozenset((NumberFormat.FP4, NumberFormat.FP8)),
    ElementFormat.NVFP4: frozenset((NumberFormat.FP4, NumberFormat.FP8)),
    ElementFormat.E8M0: frozenset[NumberFormat](),
}
"""Formats of instructions that a problem with such inputs or outputs asks for."""
_NAMES = {
    NumberFormat.FP8: re.compile(r"e4m3|e5m2|fp8|float8", re.IGNORECASE),
    NumberFormat.INTEGER: re.compile(r"i8816|i16816|i16832|imma|igemm|gemm_s8"),
    NumberFormat.BF16: re.compile(r"bf16|bfloat16|nvjet_(?:sm\d+_)?t", re.IGNORECASE),
    NumberFormat.FP16: re.compile(
        r"(?<![0-9a-z])fp?16|c10::Half|__half|half_t|[hs]884|[hs]16816|h1688|_hgemm|hmma|float16|nvjet_(?:sm\d+_)?h"
    ),
    NumberFormat.TF32: re.compile(r"tf32|s1688"),
}
"""Marks in the names of kernels of cuBLAS, cuDNN, CUTLASS and PyTorch, coarsest format first."""
_NO_FORMATS = Formats()
_MOST_LIBRARY_KERNELS, _MOST_NAME = 8, 200
_SHOWN_KERNELS, _SHOWN_NAME = 3, 60


def with_library_kernels(code: MachineCode | None, profiling: Profiling | None) -> MachineCode | None:
    """Return the record with the names of library kernels of reduced precision in the profile."""
    if code is None or profiling is None:
        return code
    names = [use.name[:_MOST_NAME] for use in profiling.kernels if use.own is False and name_format(use.name)]
    return replace(code, library_kernels=list(dict.fromkeys(names))[:_MOST_LIBRARY_KERNELS])


def name_format(name: str) -> NumberFormat | None:
    """Return the reduced format that the name of a library's kernel stands for.

    >>> name_format("cutlass_80_tensorop_s1688gemm_128x256_16x3_nn_align4").value
    'tf32'
    >>> name_format("ampere_sgemm_128x64_nn"), name_format("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8")
    (None, None)
    """
    return next((number_format for number_format, marks in _NAMES.items() if marks.search(name)), None)


def about_machine_code(code: MachineCode | None, precision: Precision, formats: Formats = _NO_FORMATS) -> list[Finding]:
    """Return a finding if the machine code has instructions of fewer bits than the problem asks for.

    Instructions for the declared `formats` of inputs and outputs are asked for.
    """
    if code is None:
        return []
    declared = [*formats.inputs.values(), *(output.format for output in formats.outputs.values() if output.format)]
    reduced = _REDUCED[precision].difference(*(_DECLARED[form] for form in declared))
    kernels = [kernel for kernel in (_reduced(candidate, reduced) for candidate in code.reduced) if kernel.instructions]
    names = [name for name in code.library_kernels if name_format(name) in reduced]
    parts = [kernel.text for kernel in kernels[:_SHOWN_KERNELS]]
    if (omitted := len(kernels) - _SHOWN_KERNELS) > 0:
        parts.append(f"and {omitted} more kernels")
    if names:
        parts.append(
            f"library kernels by their names: {', '.join(name[:_SHOWN_NAME] for name in names[:_SHOWN_KERNELS])}"
        )
    if not parts:
        return []
    message = f"the problem asks for {precision.value}, and the machine code has {'; '.join(parts)}"
    return [finding(Code.REDUCED_INSTRUCTIONS, message, kernels=len(kernels), library_kernels=len(names))]


def _reduced(kernel: KernelInstructions, formats: frozenset[NumberFormat]) -> KernelInstructions:
    """Return the kernel with the instructions of fewer bits; none of an instance for tensors of another dtype."""
    if kernel.other_dtype:
        return replace(kernel, instructions=[])
    return replace(kernel, instructions=[entry for entry in kernel.instructions if entry.format in formats])
