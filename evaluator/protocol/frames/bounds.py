"""How much a frame may hold: its bytes, told by its tag before it is decoded, and the types of its fields.

What a runner sends is hostile, and the judge's work on it grows with its size. So every field has a bound on how many
and how long; a sum over several fields is bounded by the bytes of the whole frame.
"""

import re
from collections.abc import Iterable
from typing import Annotated

import msgspec

MAX_FRAME_BYTES = 16 << 20
"""No frame of the judge's is larger: a submission is at most 1 MiB, a state_dict has 4096 tensors at most."""

MOST_ITEMS = 4096
"""The entries of a list, a dict, or the gradients of a call."""
MOST_NODES = 1 << 15
"""The nodes of a whole answer."""
MOST_DEPTH = 32
"""How deeply an answer may be nested. A runner names what is deeper by its type."""
MOST_FLAG_BYTES = 32 << 10
"""All flags of a build together. PyTorch's own command line for an extension has 2 KiB."""
MOST_SOURCE_BYTES = 4 << 20
"""All sources of a build together."""

Text = Annotated[str, msgspec.Meta(max_length=4 << 20)]
ShortText = Annotated[str, msgspec.Meta(max_length=65_536)]
Name = Annotated[str, msgspec.Meta(max_length=1024)]
"""A parameter, a function, a key, a type."""
Word = Annotated[str, msgspec.Meta(max_length=64)]
"""One of a few words: a dtype, a device."""
Flag = Annotated[str, msgspec.Meta(max_length=4096)]
Flags = Annotated[list[Flag], msgspec.Meta(max_length=256)]
Dimension = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Token = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""What nobody knows before a question was read, and an answer must hold."""
Stride = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
Dimensions = Annotated[tuple[Dimension, ...], msgspec.Meta(max_length=64)]
Strides = Annotated[tuple[Stride, ...], msgspec.Meta(max_length=64)]

HEAD_BYTES = 64
"""The beginning of a frame, which has its tag."""
_TAG = re.compile(rb"(?:[\x80-\x8f]|\xde..|\xdf....)\xa4type(?:[\xa0-\xbf]|\xd9.)(?P<tag>[A-Za-z]{1,40})", re.DOTALL)
_MOST_BYTES = {
    b"BuildRequest": MOST_SOURCE_BYTES + (1 << 20),
    b"Done": 3 << 20,
    b"Profiled": 2 << 20,
    b"Failed": 512 << 10,
    b"Constructed": 256 << 10,
}
"""What the longest honest frame has, several times: 2000 gradients with names of 300 letters take 1 MiB."""
_FEW_BYTES = 4 << 10


def most_bytes_from_runner(head: bytes) -> int:
    r"""Say how long a runner's frame may be that begins with `head`. A frame says first of all what it is.

    >>> most_bytes_from_runner(b"\x83\xa4type\xa6Loaded"), most_bytes_from_runner(b"\x83\xa4type\xa4Done")
    (4096, 3145728)
    """
    found = _TAG.match(head)
    if found is None:
        return _FEW_BYTES
    return next((most for tag, most in _MOST_BYTES.items() if found["tag"].startswith(tag)), _FEW_BYTES)


def most_bytes_of_ours(_: bytes) -> int:
    """Say how long a frame may be that our own code sends: the judge, or a child that runs nothing of a submission."""
    return MAX_FRAME_BYTES


def total_bytes(texts: Iterable[str]) -> int:
    """Count the bytes of texts together."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
