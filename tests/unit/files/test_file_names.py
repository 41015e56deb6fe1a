"""A name that came from elsewhere becomes one plain file in its folder."""

import os
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.files.card_files import card_place, file_name

HOSTILE = [
    "",
    ".",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "a/../../b",
    "a\0b",
    "a\nb",
    "\x1b[2Jx",
    "x" * 5000,
    ".warpgrade-0123456789abcdef.tmp",
    ".lock",
    "~",
    "a\\b",
    "日本語",
    "\ud800",
    "-" * 200,
    " ",
    "a.json",
    "CON",
]
hostile = st.sampled_from(HOSTILE) | st.text(max_size=300) | st.text(alphabet="./\\\0\n-_ax", max_size=40)


@given(hostile, hostile)
def test_a_card_lies_below_its_folder_whatever_the_names(problem, name):
    place = card_place(problem, name)
    assert not place.is_absolute()
    assert all(part not in {".", ".."} and not part.startswith(".") for part in place.parts)
    assert all(part.isascii() and part.isprintable() and "/" not in part for part in place.parts)
    assert all(len(os.fsencode(part)) <= 160 for part in place.parts)
    assert len(place.parts) <= 5
    assert place.suffix == ".json"
    folder = Path("/cards")
    assert Path(os.path.normpath(folder / place)).is_relative_to(folder)


@given(st.tuples(hostile, hostile), st.tuples(hostile, hostile))
def test_different_names_give_different_places(first, second):
    assert (card_place(*first) == card_place(*second)) == (first == second)


@given(hostile)
def test_a_file_name_is_one_part(name):
    assert PurePosixPath(file_name(name)).parts == (file_name(name),)


@pytest.mark.parametrize("name", ["sample_0", "level1", "19_ReLU", "a.b-c=d@e+f", "x" * 120])
def test_a_plain_name_stays_as_it_is(name):
    assert file_name(name) == name


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_can_be_made_and_stays_inside(name, tmp_path):
    cards = tmp_path / "cards"
    path = cards / card_place(name, name)
    path.parent.mkdir(parents=True)
    path.touch()
    assert path.resolve().is_relative_to(cards.resolve())
