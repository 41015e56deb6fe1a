"""Acceptance of cards: signatures and trusted keys."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from evaluator.errors import CardError
from evaluator.signatures.keys import PublicKey
from evaluator.signatures.signing import Seen, State, signature_of
from evaluator.text import counted


class Looked(NamedTuple):
    """State of a card's signature, with the signer's name from the list of trusted keys; the reason if `refused`."""

    seen: Seen
    refused: str | None

    def __str__(self) -> str:
        return str(self.seen)


class Trust:
    """Acceptance rule for cards. Without `keys` any signer is accepted, but no card changed after signing."""

    def __init__(self, keys: Mapping[bytes, PublicKey] | None = None) -> None:
        """Store the trusted keys, by their bytes."""
        self._keys = keys

    @property
    def is_asked(self) -> bool:
        """Whether a list of keys is given, and cards without a signature of a listed key are refused."""
        return self._keys is not None

    def look(self, content: bytes) -> Looked:
        """Check the file of a card. Raises CardError if the signature cannot be decoded."""
        try:
            seen = signature_of(content)
        except ValueError as error:
            raise CardError(f"cannot parse the card's signature: {error}") from error
        if seen.state is State.CHANGED:
            return Looked(seen, f"was {seen}")
        if self._keys is None:
            return Looked(seen, None)
        known = None if seen.signer is None else self._keys.get(seen.signer.raw)
        if known is None:
            return Looked(seen, f"is {seen}, not by a trusted key" if seen.signer else "is not signed")
        seen = seen._replace(signer=known if known.name else seen.signer)
        return Looked(seen, "is a replay, with seeds known in advance" if _is_replay(content) else None)


def signers(seen: Iterable[Seen]) -> list[str]:
    """Return lines with the number of cards per signer, unsigned included; none if no card is signed."""
    counts = Counter(str(each) for each in seen)
    if set(counts) <= {str(Seen(State.UNSIGNED, None))}:
        return []
    return [f"{counted(count, 'card')} {what}" for what, count in counts.most_common()]


class _Replayed(msgspec.Struct):
    replayed_from: str | None


class _Seeded(msgspec.Struct):
    """Part of a card of any version."""

    seeds: _Replayed | None


def _is_replay(content: bytes) -> bool:
    try:
        seeds = msgspec.json.decode(content, type=_Seeded).seeds
    except ValueError as error:
        raise CardError(f"cannot read the card's seeds: {error}") from error
    return seeds is not None and seeds.replayed_from is not None
