"""Size limits of frames: bytes per frame, chosen by tag before decoding, and bounded field types.

Runner frames are untrusted, and the judge's decoding work grows with frame size. Every field has a limit on count and
length. The byte limit of the whole frame bounds sums over several fields.
"""

import re
from collections.abc import Iterable
from typing import Annotated

import msgspec

MAX_FRAME_BYTES = 16 << 20
"""Upper limit for judge frames: a submission has at most 1 MiB, a state_dict at most 4096 tensors."""

MOST_ITEMS = 4096
"""Entries of a list, of a dict, or of a call's gradients."""
MOST_NODES = 1 << 15
"""Nodes of a complete answer."""
MOST_DEPTH = 32
"""Nesting depth of an answer. A runner replaces deeper values by their type name."""
MOST_FLAG_BYTES = 32 << 10
"""All flags of a build together. PyTorch's own command line for an extension has 2 KiB."""
MOST_SOURCE_BYTES = 4 << 20
"""All sources of a build together."""

MOST_CACHE_BYTES = 8 << 20
"""Compiled kernels of a submission, compressed: several hundred configurations of an autotuned kernel."""

MOST_KERNEL_TEXT = 64 << 10
"""Characters of a kernel's text that NVRTC refused."""
MOST_FUNCTIONS = 32
"""Functions on the stack of an exception."""

MOST_ASSUMED = 64
"""Tensors named as corresponding by an assumption."""

Text = Annotated[str, msgspec.Meta(max_length=4 << 20)]
ShortText = Annotated[str, msgspec.Meta(max_length=65_536)]
Name = Annotated[str, msgspec.Meta(max_length=1024)]
"""Parameter, function, key or type name."""
Word = Annotated[str, msgspec.Meta(max_length=64)]
"""Word of a closed set: a dtype, a device."""
Flag = Annotated[str, msgspec.Meta(max_length=4096)]
Flags = Annotated[list[Flag], msgspec.Meta(max_length=256)]
Dimension = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Token = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""Random token of a request. The answer must repeat the token, which proves that the runner has read the request."""
Stride = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
Dimensions = Annotated[tuple[Dimension, ...], msgspec.Meta(max_length=64)]
Strides = Annotated[tuple[Stride, ...], msgspec.Meta(max_length=64)]

HEAD_BYTES = 64
"""Length of a frame's head, which contains the tag."""
_TAG = re.compile(rb"(?:[\x80-\x8f]|\xde..|\xdf....)\xa4type(?:[\xa0-\xbf]|\xd9.)(?P<tag>[A-Za-z]{1,40})", re.DOTALL)
_MOST_BYTES = {
    b"BuildRequest": MOST_SOURCE_BYTES + (1 << 20),
    b"Done": 3 << 20,
    b"WindowDone": 3 << 20,
    b"Profiled": 2 << 20,
    b"CompiledKernels": MOST_CACHE_BYTES + (512 << 10),
    b"Raised": 512 << 10,
    b"Constructed": 256 << 10,
}
"""Several times the longest honest frame: 2000 gradients with names of 300 letters take 1 MiB."""
_FEW_BYTES = 4 << 10


def most_bytes_from_runner(head: bytes) -> int:
    r"""Return the size limit of a runner frame that begins with `head`. The tag is the first field.

    >>> most_bytes_from_runner(b"\x83\xa4type\xa6Loaded"), most_bytes_from_runner(b"\x83\xa4type\xa4Done")
    (4096, 3145728)
    """
    match = _TAG.match(head)
    if match is None:
        return _FEW_BYTES
    return next((most for tag, most in _MOST_BYTES.items() if match["tag"].startswith(tag)), _FEW_BYTES)


def most_bytes_of_ours(_: bytes) -> int:
    """Return the size limit of frames from trusted code: the judge, or a child process without submission code."""
    return MAX_FRAME_BYTES


def total_bytes(texts: Iterable[str]) -> int:
    """Return the total size of the texts in UTF-8 bytes."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
