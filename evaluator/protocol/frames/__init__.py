"""Typed, length-limited msgpack frames between judge and runner, on one inherited socket.

A frame is a length of four bytes (big-endian) and one tagged msgpack map, optionally with file descriptors. Judge and
runner never share a Python object: no pickle, no `torch.load`, and no parser reads printed output. Tensors travel as
`TensorView`, a location in memory allocated by the judge.

Runner frames are untrusted. Decoding checks types and lengths; `evaluator.judge.tensors.output_views` checks every
offset, stride and size before reading memory.
"""

from evaluator.protocol.frames.bounds import MAX_FRAME_BYTES
from evaluator.protocol.frames.channel import MAX_DESCRIPTORS, Channel, Closed, DeadlinePassed, FrameError
from evaluator.protocol.frames.from_runner import (
    BuildRequest,
    CompiledKernel,
    CompiledKernels,
    Constructed,
    Counted,
    Done,
    FromRunner,
    LeftOut,
    Loaded,
    Profiled,
    Queued,
    Raised,
    RefusedKernel,
    SeenKernel,
    SourceFile,
    Warmed,
    WindowDone,
)
from evaluator.protocol.frames.to_runner import (
    BuildReply,
    Call,
    Construct,
    Count,
    EmulatorSchedule,
    LeaveOut,
    Load,
    Masked,
    Prepare,
    ProfiledCall,
    ReadKernels,
    ToRunner,
    Warm,
    Window,
)
from evaluator.protocol.frames.values import DictItems, Frame, Items, Node, Opaque, Scalar, TensorView

__all__ = [
    "MAX_DESCRIPTORS",
    "MAX_FRAME_BYTES",
    "BuildReply",
    "BuildRequest",
    "Call",
    "Channel",
    "Closed",
    "CompiledKernel",
    "CompiledKernels",
    "Construct",
    "Constructed",
    "Count",
    "Counted",
    "DeadlinePassed",
    "DictItems",
    "Done",
    "EmulatorSchedule",
    "Frame",
    "FrameError",
    "FromRunner",
    "Items",
    "LeaveOut",
    "LeftOut",
    "Load",
    "Loaded",
    "Masked",
    "Node",
    "Opaque",
    "Prepare",
    "Profiled",
    "ProfiledCall",
    "Queued",
    "Raised",
    "ReadKernels",
    "RefusedKernel",
    "Scalar",
    "SeenKernel",
    "SourceFile",
    "TensorView",
    "ToRunner",
    "Warm",
    "Warmed",
    "Window",
    "WindowDone",
]
