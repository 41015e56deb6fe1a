"""Contradiction in a card."""

from typing import NamedTuple


class Contradiction(NamedTuple):
    """A contradiction: the field of the card, and the explanation."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"
