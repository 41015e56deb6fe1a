"""What judge and runner say to each other: typed, length-limited msgpack frames on one inherited socket.

A frame is four bytes of length (big-endian) and one msgpack map with a tag, optionally with descriptors beside it.
The two sides never share a Python object: no pickle, no `torch.load`, and nothing that the runner prints is parsed.
Tensors travel as a place in memory that the judge made (`TensorView`), never as bytes of a frame.

What comes from a runner is hostile. Decoding checks types and lengths; `evaluator.judge.snapshot` checks every offset,
stride and size before the memory is looked at.
"""

import array
import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import msgspec

from evaluator.bounds import (
    HEAD_BYTES,
    MAX_FRAME_BYTES,
    MOST_ITEMS,
    Dimension,
    Dimensions,
    Flags,
    Name,
    ShortText,
    Strides,
    Text,
    Token,
    Word,
    most_bytes_of_ours,
)

MAX_DESCRIPTORS = 4
_LENGTH_BYTES = 4
_LEAST_TIMEOUT_S = 0.001  # Zero would mean "do not wait" to a socket, which has an error of its own.


class Frame(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """The base of every frame and of every node of a value tree."""


class TensorView(Frame, frozen=True):
    """A tensor in shared memory: `offset_bytes` from the start of its region, strides in elements.

    In an answer, `offset_bytes` is None where the tensor did not fit into the region (its shape is then wrong anyway),
    `copied` says that it did not lie there but was copied, and `storage` is where it lay: address and length of its
    memory as the runner sees them.
    """

    dtype: Word
    shape: Dimensions
    strides: Strides
    offset_bytes: Dimension | None
    device: Word = "cpu"
    copied: bool = False
    storage: tuple[Dimension, Dimension] | None = None


class Scalar(Frame, frozen=True):
    """A plain Python value."""

    value: bool | int | float | ShortText | None


class Opaque(Frame, frozen=True):
    """Something that is neither a tensor nor a plain value; only its type's name travels."""

    type_name: Name


class Items(Frame, frozen=True):
    """A list or a tuple."""

    is_tuple: bool
    items: "Annotated[list[Node], msgspec.Meta(max_length=MOST_ITEMS)]"


class Table(Frame, frozen=True):
    """A dict, in its order."""

    keys: Annotated[list[int | Name], msgspec.Meta(max_length=MOST_ITEMS)]
    items: "Annotated[list[Node], msgspec.Meta(max_length=MOST_ITEMS)]"


Node = TensorView | Scalar | Opaque | Items | Table


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


class FrameError(Exception):
    """The other side broke the protocol: a frame too long, not decodable, or of a type that has no place here."""


class Closed(Exception):
    """The other side is gone."""


class DeadlinePassed(Exception):
    """No whole frame arrived in time."""


class Channel:
    """One side's end of the conversation. Not thread-safe."""

    def __init__(
        self, sock: socket.socket, *, receives: type | object, most_bytes: Callable[[bytes], int] = most_bytes_of_ours
    ) -> None:
        """Speak over `sock`; only frames of the union `receives` are accepted, of what `most_bytes` says of a head."""
        self._socket = sock
        self._most_bytes = most_bytes
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(receives)
        self._descriptors: list[int] = []

    def send(self, frame: Frame, descriptors: Sequence[int] = (), timeout_s: float | None = None) -> None:
        """Send one frame.

        Raises Closed where nobody is there to read it, DeadlinePassed where it is not read within `timeout_s`.
        """
        body = self._encoder.encode(frame)
        if len(body) > MAX_FRAME_BYTES:
            raise FrameError(f"a frame of {len(body)} bytes")
        data = memoryview(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
        self._socket.settimeout(None if timeout_s is None else max(timeout_s, _LEAST_TIMEOUT_S))
        try:
            sent = socket.send_fds(self._socket, [data], list(descriptors)) if descriptors else 0
            self._socket.sendall(data[sent:])
        except TimeoutError:
            raise DeadlinePassed from None
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error
        finally:
            with contextlib.suppress(OSError):
                self._socket.settimeout(None)

    def receive(self, timeout_s: float | None = None) -> Frame:
        """Wait for one frame.

        Raises DeadlinePassed after `timeout_s`, Closed at the end of the stream, FrameError for what is no frame.
        The deadline holds for the whole frame, so a sender that drips bytes gains nothing.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        length = int.from_bytes(self._read(_LENGTH_BYTES, deadline), "big")
        body = self._read(min(length, HEAD_BYTES), deadline) if length <= MAX_FRAME_BYTES else bytearray()
        if length > min(MAX_FRAME_BYTES, self._most_bytes(bytes(body))):
            raise FrameError(f"a frame of {length} bytes")
        body += self._read(length - len(body), deadline)
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise FrameError(str(error)) from None

    def readable(self, within_s: float) -> bool:
        """Say whether anything (the end of the stream included) can be read within that time."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(within_s * 1000))

    def take_descriptors(self) -> list[int]:
        """Hand over the descriptors that came with the frames so far; the caller closes them."""
        taken, self._descriptors = self._descriptors, []
        return taken

    def close(self) -> None:
        """Close the socket, and every descriptor that nobody took."""
        for descriptor in self.take_descriptors():
            os.close(descriptor)
        self._socket.close()

    def _read(self, count: int, deadline: float | None) -> bytearray:
        buffer = bytearray()
        while len(buffer) < count:
            buffer += self._read_some(min(count - len(buffer), 1 << 20), deadline)
        return buffer

    def _read_some(self, count: int, deadline: float | None) -> bytes:
        left_s = None if deadline is None else deadline - time.monotonic()
        if left_s is not None and left_s <= 0:
            raise DeadlinePassed
        self._socket.settimeout(left_s)
        space = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
        try:
            data, ancillary, flags, _ = self._socket.recvmsg(count, space, socket.MSG_CMSG_CLOEXEC)
        except TimeoutError:
            raise DeadlinePassed from None
        except ConnectionResetError:
            raise Closed from None
        finally:
            with contextlib.suppress(OSError):
                self._socket.settimeout(None)
        self._keep_descriptors(ancillary, complete=not flags & socket.MSG_CTRUNC)
        if not data:
            raise Closed
        return data

    def _keep_descriptors(self, ancillary: list[tuple[int, int, bytes]], *, complete: bool) -> None:
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
                self._descriptors.extend(numbers)
        if len(self._descriptors) > MAX_DESCRIPTORS or not complete:
            for descriptor in self.take_descriptors():
                os.close(descriptor)
            raise FrameError("too many descriptors")
