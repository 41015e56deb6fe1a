"""Signing of scorecards, and detection of changes since.

The signed message is the card's JSON without the signature's own `value`, behind the words `warpgrade scorecard 1`.
Keys are sorted; there are no spaces; characters are ASCII; numbers are spelled as by Python's `json`. The message is
made from the JSON of the file: indentation does not matter, every value does, even of fields unknown to this version.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from evaluator.errors import CardError
from evaluator.records import Scorecard, Signature
from evaluator.signatures.keys import PublicKey, SigningKey, decoded, encoded, is_signed_by
from evaluator.text import counted

_DOMAIN = b"warpgrade scorecard 1\n"
_ALGORITHM = "ed25519"


class State(StrEnum):
    """State of a card's signature."""

    UNSIGNED = "unsigned"
    INTACT = "intact"
    CHANGED = "changed"


class Seen(NamedTuple):
    """State of a card's signature and the claimed signer; `signer` is None for an unsigned card."""

    state: State
    signer: PublicKey | None

    def document(self) -> dict[str, str | None]:
        """Return the state as a document for programs."""
        fingerprint, name = (None, None) if self.signer is None else (self.signer.fingerprint, self.signer.name)
        return {"state": self.state.value, "fingerprint": fingerprint, "name": name}

    def __str__(self) -> str:
        match self.state:
            case State.UNSIGNED:
                return "not signed"
            case State.INTACT:
                return f"signed by {self.signer}"
            case State.CHANGED:
                return f"changed after it was signed by {self.signer}"


def signed(card: Scorecard, key: SigningKey | None) -> Scorecard:
    """Return `card` with a signature of `key`, in place of any earlier signature; without a key, unsigned."""
    if key is None:
        return replace(card, signature=None)
    public = key.public
    blank = Signature(algorithm=_ALGORITHM, public_key=encoded(public.raw), name=public.name, value="")
    value = key.sign(_message(msgspec.json.encode(replace(card, signature=blank))))
    return replace(card, signature=replace(blank, value=encoded(value)))


def as_it_is_written(card: Scorecard) -> Scorecard:
    """Return the card, without a signature that the written file would contradict.

    A card of an earlier version is written with more fields. The signature does not cover the new fields.
    """
    if card.signature is None or signature_of(msgspec.json.encode(card)).state is State.INTACT:
        return card
    return replace(card, signature=None)


def signature_of(content: bytes) -> Seen:
    """Check the signature in the file of a card. Raises ValueError if the file is not a JSON object."""
    try:
        document = _parsed(content)
        said = document.get("signature")
        if said is None:
            return Seen(State.UNSIGNED, None)
        claimed = msgspec.convert(said, Signature)
        signer = PublicKey(decoded(claimed.public_key), claimed.name)
        intact = claimed.algorithm == _ALGORITHM and is_signed_by(
            signer.raw, decoded(claimed.value), _canonical(document)
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return Seen(State.INTACT if intact else State.CHANGED, signer)


def _message(content: bytes) -> bytes:
    return _canonical(_parsed(content))


def _canonical(document: dict[str, Any]) -> bytes:
    """Return the signed message: the document without the signature's value."""
    rest = document | {"signature": {key: each for key, each in document["signature"].items() if key != "value"}}
    text = json.dumps(rest, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return _DOMAIN + text.encode("ascii")


def _parsed(content: bytes) -> dict[str, Any]:
    document = json.loads(content, object_pairs_hook=_unique, parse_constant=_no_number)
    if not isinstance(document, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 - of a file's content, as everything here
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raise ValueError for a duplicate key, of which JSON readers take either value."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return made


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


class CheckedSignature(NamedTuple):
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

    def look(self, content: bytes) -> CheckedSignature:
        """Check the file of a card. Raises CardError if the signature cannot be decoded."""
        try:
            seen = signature_of(content)
        except ValueError as error:
            raise CardError(f"cannot parse the card's signature: {error}") from error
        if seen.state is State.CHANGED:
            return CheckedSignature(seen, f"was {seen}")
        if self._keys is None:
            return CheckedSignature(seen, None)
        known = None if seen.signer is None else self._keys.get(seen.signer.raw)
        if known is None:
            return CheckedSignature(seen, f"is {seen}, not by a trusted key" if seen.signer else "is not signed")
        seen = seen._replace(signer=known if known.name else seen.signer)
        return CheckedSignature(seen, "is a replay, with seeds known in advance" if _is_replay(content) else None)


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
