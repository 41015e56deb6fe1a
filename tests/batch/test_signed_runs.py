"""Runs whose cards are signed: what a report says of them, and what a key never signs."""

import json
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from evaluator.commands import main as cli
from evaluator.files.card_files import read_card, write_card
from evaluator.records import Status
from evaluator.signatures import keys
from evaluator.signatures.keys import VARIABLE, make_key, signing_key
from evaluator.signatures.signing import State, signature_of
from tests import cards


@pytest.fixture(autouse=True)
def _no_key(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(keys, "_stash", [])


@pytest.fixture
def run(batch, hand_in, tmp_path):
    """A run of two cards, all of them signed; one is a copy of the other."""
    hand_in({"relu/a.py": "# right", "relu/b.py": "# right", "relu/c.py": "# wrong"})
    make_key(Path("key"), "a lab")
    assert batch("--sign", "key") == 1
    return tmp_path / "run"


def test_every_card_of_a_run_is_signed_and_the_run_remembers_no_secret(run):
    key = signing_key(Path("key"), sandboxed=True)
    found = [signature_of(path.read_bytes()) for path in (run / "cards").rglob("*.json")]
    assert [(seen.state, seen.signer) for seen in found] == [(State.INTACT, key.public)] * 3
    secret = Path("key").read_text().split()[1].encode()
    assert not any(secret in path.read_bytes() for path in run.rglob("*") if path.is_file())


def test_a_report_says_who_signed_and_counts_no_changed_card(run, capsys):
    assert cli.run(["report", "run", "--json"]) == 0
    said = capsys.readouterr()
    assert "3 cards signed by a lab (SHA256:" in said.err
    assert {each["state"] for each in json.loads(said.out)["signatures"].values()} == {"intact"}
    path = run / "cards" / "relu" / "c.json"
    honest = replace(read_card(path), status=Status.CORRECT, reason=None, checks=[cards.check()])
    write_card(replace(honest, timing=cards.timing()), path)  # it does not contradict itself
    assert cli.run(["report", "run", "--json"]) == 3
    said = capsys.readouterr()
    assert "c.json was changed after it was signed by a lab" in said.err
    assert json.loads(said.out)["devices"][0]["total"]["statuses"] == {"correct": 2, "missing": 1}


@pytest.mark.parametrize("trusted", [(), ("--trusted", "key.pub")])
def test_a_signed_card_counts_at_its_own_place_alone(run, capsys, trusted):
    """The signature of a copy is intact: the place follows from the names, which the signature covers."""
    relu = run / "cards" / "relu"
    (relu / "d.json").write_bytes((relu / "a.json").read_bytes())
    assert cli.run(["report", "run", "--json", *trusted]) == 3
    said = capsys.readouterr()
    assert "d.json contradicts itself: submission.name: the card belongs to relu/a.json" in said.err
    assert json.loads(said.out)["devices"][0]["total"]["statuses"] == {
        "correct": 2,
        "wrong_result": 1,
        "missing": 1,
    }
    assert cli.run(["check-card", str(relu / "d.json")]) != 0
    assert "its own place in the run is relu/a.json" in capsys.readouterr().err
    assert cli.run(["check-card", str(relu / "a.json")]) == 0


def test_a_report_of_trusted_keys_reads_every_card_and_believes_no_index(run, capsys):
    with sqlite3.connect(run / "index.sqlite") as forged:
        forged.execute("UPDATE cards SET status = 'correct', signed = 0")
    plain = run / "cards" / "relu" / "d.json"
    write_card(cards.card(submission=replace(cards.card().submission, name="d")), plain)
    assert cli.run(["report", "run", "--json", "--trusted", "key.pub"]) == 3
    said = capsys.readouterr()
    assert "d.json is not signed" in said.err
    statuses = json.loads(said.out)["devices"][0]["total"]["statuses"]
    assert statuses == {"correct": 2, "wrong_result": 1, "missing": 1}


def test_who_signs_copies_no_card_that_it_did_not_sign(batch, hand_in, tmp_path, worker):
    """A folder of forged cards would else have them signed, under the names of equal submissions."""
    hand_in({"relu/a.py": "# wrong"})
    batch()
    path = tmp_path / "run" / "cards" / "relu" / "a.json"
    forged = replace(cards.card(), submission=read_card(path).submission, problem=read_card(path).problem)
    write_card(forged, path)
    hand_in({"relu/b.py": "# wrong"})
    make_key(Path("key"), "")
    batch("--sign", "key")
    card = read_card(tmp_path / "run" / "cards" / "relu" / "b.json")
    assert card.status is Status.WRONG_RESULT
    assert card.signature is not None
    assert read_card(path).signature is None


def test_a_copy_without_a_key_has_no_signature(run, batch, hand_in):
    hand_in({"relu/d.py": "# right"})
    batch()
    assert read_card(run / "cards" / "relu" / "d.json").signature is None
    assert cli.run(["report", "run"]) == 0
