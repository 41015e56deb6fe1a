"""Base class of frames, and the tree of tensors and plain values inside a frame."""

from enum import StrEnum
from typing import Annotated

import msgspec

from evaluator.protocol.frames.bounds import MOST_ITEMS, Dimension, Dimensions, Name, ShortText, Strides, Word


class ModelMode(StrEnum):
    """Mode that a model is put into after its construction; a constructor may have called `eval()` itself."""

    AS_CONSTRUCTED = "as_constructed"
    EVAL = "eval"
    TRAIN = "train"


class Frame(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Base class of every frame and of every value node."""


class TensorView(Frame, frozen=True):
    """Tensor in shared memory: `offset_bytes` from the start of the region, strides in elements.

    In an answer, `offset_bytes` is None if the tensor did not fit into the region.
    `copied` marks a tensor allocated outside the region and copied by the runner. `storage` is the original storage:
    address and length as the runner sees them.
    """

    dtype: Word
    shape: Dimensions
    strides: Strides
    offset_bytes: Dimension | None
    device: Word = "cpu"
    copied: bool = False
    storage: tuple[Dimension, Dimension] | None = None


class Scalar(Frame, frozen=True):
    """Plain Python value."""

    value: bool | int | float | ShortText | None


class Opaque(Frame, frozen=True):
    """Value of an unsupported type. The frame holds only the type's name."""

    type_name: Name


class Items(Frame, frozen=True):
    """List or tuple."""

    is_tuple: bool
    items: "Annotated[list[Node], msgspec.Meta(max_length=MOST_ITEMS)]"


class DictItems(Frame, frozen=True):
    """Dict, in insertion order."""

    keys: Annotated[list[int | Name], msgspec.Meta(max_length=MOST_ITEMS)]
    items: "Annotated[list[Node], msgspec.Meta(max_length=MOST_ITEMS)]"


Node = TensorView | Scalar | Opaque | Items | DictItems
