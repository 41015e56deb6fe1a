"""What a submission that runs without a judge beside it is told, and where: written by the judge, read by `alone`."""

from pathlib import Path

import msgspec

from evaluator.protocol.prebuilt_libraries import Shelf

FAILED = "warpgrade: the call failed: "
"""Begins the one line that the program prints, where it fails."""
_ORDER_FILE = "order.msgpack"
_SHELF_FOLDER = "shelf"


class LoneCall(msgspec.Struct, frozen=True, kw_only=True):
    """What is called: the submission's text against the reference's (`model`), and how both are made.

    `tf32` is for products of fp32; `seed` is for the inputs, and for nothing else that a grade draws.
    """

    submission: str
    model: str
    weight_seed: int
    seed: int
    training: bool
    backward: bool
    tf32: bool
    threads: int


def lay_out(folder: Path, call: LoneCall) -> Shelf:
    """Write `call` into `folder`, and give the shelf there, for the libraries that it needs."""
    (folder / _ORDER_FILE).write_bytes(msgspec.msgpack.encode(call))
    return shelf_in(folder)


def read_back(folder: Path) -> LoneCall:
    """Read what `lay_out` wrote."""
    return msgspec.msgpack.decode((folder / _ORDER_FILE).read_bytes(), type=LoneCall)


def shelf_in(folder: Path) -> Shelf:
    """Give the shelf of libraries in `folder`."""
    return Shelf(folder / _SHELF_FOLDER)
