"""Paths of submissions for a code host: relative to the current folder."""

import pytest

from evaluator.files.card_files import file_here


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_a_file_is_named_from_here(here):
    (here / "relu").mkdir()
    (here / "relu" / "a.py").touch()
    assert file_here("relu/a.py") == file_here(str(here / "relu" / "a.py")) == "relu/a.py"


def test_a_folder_of_files_is_named_by_its_manifest(here):
    (here / "mine").mkdir()
    assert file_here("mine") is None
    (here / "mine" / "submission.toml").touch()
    assert file_here("mine") == file_here("./mine/") == "mine/submission.toml"
    assert file_here(str(here / "mine")) == "mine/submission.toml"


def test_what_lies_elsewhere_has_no_name_here(here):
    (here.parent / "other").mkdir()
    (here.parent / "other" / "submission.toml").touch()
    assert [file_here(origin) for origin in ("stdin", "../other", "gone.py", "a\0b", "")] == [None] * 5
