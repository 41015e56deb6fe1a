"""The closed sets that records name things by."""

from enum import StrEnum


class Status(StrEnum):
    """The verdict on a submission."""

    CORRECT = "correct"
    WRONG_RESULT = "wrong_result"
    BUILD_ERROR = "build_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    REJECTED = "rejected"
    INCONCLUSIVE = "inconclusive"
    INFRA_ERROR = "infra_error"


class DeviceKind(StrEnum):
    """Where a submission is run. Cards of different kinds are never mixed in one metric."""

    CUDA = "cuda"
    EMULATED = "emulated"
    CPU = "cpu"


class SandboxMode(StrEnum):
    """`full`: every wall that this machine allows. `none`: limits and a sure kill, nothing else."""

    FULL = "full"
    NONE = "none"


class SizeName(StrEnum):
    """Which of a problem's sizes is used."""

    FULL = "full"
    SMALL = "small"
    AWKWARD = "awkward"


class Order(StrEnum):
    """The order in which the emulator runs the blocks of a grid and the threads of a block."""

    ASCENDING = "ascending"
    DESCENDING = "descending"
    SHUFFLED = "shuffled"


class Fill(StrEnum):
    """What fresh memory of the emulator holds: a kernel that reads it before it writes may be right by chance."""

    NAN = "nan"
    LARGE = "large"
    NEGATIVE = "negative"
    ORDINARY = "ordinary"


class Mode(StrEnum):
    """Whether `Model` and `ModelNew` are put in training or evaluation mode."""

    TRAIN = "train"
    EVAL = "eval"


class WeightsRule(StrEnum):
    """Whether calls have weights of their own, as in training, or all those that were constructed, as in deployment."""

    CHANGING = "changing"
    FROZEN = "frozen"


class WeightsGraded(StrEnum):
    """What the weights of a grade's calls were; `none` where there are none to change."""

    CHANGING = "changing"
    FROZEN = "frozen"
    NONE = "none"


class ToleranceRule(StrEnum):
    """How far an output may be from the expected one.

    `measured`: a multiple of the honest reference's own error against float64, scaled to each row.
    `kernelbench`: that benchmark's rule, atol = rtol = 1e-4 (1e-2 in half precision), against the plain reference.
    """

    MEASURED = "measured"
    KERNELBENCH = "kernelbench"


class Precision(StrEnum):
    """The arithmetic that a problem asks for."""

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"


class Profile(StrEnum):
    """From which distribution the values of a call's inputs come; `evaluator/judge/profiles.py` draws them."""

    AS_GIVEN = "as_given"
    SIGNED_NORMAL = "signed_normal"
    MIXED_MAGNITUDES = "mixed_magnitudes"
    ZEROS_AND_TIES = "zeros_and_ties"
    LARGE = "large"
    SMALL = "small"
    CONSTANT_ROWS = "constant_rows"
    OUTLIERS = "outliers"
    ILL_CONDITIONED = "ill_conditioned"


class Layout(StrEnum):
    """How a tensor may lie in memory, beside the way that `get_inputs` gives it.

    `transposed`: its last two dimensions change places in memory. `gaps`: every second element of a wider one.
    `offset`: an element behind an aligned address.
    """

    TRANSPOSED = "transposed"
    GAPS = "gaps"
    OFFSET = "offset"


class ProfilerKind(StrEnum):
    """What looks at the extra call of a correct submission.

    `torch`: PyTorch's profiler, which says in which kernels the time goes. `ncu`: that, and Nsight Compute, which reads
    the hardware's counters; on `cuda` only.
    """

    TORCH = "torch"
    NCU = "ncu"
