"""Frames from judge to runner."""

from typing import Annotated, Literal

import msgspec

from evaluator.protocol.frames.bounds import Name, ShortText, Text, Token
from evaluator.protocol.frames.values import DictItems, Frame, Items, ModelMode, Node, TensorView


class Warm(Frame, frozen=True):
    """Judge: initialize the device before any submission code is loaded."""

    device: Literal["cpu", "emulated", "cuda"]


class Load(Frame, frozen=True):
    """Judge: import the submission.

    Descriptors with the frame: the input region, the output region, with `library` the device's native library, and on
    `cuda` the shared page and the judge's kernels. The native library is the allocator on `cpu` and `cuda`, the
    emulator's runtime on `emulated`. The first `copy_bytes` of the output region are reserved for copies; the allocator
    owns the rest. `tf32` sets TF32 for fp32 matrix products on `cuda`; `default` keeps PyTorch's settings.
    `probe_bytes` is the traffic of an empty call on `cuda`: bytes read, and bytes written. `kernel_cache` holds kernels
    that an earlier runner of the same submission compiled. `entries` are the names of the submission's class, the
    preferred name first.
    """

    submission: Text
    model: Text
    entries: list[Name]
    input_bytes: int
    output_bytes: int
    copy_bytes: int
    device: Literal["cpu", "emulated", "cuda"]
    library: bool
    threads: int
    tf32: Literal["off", "default", "on"] = "off"
    probe_bytes: int = 0
    kernel_cache: bytes = b""


class BuildReply(Frame, frozen=True):
    """Judge: result of a `BuildRequest`. With `ok`, one descriptor holds the finished library."""

    ok: bool
    log: Text


class Construct(Frame, frozen=True):
    """Judge: construct ModelNew under `weight_seed`, put into `mode`, then copy the reference's `state`.

    By equal names and shapes, or by correspondence, if each of the reference's `parameters` has a counterpart. With
    `seeded`, nothing is copied by correspondence, nor over parameters with values of ModelNew's own. `changing` names
    the parameters that the judge modifies between calls; the runner reports their locations.
    """

    weight_seed: int
    mode: ModelMode
    args: Node
    kwargs: Node
    state: DictItems
    changing: list[ShortText] = []
    parameters: list[ShortText] = []
    seeded: bool = False


class Prepare(Frame, frozen=True):
    """Judge: free the outputs of the call before last and fill free memory with `poison`, outside the timed interval.

    The frame reveals nothing about the next call or its random seed. The answer repeats `token`.
    """

    index: int
    token: Token
    poison: Annotated[int, msgspec.Meta(ge=0, le=255)]
    ahead_bytes: int


class EmulatorSchedule(Frame, frozen=True):
    """Scheduling of one emulated call, and the fill of fresh memory.

    `order` of blocks and threads: 0 ascending, 1 descending, 2 shuffled by `seed`. `fill`: 0 NaN, 1 large numbers, 2
    negative numbers, 3 ordinary numbers.
    """

    order: Literal[0, 1, 2]
    seed: int
    workers: int
    fill: Literal[0, 1, 2, 3]


class Call(Frame, frozen=True):
    """Judge: one forward pass on fresh inputs, with a backward pass if `output_gradients` are present.

    `empty` skips the model and describes the last call's outputs again. The duration of an empty call, less the probe
    kernel on `cuda`, is the clock's overhead; without `probes` there is no kernel. `forked` runs the probe kernel on a
    side stream and joins the stream.

    On `cuda` the runner's stream waits for `ticket` before the call and signals `ticket` after the call. Every call has
    a distinct ticket. The answer repeats `token`, so no answer can precede its request. `random_seed` seeds random
    numbers inside forward; empty calls carry a seed too, since seeding time is part of the overhead. `sampled` lists
    the paths of all expected output tensors: on `cuda` the page holds their locations in the same order. `weights` are
    parameters outside shared memory; the runner copies the values within the timed interval.
    """

    index: int
    token: Token
    random_seed: int
    empty: bool
    forked: bool
    ticket: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    schedule: EmulatorSchedule | None
    args: Node
    kwargs: Node
    output_gradients: Items | None
    sampled: Annotated[list[ShortText], msgspec.Meta(max_length=4096)] = []
    weights: dict[ShortText, TensorView] = {}
    probes: bool = True


class Masked(Frame, frozen=True):
    """Masked memory of one call: `size_bytes` from `offset_bytes` in the input region, both multiples of 4."""

    offset_bytes: int
    size_bytes: int


class Window(Frame, frozen=True):
    """Judge: calls one behind the other, each with inputs and outputs of its own.

    The runner queues all calls, answers `Queued`, and then `WindowDone`. All calls have the same ticket, index and
    `sampled` paths. The weights of the first call hold for all.

    With `masked`, a spot check: the runner's stream waits for ticket + k in the page before call k, removes the mask of
    call k by the key in the page, copies the call's own weights, and writes the digest of the call's outputs into the
    page behind the call.
    """

    calls: Annotated[list[Call], msgspec.Meta(min_length=1, max_length=32)]
    masked: Annotated[list[Masked], msgspec.Meta(max_length=16)] = []


class Count(Frame, frozen=True):
    """Judge: begin a count of computing work, or end the count and report. The answer is `Counted`.

    Calls of the submission's own functions count only after a `LeaveOut` of `kernels` before the submission is loaded.
    """


class LeaveOut(Frame, frozen=True):
    """Judge: run with one part of the work disabled; first sent before the submission is loaded.

    `kernels` disables the submission's own kernels (on `cuda`, the functions of libraries built by the judge);
    `library` disables PyTorch's computing operations; `jit` disables the launches of Triton's kernels, of all or those
    named in `kernels`. The frame with `begin` starts the omission. The answer is `LeftOut`.
    """

    what: Literal["kernels", "library", "jit"]
    begin: bool
    kernels: list[ShortText] = []


class ReadKernels(Frame, frozen=True):
    """Judge: report the kernels compiled in the runner's process. The answer is `CompiledKernels`."""


class ProfiledCall(Frame, frozen=True):
    """Judge: call the model on inputs in place, with PyTorch's profiler around the last call."""

    args: Node
    kwargs: Node
    output_gradients: Items | None


ToRunner = (
    Warm | Load | BuildReply | Construct | Prepare | Call | Window | Count | LeaveOut | ProfiledCall | ReadKernels
)
