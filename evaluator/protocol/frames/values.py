"""What every frame is made of: the base, and the tree of tensors and plain values that a frame may hold."""

from typing import Annotated

import msgspec

from evaluator.protocol.frames.bounds import MOST_ITEMS, Dimension, Dimensions, Name, ShortText, Strides, Word


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
