"""Which cards to believe: signatures, and the keys that one trusts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from evaluator.errors import CardError
from evaluator.records import Scorecard
from evaluator.report.text import counted
from evaluator.signatures.keys import PublicKey
from evaluator.signatures.signing import Seen, State, signature_of


class Looked(NamedTuple):
    """What a card's signature says, under the name that the list of trusted keys has; why it is `refused`, if it is."""

    seen: Seen
    refused: str | None

    def __str__(self) -> str:
        return str(self.seen)


class Trust:
    """Whose cards are taken: anybody's where there are no `keys`, but none that was changed after it was signed."""

    def __init__(self, keys: Mapping[bytes, PublicKey] | None = None) -> None:
        """Take the trusted keys, by their bytes."""
        self._keys = keys

    @property
    def is_asked(self) -> bool:
        """Say whether there is a list of keys, and cards without one of these signatures are refused."""
        return self._keys is not None

    def look(self, content: bytes) -> Looked:
        """Look at the file of a card. Raises CardError where no signature can be made out."""
        try:
            seen = signature_of(content)
        except ValueError as error:
            raise CardError(f"the card's signature cannot be made out: {error}") from error
        if seen.state is State.CHANGED:
            return Looked(seen, f"was {seen}")
        if self._keys is None:
            return Looked(seen, None)
        known = None if seen.signer is None else self._keys.get(seen.signer.raw)
        if known is None:
            return Looked(seen, f"is {seen}: that is none of the trusted keys" if seen.signer else "is not signed")
        seen = seen._replace(signer=known if known.name else seen.signer)
        return Looked(seen, "is a replay: its seeds were known before" if _is_replay(content) else None)


def signers(seen: Iterable[Seen]) -> list[str]:
    """Say how many cards each key signed, and how many none; nothing where none is signed."""
    counts = Counter(str(each) for each in seen)
    if set(counts) <= {str(Seen(State.UNSIGNED, None))}:
        return []
    return [f"{counted(count, 'card')} {what}" for what, count in counts.most_common()]


def _is_replay(content: bytes) -> bool:
    seeds = msgspec.json.decode(content, type=Scorecard).seeds
    return seeds is not None and seeds.replayed_from is not None
