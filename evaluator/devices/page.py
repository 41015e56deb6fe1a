"""Pages shared by judge and runner on a GPU: synchronization words of both streams, and the location of each output.

    byte 0      go: the judge's stream writes a call's ticket, the runner's stream waits for that value
    byte 64     done: the same in the other direction
    byte 128    one key of 16 bytes for each call of a spot check, written by the judge
    byte 512    one digest of 16 bytes for each call of a spot check, written by the runner's stream
    byte 1024   one `OutputLocation` for each output named in the call's frame, in that order

The runner writes the places, so the reader checks every number. The page holds the places, and no frame, because a
kernel of the judge reads the outputs before any later frame could arrive.
"""

import mmap
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from evaluator.devices.memory import MAX_DIMENSIONS

GO, DONE, KEYS, DIGESTS, PLACES = 0, 64, 128, 512, 1024
KEY_BYTES = DIGEST_BYTES = 16
MAX_CALLS, MAX_SPOT_CALLS = 32, 16
"""Limits on the calls of a window, and of a spot check."""
MAX_PLACES = 4096
"""Limit on the tensors of an answer, equal to the limit on a list in a frame. Gradients of a backward pass count."""

PLACE = struct.Struct(f"<QII{MAX_DIMENSIONS}q")
PAGE_BYTES = -(-(PLACES + MAX_PLACES * PLACE.size) // mmap.PAGESIZE) * mmap.PAGESIZE
"""Two MiB. A call touches only the places of its outputs."""


class OutputLocation(NamedTuple):
    """Location of an output: path, offset from the start of the region, strides in elements."""

    path: str
    offset_bytes: int
    item_bytes: int
    strides: tuple[int, ...]


def write_places(places: Iterable[OutputLocation], output_paths: Sequence[str]) -> bytes:
    """Serialize the locations of the outputs at `output_paths`, in the page's layout from `PLACES` on.

    A path without a location gets elements of 0 bytes.
    """
    by_path = {location.path: location for location in places}
    missing = OutputLocation("", 0, 0, ())
    return b"".join(_spelt(by_path.get(path, missing)) for path in output_paths[:MAX_PLACES])


def _spelt(location: OutputLocation) -> bytes:
    strides = location.strides[:MAX_DIMENSIONS]
    padded = (*strides, *(0,) * (MAX_DIMENSIONS - len(strides)))
    return PLACE.pack(location.offset_bytes, location.item_bytes, len(strides), *padded)
