"""Frames from runner to judge. The sender is untrusted: every field has a limit."""

from typing import Annotated

import msgspec

from evaluator.protocol.frames.bounds import (
    MOST_ASSUMED,
    MOST_CACHE_BYTES,
    MOST_FUNCTIONS,
    MOST_ITEMS,
    MOST_KERNEL_TEXT,
    Dimension,
    Flags,
    Name,
    ShortText,
    Text,
    Token,
)
from evaluator.protocol.frames.values import Frame, Node, TensorView

Resource = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Place = Annotated[int, msgspec.Meta(ge=0, le=1 << 22)]


class SourceFile(Frame, frozen=True):
    """Source file passed to `load`, or a header beside it; `name` is the path below the submission's folder."""

    name: Name
    text: Text


class BuildRequest(Frame, frozen=True):
    """Runner: call of `load_inline` or `load`. `load` fills `files`, `load_inline` the source lists.

    `headers` come from the submission's own folder.
    """

    name: Name
    cpp_sources: Annotated[list[Text], msgspec.Meta(max_length=256)] = []
    cuda_sources: Annotated[list[Text], msgspec.Meta(max_length=256)] = []
    functions: Annotated[dict[Name, ShortText], msgspec.Meta(max_length=1024)] | None = None
    files: Annotated[list[SourceFile], msgspec.Meta(max_length=256)] = []
    headers: Annotated[list[SourceFile], msgspec.Meta(max_length=256)] = []
    extra_cflags: Flags = []
    extra_cuda_cflags: Flags = []
    extra_ldflags: Flags = []
    extra_include_paths: Flags = []
    with_cuda: bool = False
    python_module: bool = True
    error_handling: bool = True
    implicit_headers: bool = True


class Warmed(Frame, frozen=True):
    """Runner: the device is initialized."""


class Loaded(Frame, frozen=True):
    """Runner: the submission is imported and defines ModelNew."""


class Constructed(Frame, frozen=True):
    """Runner: ModelNew is constructed.

    `difference` names the reference's weights that were not copied, or says why no weight was copied; else None.
    `weights` locates the parameters that the judge changes between calls, in the reference's shapes. A view without an
    offset lies in private runner memory. A missing name has no counterpart in ModelNew. `assumed` names tensors that
    correspond by name or by close values alone, and had other values: ModelNew's names by the reference's names, the
    first few. `partly_in_evaluation`: a module of ModelNew is in evaluation mode.
    """

    difference: ShortText | None
    weights: Annotated[dict[Name, TensorView], msgspec.Meta(max_length=MOST_ITEMS)] = {}
    assumed: Annotated[dict[Name, Name], msgspec.Meta(max_length=MOST_ASSUMED)] = {}
    partly_in_evaluation: bool = False


class Queued(Frame, frozen=True):
    """Runner: on `cuda`, all work of the call is queued on the GPU. No verdict depends on the truth of the frame."""

    index: int


class Done(Frame, frozen=True):
    """Runner: the call is over.

    Keys of `gradients` are `input x` or `parameter fc.weight`; a missing gradient is None. `launches` counts the kernel
    launches of the call on `emulated`, and `refused` describes the first launch that a GPU would refuse. Both are
    evidence only: a submission could forge a larger number, or another reason for a wrong output. After a preparation,
    `moved` names changing weights outside of the places in `Constructed`: the runner copies them.
    """

    index: int
    outputs: Node
    token: Token = 0
    gradients: Annotated[dict[Name, TensorView | None], msgspec.Meta(max_length=MOST_ITEMS)] | None = None
    launches: Dimension | None = None
    refused: ShortText = ""
    moved: Annotated[list[Name], msgspec.Meta(max_length=MOST_ITEMS)] = []


class WindowDone(Frame, frozen=True):
    """Runner: all calls of a window are over."""

    calls: Annotated[list[Done], msgspec.Meta(max_length=32)]


class Counted(Frame, frozen=True):
    """Runner: counts of computing work since the `Count` frame that began the count.

    `launches` counts the submission's own kernels on `emulated`, `library_calls` operations of PyTorch and of NVIDIA's
    libraries. `own_calls` counts functions of the submission's extensions, `mixed_calls` the `own_calls` with PyTorch
    operations inside. `flop` and `moved_bytes` are the work of PyTorch's `operations`. `library_launches` counts the
    launches of NVIDIA's libraries, with unknown work, and `exported_bytes` the tensors converted to NumPy arrays or
    lists. A submission can forge the counts; they can cost a pass but never earn a pass.
    """

    launches: Dimension
    library_calls: Dimension
    own_calls: Dimension
    mixed_calls: Dimension
    operations: list[Name] = []
    library_launches: Dimension = 0
    flop: Dimension = 0
    moved_bytes: Dimension = 0
    exported_bytes: Dimension = 0


class LeftOut(Frame, frozen=True):
    """Runner: confirms `LeaveOut`."""


class SeenKernel(Frame, frozen=True):
    """Kernel in a profiler trace (on `cpu`, an operation), with the total time of all launches."""

    name: Annotated[str, msgspec.Meta(max_length=4096)]
    launches: Annotated[int, msgspec.Meta(ge=0, le=2**31)]
    time_us: Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class Profiled(Frame, frozen=True):
    """Runner: profiler result, longest kernel first. `others` counts kernels beyond the list's limit."""

    kernels: Annotated[list[SeenKernel], msgspec.Meta(max_length=256)]
    others: Dimension


class CompiledKernel(Frame, frozen=True):
    """Resources of a kernel compiled in the runner: per thread, and shared memory per block."""

    name: Name
    registers: Resource
    local_bytes: Resource
    shared_bytes: Resource


class CompiledKernels(Frame, frozen=True):
    """Runner: kernels compiled in its process (Triton), and the content of the compiler's cache.

    The judge never decodes `cache`, and passes the bytes only to further runners of the same submission.
    """

    cache: Annotated[bytes, msgspec.Meta(max_length=MOST_CACHE_BYTES)]
    kernels: Annotated[list[CompiledKernel], msgspec.Meta(max_length=64)]


class RefusedKernel(Frame, frozen=True):
    """Kernel refused by a compiler in the runner's process: the compiler's reason, and the place in the submission.

    `line` and `column` begin with 1; 0 is unknown. NVRTC's reason has lines of the compiled `text` instead.
    """

    kernel: Name
    reason: Annotated[str, msgspec.Meta(max_length=8192)]
    line: Place
    column: Place
    text: Annotated[str, msgspec.Meta(max_length=MOST_KERNEL_TEXT)] = ""


class Raised(Frame, frozen=True):
    """Runner: the submission raised an exception. `lines` are the submission's own stack lines, innermost last.

    `refused` is present if the cause is a kernel that does not compile. `functions` are the functions on the stack, as
    `module.function`, outermost first. `missing` is the module of a failed import behind the exception. Every failure
    is a failure: a forged report gains nothing.
    """

    kind: Name
    message: ShortText
    lines: Annotated[list[tuple[int, Name]], msgspec.Meta(max_length=32)] = []
    refused: RefusedKernel | None = None
    functions: Annotated[list[Name], msgspec.Meta(max_length=MOST_FUNCTIONS)] = []
    missing: Name = ""


FromRunner = (
    BuildRequest
    | Warmed
    | Loaded
    | Constructed
    | Queued
    | Done
    | WindowDone
    | CompiledKernels
    | Counted
    | LeftOut
    | Raised
    | Profiled
)
