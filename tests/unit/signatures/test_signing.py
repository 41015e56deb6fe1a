"""Signed cards: any change of any value shows, in any form of the file, and the key stays where it is."""

import contextlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from evaluator.commands import main as cli
from evaluator.errors import UsageError
from evaluator.files.card_files import card_bytes, write_card
from evaluator.signatures import keys
from evaluator.signatures.keys import (
    VARIABLE,
    PublicKey,
    SigningKey,
    make_key,
    public_keys,
    signing_key,
    take_from_environment,
)
from evaluator.signatures.signing import Seen, State, signature_of, signed
from tests import cards

KEY = SigningKey(b"k" * 32, "a lab")
OTHER = SigningKey(b"o" * 32, "")


@pytest.fixture(autouse=True)
def _no_key(monkeypatch, tmp_path):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(keys, "_stash", [])
    monkeypatch.chdir(tmp_path)


def document():
    return msgspec.json.decode(card_bytes(signed(cards.wrong_card(), KEY)))


def state(made) -> State:
    return signature_of(json.dumps(made).encode()).state


def test_a_signed_card_is_intact_and_says_whose_it_is():
    for make in (cards.card, cards.wrong_card, cards.unread_card, cards.crashed_card):
        seen = signature_of(card_bytes(signed(make(), KEY)))
        assert seen.state is State.INTACT
        assert seen.signer == KEY.public
        assert str(seen) == f"signed by a lab ({KEY.public.fingerprint})"
    assert signature_of(card_bytes(cards.card())).state is State.UNSIGNED


@pytest.mark.parametrize(
    "spelled",
    [
        json.dumps,
        lambda made: json.dumps(made, indent=7, ensure_ascii=False),
        lambda made: json.dumps(dict(reversed(made.items()))),
        lambda made: json.dumps(made).replace("/", "\\/"),
    ],
)
def test_the_form_of_the_file_does_not_matter(spelled):
    assert signature_of(spelled(document()).encode()).state is State.INTACT


def places(value, path=()):
    """Every value in a document, by its path."""
    if isinstance(value, dict) and value:
        return [each for key, inner in value.items() for each in places(inner, (*path, key))]
    if isinstance(value, list) and value:
        return [each for number, inner in enumerate(value) for each in places(inner, (*path, number))]
    return [path]


def changed(value):
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value * (1 + 1e-15) + 5e-324 if value else 1e-300
        case str():
            return value + "x"
        case None:
            return 0
        case _:
            return [0]


@pytest.mark.parametrize("path", places(document()), ids=lambda path: ".".join(map(str, path)))
def test_any_change_of_any_value_shows(path):
    made = document()
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = changed(at[path[-1]])
    assert state(made) is State.CHANGED


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made.update(extra=1),
        lambda made: made.pop("roofline"),
        lambda made: made["checks"].pop(),
        lambda made: made["checks"].reverse(),
        lambda made: made["signature"].update(value=OTHER.public.line.split()[1]),
        lambda made: made["signature"].update(public_key=keys.encoded(OTHER.public.raw)),
        lambda made: made["signature"].update(public_key=""),
        lambda made: made["signature"].update(value="not base64!"),
        lambda made: made["signature"].update(algorithm="none"),
        lambda made: made["signature"].update(name="another lab"),
    ],
)
def test_what_is_added_left_out_or_put_elsewhere_shows(change):
    made = document()
    change(made)
    assert state(made) is State.CHANGED


def test_a_signature_with_more_in_it_is_none():
    made = document()
    made["signature"].update(extra=1)
    with pytest.raises(ValueError, match="extra"):
        state(made)


def test_a_key_that_stands_twice_is_no_card_to_believe():
    text = card_bytes(signed(cards.wrong_card(), KEY)).decode()
    with pytest.raises(ValueError, match="stands twice"):
        signature_of(text.replace('"status":', '"status": "correct", "status":', 1).encode())


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@example(b"{}")
@example(b"[" * 100_000)
def test_what_is_no_card_is_unsigned_or_raises_a_value_error(content):
    with contextlib.suppress(ValueError):
        assert signature_of(content) == Seen(State.UNSIGNED, None)


def test_who_signs_anew_replaces_the_signature_and_without_a_key_there_is_none():
    card = signed(cards.card(), KEY)
    assert signature_of(card_bytes(signed(card, OTHER))).signer == OTHER.public
    assert signed(card, None).signature is None


# Keys.


def test_a_key_is_made_for_its_owners_eyes_and_never_printed(tmp_path, capsys):
    assert cli.run(["keygen", "key", "--name", "a lab"]) == 0
    said = capsys.readouterr()
    private = Path("key").read_text()
    assert Path("key").stat().st_mode & 0o777 == 0o600
    assert Path("key.pub").read_text() == said.out
    assert private.split()[1] not in said.out + said.err
    key = signing_key(Path("key"), sandboxed=True)
    assert key.public.name == "a lab"
    assert key.public.line == said.out.strip()
    assert list(public_keys(Path("key.pub")).values()) == [key.public]
    assert cli.run(["keygen", "key"]) == 2
    assert "already exists" in capsys.readouterr().err
    assert Path("key").read_text() == private
    assert cli.run(["keygen", "key", "--replace"]) == 0
    assert Path("key").read_text() != private
    assert sorted(each.name for each in tmp_path.iterdir()) == ["key", "key.pub"]


