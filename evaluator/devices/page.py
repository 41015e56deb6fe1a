"""The pages that judge and runner share on a GPU: the words their queues wait for, and where each output lies.

    byte 0      go: the judge's stream writes a call's ticket here, the runner's stream waits for it
    byte 64     done: the other way round
    byte 128    how many outputs are described
    byte 256    one `Place` for each of them

The places are what the runner says, so whoever reads them checks every number. They stand here and not in a frame
because a kernel of the judge's reads them: it looks at outputs before any frame about them could have arrived.
"""

import hashlib
import struct
from collections.abc import Sequence
from typing import NamedTuple

GO, DONE, COUNT, PLACES = 0, 64, 128, 256
PAGE_BYTES = 9 * 4096
MAX_PLACES = 384
"""As many as a kernel's shared memory holds (48 KiB). Of a backward pass each gradient is one."""
MAX_DIMENSIONS = 8

_PLACE = struct.Struct(f"<QQII{MAX_DIMENSIONS}q")
PLACE_BYTES = _PLACE.size


class Place(NamedTuple):
    """Where an output lies: its path, its offset from the start of the region, its strides in elements."""

    path: str
    offset_bytes: int
    item_bytes: int
    strides: tuple[int, ...]


def write_places(places: Sequence[Place]) -> bytes:
    """Spell the count and the places as they stand in the page from `COUNT` on; what does not fit is left out."""
    fitting = [place for place in places if len(place.strides) <= MAX_DIMENSIONS][:MAX_PLACES]
    records = [
        _PLACE.pack(
            path_key(place.path),
            place.offset_bytes,
            place.item_bytes,
            len(place.strides),
            *(*place.strides, *(0,) * (MAX_DIMENSIONS - len(place.strides))),
        )
        for place in fitting
    ]
    return struct.pack(f"<I{PLACES - COUNT - 4}x", len(records)) + b"".join(records)


def path_key(path: str) -> int:
    """Give the number that stands for an output's path."""
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest(), "little")
