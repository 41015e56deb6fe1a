"""Enumerations of the records."""

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
    """Device of a grade. No metric mixes cards of different kinds."""

    CUDA = "cuda"
    EMULATED = "emulated"
    CPU = "cpu"


class SandboxMode(StrEnum):
    """`full`: all layers that this machine permits. `none`: limits and process cleanup only."""

    FULL = "full"
    NONE = "none"


class SizeName(StrEnum):
    """Name of a problem's size."""

    FULL = "full"
    SMALL = "small"
    AWKWARD = "awkward"


class Order(StrEnum):
    """The order in which the emulator runs the blocks of a grid and the threads of a block."""

    ASCENDING = "ascending"
    DESCENDING = "descending"
    SHUFFLED = "shuffled"


class Fill(StrEnum):
    """Contents of fresh emulator memory. A kernel that reads uninitialised memory may be correct by chance."""

    NAN = "nan"
    LARGE = "large"
    NEGATIVE = "negative"
    ORDINARY = "ordinary"


class Mode(StrEnum):
    """Training or evaluation mode of `Model` and `ModelNew`."""

    TRAIN = "train"
    EVAL = "eval"


class WeightsRule(StrEnum):
    """Rule for the weights: new values in each call, as in training, or the initial values, as in deployment."""

    CHANGING = "changing"
    FROZEN = "frozen"


class ValuesRule(StrEnum):
    """Values of the inputs: the problem's own and other distributions, or the problem's own alone."""

    ALL = "all"
    OWN = "own"


class CheckRule(StrEnum):
    """Role of the function `check` of a problem: beside the comparison with the expected output, or instead of it."""

    BESIDE = "beside"
    INSTEAD = "instead"


class L2Rule(StrEnum):
    """Inputs of a timed call on `cuda`: flushed from the L2 cache, or read by the judge just before the call."""

    COLD = "cold"
    WARM = "warm"


class WeightsGraded(StrEnum):
    """Weights used by the calls of a grade; `none` for a problem without changeable weights."""

    CHANGING = "changing"
    FROZEN = "frozen"
    NONE = "none"


class ToleranceRule(StrEnum):
    """Rule for the allowed error of an output.

    `measured`: a multiple of the reference's own error against float64, relative to each row. `kernelbench`:
    KernelBench's rule against the plain reference, atol = rtol = 1e-4 (1e-2 in half precision). `benchmark`: the rule
    of the problem's own benchmark (`BenchmarkRule`), on the values that `get_inputs` draws.
    """

    MEASURED = "measured"
    KERNELBENCH = "kernelbench"
    BENCHMARK = "benchmark"


class BenchmarkRule(StrEnum):
    """Rule of a problem's own benchmark, for a second opinion.

    `kernelbot` and `check` are functions of the problem: `check(inputs, outputs)`.
    """

    KERNELBENCH = "kernelbench"
    SOL_EXECBENCH = "sol_execbench"
    FLASHINFER_BENCH = "flashinfer_bench"
    ATREX = "atrex"
    KERNELBOT = "kernelbot"
    CHECK = "check"

    @property
    def is_check(self) -> bool:
        """Whether the rule is a function of the problem."""
        return self in (BenchmarkRule.KERNELBOT, BenchmarkRule.CHECK)

    @property
    def label(self) -> str:
        """The benchmark's name."""
        return _TITLES[self]


_TITLES = {
    BenchmarkRule.KERNELBENCH: "KernelBench",
    BenchmarkRule.SOL_EXECBENCH: "SOL-ExecBench",
    BenchmarkRule.FLASHINFER_BENCH: "FlashInfer",
    BenchmarkRule.ATREX: "Atrex",
    BenchmarkRule.KERNELBOT: "KernelBot",
    BenchmarkRule.CHECK: "Own check",
}


class Precision(StrEnum):
    """Precision of the arithmetic that a problem requires."""

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"


class ElementFormat(StrEnum):
    """Format of the elements of an input or output, with steps between neighbouring values.

    `int4` has two elements in a byte of uint8, in two's complement. `mxfp4` and `nvfp4` have two elements of e2m1 in a
    byte; blocks of 32 share a scale in e8m0, and blocks of 16 a scale in e4m3. `e8m0` is a power of two in a byte.
    """

    INT8 = "int8"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    INT4 = "int4"
    MXFP4 = "mxfp4"
    NVFP4 = "nvfp4"
    E8M0 = "e8m0"


class Profile(StrEnum):
    """Distribution of the values of a call's inputs, drawn by the judge."""

    AS_GIVEN = "as_given"
    SIGNED_NORMAL = "signed_normal"
    MIXED_MAGNITUDES = "mixed_magnitudes"
    ZEROS_AND_TIES = "zeros_and_ties"
    LARGE = "large"
    SMALL = "small"
    CONSTANT_ROWS = "constant_rows"
    OUTLIERS = "outliers"
    ILL_CONDITIONED = "ill_conditioned"
    RELATED = "related"
    ZERO_ROWS = "zero_rows"
    NEAR_ONE = "near_one"


class Layout(StrEnum):
    """Memory layout of an input tensor, beside the layout of `get_inputs`.

    `transposed`: the last two dimensions are swapped in memory. `gaps`: every second element of a wider tensor.
    `offset`: one element past an aligned address.
    """

    TRANSPOSED = "transposed"
    GAPS = "gaps"
    OFFSET = "offset"


class GradeMode(StrEnum):
    """Extent of a grade: correctness and time, or correctness alone."""

    FULL = "full"
    CHECK = "check"


class ProfilerKind(StrEnum):
    """Profiler of the additional call of a correct submission.

    `torch`: PyTorch's profiler, with the time of each kernel. `ncu`: also Nsight Compute's hardware counters; `cuda`
    only.
    """

    TORCH = "torch"
    NCU = "ncu"
