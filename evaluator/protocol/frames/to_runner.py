"""What the judge says to a runner."""

from typing import Annotated, Literal

import msgspec

from evaluator.protocol.frames.bounds import ShortText, Text, Token
from evaluator.protocol.frames.values import Frame, Items, Node, Table, TensorView


class Warm(Frame, frozen=True):
    """Judge: bring the device up, before anything of a submission is there."""

    device: Literal["cpu", "emulated", "cuda"]


class Load(Frame, frozen=True):
    """Judge: read the submission in.

    Comes with the descriptors of the input region, of the output region, (with `library`) of the device's own library:
    the allocator on `cpu` and `cuda`, the emulator's runtime on `emulated`; and on `cuda` of the page. The first
    `copy_bytes` of the output region are for copies, the rest is the allocator's. `tf32` is for products of fp32 on
    `cuda`; with `default` PyTorch's own settings stay. `probe_bytes` is what an empty call on `cuda` reads and writes.
    """

    submission: Text
    model: Text
    input_bytes: int
    output_bytes: int
    copy_bytes: int
    device: Literal["cpu", "emulated", "cuda"]
    library: bool
    threads: int
    tf32: Literal["off", "default", "on"] = "off"
    probe_bytes: int = 0


class BuildReply(Frame, frozen=True):
    """Judge: what came of a `BuildRequest`. With `ok`, one descriptor holds the finished library."""

    ok: bool
    log: Text


class Construct(Frame, frozen=True):
    """Judge: make ModelNew under `weight_seed`, then copy the reference's `state` where names and shapes agree.

    The parameters that `changing` names are the judge's to change from call to call: where they lie is to be said.
    """

    weight_seed: int
    training: bool
    args: Node
    kwargs: Node
    state: Table
    changing: list[ShortText] = []


class Prepare(Frame, frozen=True):
    """Judge: let go of the call before last, and fill what is free with `poison`. The clock does not run.

    Nothing in it tells of the call to come, nor of its random numbers. The answer has the `token` in it.
    """

    index: int
    token: Token
    poison: Annotated[int, msgspec.Meta(ge=0, le=255)]
    ahead_bytes: int


class EmulatorSchedule(Frame, frozen=True):
    """The order of blocks and threads for one call: 0 ascending, 1 descending, 2 shuffled by `seed`.

    And what fresh memory holds: 0 NaN, 1 large numbers, 2 negative ones, 3 ordinary ones.
    """

    order: Literal[0, 1, 2]
    seed: int
    workers: int
    fill: Literal[0, 1, 2, 3]


class Call(Frame, frozen=True):
    """Judge: one forward (and backward, where `output_gradients` are given) on inputs never seen before.

    With `empty` the model is left out and the last call's outputs are described again: what that takes (less a probe,
    on `cuda`) is the clock's overhead. With `forked` too, the probe is on a stream of its own, which is joined.
    On `cuda`, `ticket` is what the runner's stream waits for before and gives back after; no two calls have
    the same. The answer has the `token` in it, so none can be sent before the question was read. `random_seed` is for
    random numbers inside of forward; an empty call has one too, for what seeding takes is part of the overhead.
    `sampled` are the paths of all tensors that the answer should have: on `cuda` the page has their places in this
    order.
    `weights` are those that the judge cannot write where the model has them: the runner copies them, in its own time.
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


class Count(Frame, frozen=True):
    """Judge: from now on, count what computes in a call, and say what was counted so far."""


class LeaveOut(Frame, frozen=True):
    """Judge: one side of the work is to be left out in this runner, which is asked before anything is loaded.

    `kernels`: the submission's own, on `cuda` by what the judge builds. `library`: PyTorch's operations that compute.
    From the frame with `begin` on they are left out; the answer is `LeftOut`.
    """

    what: Literal["kernels", "library"]
    begin: bool


class ProfiledCall(Frame, frozen=True):
    """Judge: make calls on inputs that are there already, and watch the last one with PyTorch's profiler."""

    args: Node
    kwargs: Node
    output_gradients: Items | None


ToRunner = Warm | Load | BuildReply | Construct | Prepare | Call | Count | LeaveOut | ProfiledCall
