"""Base of all records, and the record of a finding."""

import math
from typing import Annotated

import msgspec

SCHEMA_VERSION = 5
"""Version of a card's form and of the rules of its statistics. Cards of earlier versions are read too
(`evaluator/files/card_files.py`)."""


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every record: immutable, without unknown fields when decoded."""


Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


LevelNumber = Annotated[int, msgspec.Meta(ge=0, le=10**9 - 1)]


Seed = Annotated[str, msgspec.Meta(pattern="^0x[0-9a-f]{16}$", description="a 63-bit seed, as 0x and 16 digits")]


def number_text(value: float) -> str:
    """Return a number as text that survives JSON, even if NaN or infinite.

    >>> number_text(float("nan")), number_text(0.5), number_text(3)
    ('nan', '0.5', '3')
    """
    return repr(value)


def finite_or_none(value: float) -> float | None:
    """Return `value`, or None for a number that JSON cannot represent.

    >>> finite_or_none(1.5), finite_or_none(float("inf"))
    (1.5, None)
    """
    return value if math.isfinite(value) else None


def seed_text(seed: int) -> str:
    """Return a seed in a card's hexadecimal form: JSON numbers lose precision from 2**53 on.

    >>> seed_text(255)
    '0x00000000000000ff'
    """
    return f"0x{seed:016x}"


class Finding(Record, frozen=True):
    """Observation of the judge. `warpgrade explain CODE` explains the `code`."""

    code: str
    message: str
    next_step: str
    line: int | None = None
    details: dict[str, str | int | float | bool | None] = {}