def test_a_key_is_not_written_through_a_link(tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "key").symlink_to("victim")
    with pytest.raises(UsageError, match="already exists"):
        make_key(tmp_path / "key", "")
    make_key(tmp_path / "key", "", replace=True)
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_key_shows_itself_nowhere():
    made = make_key(Path("key"), "")
    secret = Path("key").read_text().split()[1]
    key = signing_key(Path("key"), sandboxed=True)
    assert secret not in f"{key!r} {key} {made}"
    with pytest.raises(TypeError):
        pickle.dumps(key)
    with pytest.raises(TypeError):
        msgspec.json.encode(key)


def test_a_key_that_others_can_read_is_refused():
    make_key(Path("key"), "")
    Path("key").chmod(0o640)
    with pytest.raises(UsageError, match="readable by other users"):
        signing_key(Path("key"), sandboxed=True)


def test_a_key_where_submissions_read_is_refused(monkeypatch, tmp_path):
    make_key(Path("key"), "")
    monkeypatch.setattr("evaluator.sandbox.visible_files.readable_paths", lambda: (str(tmp_path.resolve()),))
    with pytest.raises(UsageError, match="submissions can read"):
        signing_key(Path("key"), sandboxed=True)


@pytest.mark.parametrize("text", ["", "warpgrade-ed25519-private AAAA", "secret " * 9, "warpgrade-ed25519 " + "A" * 44])
def test_what_is_no_key_is_refused_and_not_repeated(text):
    Path("key").write_text(text)
    Path("key").chmod(0o600)
    with pytest.raises(UsageError) as raised:
        signing_key(Path("key"), sandboxed=True)
    assert "AAAA" not in raised.value.message
    assert "secret" not in raised.value.message


def test_nothing_is_signed_without_a_sandbox(monkeypatch):
    make_key(Path("key"), "")
    for use in (Path("key"), None):
        monkeypatch.setenv(VARIABLE, "key")
        with pytest.raises(UsageError, match="--sandbox none"):
            signing_key(use, sandboxed=False)


@pytest.mark.parametrize("itself", [True, False])
def test_a_key_of_the_environment_is_taken_out_of_it(itself, monkeypatch):
    public = make_key(Path("key"), "a lab")
    monkeypatch.setenv(VARIABLE, Path("key").read_text() if itself else "key")
    take_from_environment()
    assert VARIABLE not in os.environ
    inherited = subprocess.run(
        [sys.executable, "-c", "import os; print(dict(os.environ))"], capture_output=True, text=True, check=True
    )
    assert Path("key").read_text().split()[1] not in inherited.stdout
    for _ in range(2):  # a program makes more than one grader
        assert signing_key(None, sandboxed=True).public == public


def test_without_a_key_nothing_is_signed():
    assert signing_key(None, sandboxed=True) is None


# Commands.


def test_check_card_says_who_signed_and_what_was_changed(capsys):
    write_card(signed(cards.card(), KEY), Path("good.json"))
    write_card(cards.card(), Path("plain.json"))
    write_card(replace(signed(cards.card(), KEY), wall_s=1.0), Path("changed.json"))
    assert cli.run(["check-card", "good.json", "plain.json"]) == 0
    said = capsys.readouterr().out
    assert f"good.json is a valid scorecard\n  signed by a lab ({KEY.public.fingerprint})\n" in said
    assert "plain.json is a valid scorecard\n  not signed\n" in said
    assert cli.run(["check-card", "changed.json", "good.json"]) == 2
    said = capsys.readouterr()
    assert f"changed.json was changed after it was signed by a lab ({KEY.public.fingerprint})" in said.err
    assert "good.json is a valid scorecard" in said.out


@pytest.mark.parametrize(
    ("card", "why"),
    [
        (cards.card, "is not signed"),
        (lambda: signed(cards.card(), OTHER), "not by a trusted key"),
        (lambda: replace(signed(cards.card(), KEY), wall_s=1.0), "was changed after it was signed"),
        (
            lambda: signed(cards.card(seeds=replace(cards.card().seeds, replayed_from="2026")), KEY),
            "is a replay",
        ),
        (lambda: signed(replace(cards.wrong_card(), status="correct", reason=None), KEY), "is not a valid scorecard"),
    ],
)
def test_only_cards_of_trusted_keys_are_taken(card, why, capsys):
    Path("trusted").write_text(f"# those of ours\n\n{PublicKey(KEY.public.raw, 'the lab next door').line}\n")
    write_card(signed(cards.card(), KEY), Path("good.json"))
    assert cli.run(["check-card", "--trusted", "trusted", "good.json"]) == 0
    assert "signed by the lab next door" in capsys.readouterr().out
    write_card(card(), Path("bad.json"))
    assert cli.run(["check-card", "--trusted", "trusted", "bad.json"]) == 2
    assert why in capsys.readouterr().err


def test_a_list_of_keys_holds_some(capsys):
    write_card(cards.card(), Path("card.json"))
    for text in ("", "# none\n", "ssh-ed25519 AAAA me\n"):
        Path("trusted").write_text(text)
        assert cli.run(["check-card", "--trusted", "trusted", "card.json"]) == 2
