"""Parameters of a submission run without a judge: written by the judge, read by `evaluator.runner.standalone`."""

from pathlib import Path

import msgspec

from evaluator.protocol.frames.model_mode import ModelMode
from evaluator.protocol.prebuilt_libraries import PrebuiltLibraries

FAILED = "warpgrade: the call failed: "
"""Prefix of the single line printed on failure."""
_ORDER_FILE = "order.msgpack"
_LIBRARIES_FOLDER = "libraries"


class LoneCall(msgspec.Struct, frozen=True, kw_only=True):
    """Call of a submission: source texts of submission and reference (`model`), and construction parameters.

    `mode` is the submission's; in evaluation, also the reference's. `tf32` controls TF32 for fp32 matrix products.
    `seed` seeds the inputs only, and no grade uses the seed otherwise.
    """

    submission: str
    model: str
    entries: list[str]
    weight_seed: int
    seed: int
    mode: ModelMode
    backward: bool
    tf32: bool
    threads: int


def lay_out(folder: Path, call: LoneCall) -> PrebuiltLibraries:
    """Write `call` into `folder`, and return the library folder for the needed libraries."""
    (folder / _ORDER_FILE).write_bytes(msgspec.msgpack.encode(call))
    return libraries_in(folder)


def read_back(folder: Path) -> LoneCall:
    """Read the call written by `lay_out`."""
    return msgspec.msgpack.decode((folder / _ORDER_FILE).read_bytes(), type=LoneCall)


def libraries_in(folder: Path) -> PrebuiltLibraries:
    """Return the library folder inside `folder`."""
    return PrebuiltLibraries(folder / _LIBRARIES_FOLDER)
