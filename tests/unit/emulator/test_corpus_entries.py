"""The corpus of CUDA submissions: whole, well-formed, and what its README says of it."""

import ast
import difflib
import re

import pytest

from evaluator.records import SizeName, Status
from tests.corpus.entries import CORPUS, UNDEFINED, Entry, entries

ENTRIES = {entry.name: entry for entry in entries()}
RIGHT = {name: entry for name, entry in ENTRIES.items() if entry.expected.status is Status.CORRECT}
BROKEN = {name: entry for name, entry in ENTRIES.items() if name not in RIGHT}
TWIN_LINES = 20
"""A broken entry may differ from its twin in so many lines, additions and removals counted."""
ROW = re.compile(r"^\| (?P<construct>.*?) \| (?P<entries>\[.*?\)) \|", re.MULTILINE)
LINK = re.compile(r"\[(\w+)\]\(\1\)")
ANSWERS = {Status.CORRECT, Status.WRONG_RESULT, Status.RUNTIME_ERROR, Status.BUILD_ERROR}

each = pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
each_right = pytest.mark.parametrize("entry", RIGHT.values(), ids=RIGHT)
each_broken = pytest.mark.parametrize("entry", BROKEN.values(), ids=BROKEN)


def test_every_folder_is_an_entry() -> None:
    folders = {path.name for path in CORPUS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == ENTRIES.keys()


@each
def test_an_entry_is_a_submission_to_a_problem(entry: Entry) -> None:
    tree = ast.parse(entry.source)
    assert "ModelNew" in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert ast.get_docstring(tree)
    assert bool(entry.expected.problem) != bool(entry.expected.reference)
    assert SizeName.SMALL in entry.problem().cases


@each
def test_an_extension_is_named_after_its_entry(entry: Entry) -> None:
    names = re.findall(r'name="(\w+)"', entry.source)
    assert names
    assert all(name.startswith(f"corpus_{entry.name}") for name in names)


@each_right
def test_a_right_entry_is_right_everywhere(entry: Entry) -> None:
    expected = entry.expected
    assert expected.gpu == Status.CORRECT
    assert [expected.code, expected.twin, expected.blind_spot] == ["", "", ""]


@each_broken
def test_a_broken_entry_says_what_shows_it(entry: Entry) -> None:
    expected = entry.expected
    assert expected.status in ANSWERS | {Status.INCONCLUSIVE}
    assert expected.code
    assert expected.gpu in ANSWERS | {UNDEFINED}
    assert expected.gpu != Status.CORRECT or expected.status is Status.INCONCLUSIVE


@each_broken
def test_a_broken_entry_is_its_twin_with_a_small_change(entry: Entry) -> None:
    assert entry.problem() == RIGHT[entry.expected.twin].problem()
    changed = difflib.unified_diff(RIGHT[entry.expected.twin].source.splitlines(), entry.source.splitlines(), n=0)
    lines = [line for line in changed if re.match(r"[+-](?![+-])", line)]
    # Tensor cores leave nothing of a loop over elements.
    assert len(lines) <= (44 if "wmma" in entry.expected.construct else TWIN_LINES)


FEATURES = {row["construct"]: LINK.findall(row["entries"]) for row in ROW.finditer((CORPUS / "README.md").read_text())}


def test_the_readme_names_every_right_entry() -> None:
    assert {name for names in FEATURES.values() for name in names} == RIGHT.keys()


@pytest.mark.parametrize(("construct", "names"), FEATURES.items(), ids=FEATURES)
def test_a_construct_stands_in_the_entries_that_cover_it(construct: str, names: list[str]) -> None:
    for name in names:
        for token in re.findall(r"`([^`]+)`", construct):
            assert token in RIGHT[name].source, f"{name} has no {token}"
