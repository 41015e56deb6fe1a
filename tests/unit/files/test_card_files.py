import errno
import os
from pathlib import Path

import msgspec
import pytest

from evaluator.errors import CardError, CardNotWritten, UsageError
from evaluator.files.card_files import card_bytes, check_target, read_card, write_card
from tests import cards


def _files(folder):
    return sorted(path.name for path in folder.rglob("*"))


@pytest.mark.parametrize("card", [cards.card(), cards.uncompiled_card(), cards.unread_card()])
def test_a_card_comes_back_as_it_was(card, tmp_path):
    path = tmp_path / "deep" / "er" / "card.json"
    write_card(card, path)
    assert read_card(path) == card
    assert path.read_bytes() == card_bytes(card)
    assert _files(path.parent) == ["card.json"]


def test_a_card_is_readable_json_in_lines():
    text = card_bytes(cards.card()).decode()
    assert text.startswith('{\n  "schema_version": 5,\n  "status": "correct",\n')
    assert text.endswith("}\n")


def test_a_card_is_as_readable_for_others_as_any_new_file(tmp_path):
    (tmp_path / "usual").touch()
    write_card(cards.card(), tmp_path / "card.json")
    assert (tmp_path / "card.json").stat().st_mode == (tmp_path / "usual").stat().st_mode


def _fails_with(code):
    def call(*_):
        raise OSError(code, os.strerror(code))

    return call


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_card_and_nothing_half_written(call, tmp_path, monkeypatch):
    path = tmp_path / "card.json"
    write_card(cards.card(), path)
    monkeypatch.setattr("os." + call, _fails_with(errno.ENOSPC))
    monkeypatch.setattr(Path, "replace", _fails_with(errno.ENOSPC))
    with pytest.raises(CardNotWritten, match="No space left on device") as failed:
        write_card(cards.wrong_card(), path)
    assert "--" not in failed.value.hint, "a batch has other options than a grade"
    assert read_card(path) == cards.card()
    assert _files(tmp_path) == ["card.json"]


def test_an_interruption_leaves_nothing_half_written(tmp_path, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_card(cards.card(), tmp_path / "card.json")
    assert _files(tmp_path) == []


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "store").mkdir()
    link = tmp_path / "latest.json"
    link.symlink_to("store/card.json")
    write_card(cards.card(), link)
    assert link.is_symlink()
    assert read_card(tmp_path / "store" / "card.json") == cards.card()


def test_text_that_no_encoding_holds_is_not_half_a_card(tmp_path):
    with pytest.raises(CardNotWritten, match="surrogates"):
        write_card(cards.card(source="\ud800"), tmp_path / "card.json")
    assert _files(tmp_path) == []


def test_a_good_target_is_left_as_it_was(tmp_path):
    check_target(tmp_path / "scorecards" / "relu" / "card.json")
    assert _files(tmp_path) == ["relu", "scorecards"]


def test_a_file_where_a_folder_should_be_is_refused_early(tmp_path):
    (tmp_path / "scorecards").touch()
    with pytest.raises(UsageError, match="cannot write a scorecard"):
        check_target(tmp_path / "scorecards" / "card.json")


@pytest.mark.parametrize("name", ["", "pipe", "/dev/null"])
def test_what_is_no_file_is_never_replaced(name, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is not a file"):
        check_target(tmp_path / name)
    assert Path("/dev/null").is_char_device()


def test_a_name_that_is_too_long_is_refused_early(tmp_path):
    with pytest.raises(UsageError, match="File name too long"):
        check_target(tmp_path / ("x" * 300 + ".json"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused_early(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="Permission denied"):
        check_target(tmp_path / "card.json")


def test_a_full_disk_seen_early_is_the_machines_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "touch", lambda *_, **__: _fails_with(errno.ENOSPC)())
    with pytest.raises(CardNotWritten, match="No space left"):
        check_target(tmp_path / "card.json")


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"schema_version": 3}', b"\xff", b"[" * 100_000])
def test_what_is_no_card_is_not_read(content, tmp_path):
    path = tmp_path / "card.json"
    path.write_bytes(content)
    with pytest.raises(CardError, match="is not a scorecard"):
        read_card(path)


def test_a_card_of_the_future_is_not_misread(tmp_path):
    path = tmp_path / "card.json"
    path.write_bytes(msgspec.json.encode(msgspec.to_builtins(cards.card()) | {"schema_version": 6}))
    with pytest.raises(CardError, match=r"version 6; .*reads versions 1 to 5"):
        read_card(path)
