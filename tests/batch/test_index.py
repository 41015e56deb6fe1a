"""The index of a run: what it reads of a card, and what it takes for none."""

import os

import msgspec
import pytest

from evaluator.batch.runs.index import Index
from evaluator.batch.runs.run_folder import RunFolder
from evaluator.files.card_files import card_bytes, write_card
from evaluator.records import SCHEMA_VERSION
from tests import cards

ALL = [cards.card, cards.wrong_card, cards.uncompiled_card, cards.crashed_card, cards.unread_card]


@pytest.fixture
def folder(tmp_path):
    """Give the folder of a run with one card."""
    folder = RunFolder(tmp_path)
    write_card(cards.card(), folder.cards / "relu/honest.json")
    return folder


def plain(card):
    return msgspec.json.decode(card_bytes(card))


SPOILED = {
    "a field is missing": lambda card: card.pop("checks"),
    "one inside is missing": lambda card: card["timing"].pop("submission"),
    "a field too many": lambda card: card.update(verdict="correct"),
    "one too many inside": lambda card: card["build"].update(verdict="correct"),
    "no such status": lambda card: card.update(status="excellent"),
    "a speedup that is none": lambda card: card["timing"].update(speedup="3"),
    "a hash that is none": lambda card: card["submission"].update(sha256="0"),
    "another version": lambda card: card.update(schema_version=SCHEMA_VERSION + 1),
    "no version": lambda card: card.pop("schema_version"),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_what_is_no_card_is_named(spoil, folder):
    card = plain(cards.card())
    spoil(card)
    (folder.cards / "relu/spoiled.json").write_bytes(msgspec.json.encode(card))
    with Index(folder) as index:
        assert list(index.rows) == ["relu/honest.json"]
        (error,) = index.broken
    assert "relu/spoiled.json " in error.message


def test_a_card_is_broken_where_what_is_skipped_is_no_json(folder):
    whole = card_bytes(cards.card())
    (folder.cards / "relu/cut.json").write_bytes(whole[:-100])
    (folder.cards / "relu/holed.json").write_bytes(whole.replace(b'"samples_ms": [', b'"samples_ms": [,'))
    os.mkfifo(folder.cards / "relu/pipe.json")
    with Index(folder) as index:
        assert list(index.rows) == ["relu/honest.json"]
        assert len(index.broken) == 3
