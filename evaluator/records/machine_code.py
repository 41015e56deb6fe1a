"""Instructions of reduced precision in the machine code of a submission, and library kernels with such names."""

from enum import StrEnum

from evaluator.records.base import Record

_SHOWN_KERNELS, _SHOWN_INSTRUCTIONS, _SHOWN_NAME = 2, 3, 60


class NumberFormat(StrEnum):
    """Format of the numbers that an instruction multiplies, adds or writes.

    `integer` includes binary numbers. `unstated`: TF32, bf16 or fp16, which a descriptor in a register selects.
    """

    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    FP4 = "fp4"
    INTEGER = "integer"
    UNSTATED = "unstated"


class InstructionKind(StrEnum):
    """`tensor_core`: matrix products. `arithmetic`: sums, products, functions. `conversion`: rounding to the format."""

    TENSOR_CORE = "tensor_core"
    ARITHMETIC = "arithmetic"
    CONVERSION = "conversion"


class InstructionCount(Record, frozen=True):
    """An instruction by the disassembler's name, and the number of its occurrences in the text of a kernel."""

    name: str
    kind: InstructionKind
    format: NumberFormat
    count: int


class KernelInstructions(Record, frozen=True):
    """Instructions of reduced precision in a kernel, or in a device function that was not inlined.

    Instances of a template are counted together. `other_dtype`: an instance for half-precision types, and the library
    also has an instance without such types and instructions, as PyTorch's dispatch macros make them.
    """

    name: str
    instructions: list[InstructionCount]
    other_dtype: bool = False

    @property
    def text(self) -> str:
        """The most frequent instructions with their numbers, and the name of the kernel."""
        shown = ", ".join(f"{each.name} ({each.count})" for each in self.instructions[:_SHOWN_INSTRUCTIONS])
        return f"{shown} in {self.name[:_SHOWN_NAME]}{' (for another dtype)' if self.other_dtype else ''}"


class MachineCode(Record, frozen=True):
    """Machine code of all libraries that the judge built for a submission on `cuda`.

    `kernels` counts the kernels that were looked at. `reduced` lists those with instructions of reduced precision,
    tensor cores first; `other_reduced` counts the rest. `library_kernels` are names of kernels of other libraries that
    stand for reduced precision: names in a profile that the submission's process reported, not instructions.
    `not_looked_at` is the reason if the machine code of a library is unknown.
    """

    kernels: int = 0
    reduced: list[KernelInstructions] = []
    other_reduced: int = 0
    library_kernels: list[str] = []
    not_looked_at: str | None = None

    @property
    def text(self) -> str:
        """One line for screens and pages; empty for a submission without kernels."""
        parts = [kernel.text for kernel in self.reduced[:_SHOWN_KERNELS]]
        if (left := len(self.reduced) - _SHOWN_KERNELS + self.other_reduced) > 0:
            parts.append(f"{left} more")
        if self.kernels and not parts:
            parts.append("no tensor-core or half-precision instruction")
        if self.library_kernels:
            parts.append(f"by name: {self.library_kernels[0][:_SHOWN_NAME]}")
        if self.not_looked_at is not None:
            parts.append(f"not looked at: {self.not_looked_at}")
        return "; ".join(parts)
