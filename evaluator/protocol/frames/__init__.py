"""What judge and runner say to each other: typed, length-limited msgpack frames on one inherited socket.

A frame is four bytes of length (big-endian) and one msgpack map with a tag, optionally with descriptors beside it.
The two sides never share a Python object: no pickle, no `torch.load`, and nothing that the runner prints is parsed.
Tensors travel as a place in memory that the judge made (`TensorView`), never as bytes of a frame.

What comes from a runner is hostile. Decoding checks types and lengths; `evaluator.judge.snapshot` checks every offset,
stride and size before the memory is looked at.
"""

from evaluator.protocol.frames.bounds import MAX_FRAME_BYTES
from evaluator.protocol.frames.channel import MAX_DESCRIPTORS, Channel, Closed, DeadlinePassed, FrameError
from evaluator.protocol.frames.from_runner import (
    BuildRequest,
    Constructed,
    Counted,
    Done,
    Failed,
    FromRunner,
    LeftOut,
    Loaded,
    Profiled,
    Queued,
    SeenKernel,
    SourceFile,
    Warmed,
)
from evaluator.protocol.frames.to_runner import (
    BuildReply,
    Call,
    Construct,
    Count,
    EmulatorSchedule,
    LeaveOut,
    Load,
    Prepare,
    ProfiledCall,
    ToRunner,
    Warm,
)
from evaluator.protocol.frames.values import Frame, Items, Node, Opaque, Scalar, Table, TensorView

__all__ = [
    "MAX_DESCRIPTORS",
    "MAX_FRAME_BYTES",
    "BuildReply",
    "BuildRequest",
    "Call",
    "Channel",
    "Closed",
    "Construct",
    "Constructed",
    "Count",
    "Counted",
    "DeadlinePassed",
    "Done",
    "EmulatorSchedule",
    "Failed",
    "Frame",
    "FrameError",
    "FromRunner",
    "Items",
    "LeaveOut",
    "LeftOut",
    "Load",
    "Loaded",
    "Node",
    "Opaque",
    "Prepare",
    "Profiled",
    "ProfiledCall",
    "Queued",
    "Scalar",
    "SeenKernel",
    "SourceFile",
    "Table",
    "TensorView",
    "ToRunner",
    "Warm",
    "Warmed",
]
