"""What a runner says to the judge. It is hostile: every field has a bound."""

from typing import Annotated

import msgspec

from evaluator.protocol.frames.bounds import MOST_ITEMS, Dimension, Flags, Name, ShortText, Text, Token
from evaluator.protocol.frames.values import Frame, Node, TensorView


class SourceFile(Frame, frozen=True):
    """A file that the submission handed to `load`."""

    name: Name
    text: Text


class BuildRequest(Frame, frozen=True):
    """Runner: `load_inline` or `load` was called. `files` are load's, the source lists are load_inline's."""

    name: Name
    cpp_sources: Annotated[list[Text], msgspec.Meta(max_length=256)] = []
    cuda_sources: Annotated[list[Text], msgspec.Meta(max_length=256)] = []
    functions: Annotated[dict[Name, ShortText], msgspec.Meta(max_length=1024)] | None = None
    files: Annotated[list[SourceFile], msgspec.Meta(max_length=256)] = []
    extra_cflags: Flags = []
    extra_cuda_cflags: Flags = []
    extra_ldflags: Flags = []
    extra_include_paths: Flags = []
    with_cuda: bool = False
    python_module: bool = True
    error_handling: bool = True
    implicit_headers: bool = True


class Warmed(Frame, frozen=True):
    """Runner: its device is up."""


class Loaded(Frame, frozen=True):
    """Runner: the submission was read to its end and defines ModelNew."""


class Constructed(Frame, frozen=True):
    """Runner: ModelNew stands. `difference` says why the reference's weights were not copied, if they were not.

    `weights` says where the parameters lie that the judge changes, in the shapes that the reference has; one without an
    offset lies in memory of the runner's own. One that is missing has nothing that corresponds to it.
    """

    difference: ShortText | None
    weights: Annotated[dict[Name, TensorView], msgspec.Meta(max_length=MOST_ITEMS)] = {}


class Queued(Frame, frozen=True):
    """Runner: on `cuda`, all work of the call is in the GPU's queue. No verdict depends on whether that is true."""

    index: int


class Done(Frame, frozen=True):
    """Runner: the call is over. `gradients` are by name: `input x`, `parameter fc.weight`; None where there is none.

    `launches` counts the kernels of this call on `emulated`: evidence, which a submission could forge upwards.
    """

    index: int
    outputs: Node
    token: Token = 0
    gradients: Annotated[dict[Name, TensorView | None], msgspec.Meta(max_length=MOST_ITEMS)] | None = None
    launches: Dimension | None = None


class Counted(Frame, frozen=True):
    """Runner: what was seen to compute since it was first asked.

    `launches` are kernels of the submission's own on `emulated`; `library_calls` operations of PyTorch's and of
    NVIDIA's libraries; `own_calls` functions of the submission's extensions, `mixed_calls` those of them that call
    PyTorch's operations. Evidence, which a submission can forge: it can cost a pass, and never makes one.
    """

    launches: Dimension
    library_calls: Dimension
    own_calls: Dimension
    mixed_calls: Dimension


class LeftOut(Frame, frozen=True):
    """Runner: it is done."""


class SeenKernel(Frame, frozen=True):
    """A kernel (an operation, on `cpu`) that the profiler saw, and for how long all its launches ran."""

    name: Annotated[str, msgspec.Meta(max_length=4096)]
    launches: Annotated[int, msgspec.Meta(ge=0, le=2**31)]
    time_us: Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class Profiled(Frame, frozen=True):
    """Runner: what the profiler saw, the longest first. `others` counts those that are left out."""

    kernels: Annotated[list[SeenKernel], msgspec.Meta(max_length=256)]
    others: Dimension


class Failed(Frame, frozen=True):
    """Runner: the submission raised an error. `lines` are the submission's own, innermost last."""

    kind: Name
    message: ShortText
    lines: Annotated[list[tuple[int, Name]], msgspec.Meta(max_length=32)] = []


FromRunner = BuildRequest | Warmed | Loaded | Constructed | Queued | Done | Counted | LeftOut | Failed | Profiled
