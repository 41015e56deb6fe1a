"""The pages that judge and runner share on a GPU: the words their queues wait for, and where each output lies.

    byte 0      go: the judge's stream writes a call's ticket here, the runner's stream waits for it
    byte 64     done: the other way round
    byte 256    one `Place` for each output that the call's frame names, in that order

The places are what the runner says, so whoever reads them checks every number. They stand here and not in a frame
because a kernel of the judge's reads them: it looks at outputs before any frame about them could have arrived.
"""

import mmap
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from evaluator.devices.memory import MAX_DIMENSIONS

GO, DONE, PLACES = 0, 64, 256
MAX_PLACES = 4096
"""Tensors of one answer: as many as one list of a frame holds. Of a backward pass each gradient is one."""

PLACE = struct.Struct(f"<QII{MAX_DIMENSIONS}q")
PAGE_BYTES = -(-(PLACES + MAX_PLACES * PLACE.size) // mmap.PAGESIZE) * mmap.PAGESIZE
"""Two MiB, of which a call touches what it has outputs for."""


class Place(NamedTuple):
    """Where an output lies: its path, its offset from the start of the region, its strides in elements."""

    path: str
    offset_bytes: int
    item_bytes: int
    strides: tuple[int, ...]


def write_places(places: Iterable[Place], named: Sequence[str]) -> bytes:
    """Spell the places of the `named` outputs as they stand in the page from `PLACES` on.

    One that is not among `places` has elements of no bytes.
    """
    by_path = {place.path: place for place in places}
    missing = Place("", 0, 0, ())
    return b"".join(_spelt(by_path.get(path, missing)) for path in named[:MAX_PLACES])


def _spelt(place: Place) -> bytes:
    strides = place.strides[:MAX_DIMENSIONS]
    padded = (*strides, *(0,) * (MAX_DIMENSIONS - len(strides)))
    return PLACE.pack(place.offset_bytes, place.item_bytes, len(strides), *padded)
