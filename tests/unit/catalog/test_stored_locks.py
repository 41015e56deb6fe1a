"""Shipped decisions about bare files: which problem an entry applies to, and the table's form."""

import hashlib
import json

import pytest
from msgspec.structs import replace

from evaluator.catalog import kernelbench, stored_locks
from evaluator.catalog.lock import LOCK_FILE, RowSitesLock, SizeLock, lock_text
from evaluator.catalog.stored_locks import FileLock, lock_of, read_table, small_constants, stored_lock, table_text
from evaluator.errors import ProblemError
from evaluator.judge.inputs.input_distributions import RULES
from evaluator.judge.setup.row_sites import SITE_RULES
from evaluator.records import Profile, RowSite, SizeName

SOURCE = """\
import torch
from torch import nn

batch = 1024
width = 64

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(batch, width)]

def get_init_inputs():
    return []
"""
ENTRY = FileLock(
    name="level1/1_Mine",
    rules=RULES,
    small={"batch": 16},
    sizes={SizeName.SMALL: SizeLock([Profile.SMALL], {Profile.LARGE: "a reason"}, {Profile.SMALL: {"output": 1.5e-5}})},
    row_sites=RowSitesLock(rules=SITE_RULES, sites=[RowSite(0, 0, {"output": 0})]),
)


@pytest.fixture
def ship(tmp_path, monkeypatch):
    """Ship a table for a test."""
    path = tmp_path / "shipped.json"
    monkeypatch.setattr(stored_locks, "SHIPPED_FILE", path)

    def shipped(content):
        path.write_text(content if isinstance(content, str) else table_text(content))
        stored_locks._shipped_entries.cache_clear()

    yield shipped
    stored_locks._shipped_entries.cache_clear()


def problem(source=SOURCE, small=None):
    made = kernelbench.read_text(source, "mine")
    full = made.sizes[SizeName.FULL]
    changed = {"batch": 16} if small is None else small
    return replace(made, sizes={SizeName.FULL: full, SizeName.SMALL: {**full, **changed}})


def sha256(source=SOURCE):
    return hashlib.sha256(source.encode()).hexdigest()


def test_an_entry_is_the_lock_of_its_file(ship):
    ship({sha256(): ENTRY})
    lock = stored_lock(problem())
    assert (lock.problem, lock.rules, lock.sizes, lock.row_sites) == (sha256(), RULES, ENTRY.sizes, ENTRY.row_sites)


def test_an_entry_for_another_text_or_another_small_size_has_no_effect(ship):
    ship({sha256(): ENTRY})
    assert stored_lock(problem(SOURCE + "\n")) is None
    assert stored_lock(problem(small={"batch": 32})) is None
    assert stored_lock(problem(small={"width": 8})) is None
    assert stored_lock(kernelbench.read_text(SOURCE, "mine")) is None  # It has no small size.
    ship({sha256(): replace(ENTRY, small={})})
    assert stored_lock(problem()) is None
    assert stored_lock(kernelbench.read_text(SOURCE, "mine")) is not None


def test_a_folder_takes_no_shipped_entry(ship, tmp_path):
    ship({sha256(): ENTRY})
    folder = replace(problem(), origin="folder", path=str(tmp_path))
    assert stored_lock(folder) is None
    (tmp_path / LOCK_FILE).write_text(lock_text(lock_of(problem(), ENTRY)))
    assert stored_lock(folder).sizes == ENTRY.sizes


def test_without_a_table_nothing_is_known(ship):
    stored_locks._shipped_entries.cache_clear()
    assert stored_lock(problem()) is None


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "x", "rules": "3"},
        {"name": "x", "rules": 3, "limit": 1e9},
        {"name": "x", "rules": 3, "small": {"batch": 16}, "sizes": {"small": {"use": ["made_up"]}}},
        {"name": "x", "rules": 3, "row_sites": {"rules": 3, "sites": [{"tensor": -1, "dim": 0, "outputs": {}}]}},
    ],
    ids=["type", "field", "profile", "negative"],
)
def test_a_broken_entry_is_an_error_of_its_file_alone(ship, entry):
    ship(json.dumps({sha256(): entry, sha256("other"): {}}))
    with pytest.raises(ProblemError, match=r"shipped\.json") as raised:
        stored_lock(problem())
    assert "problems decide" in raised.value.hint
    assert stored_lock(problem(SOURCE + "\n")) is None


def test_a_broken_table_is_an_error(ship, tmp_path):
    ship("{")
    with pytest.raises(ProblemError, match=r"shipped\.json"):
        stored_lock(problem())
    with pytest.raises(ProblemError, match=r"shipped\.json"):
        read_table(tmp_path / "shipped.json")


def test_the_text_of_a_table_depends_on_its_content_alone(tmp_path):
    other, third = replace(ENTRY, name="level1/10_Other"), replace(ENTRY, name="level1/2_Third", row_sites=None)
    table = {"a" * 64: other, "b" * 64: third, "c" * 64: ENTRY}
    text = table_text(table)
    assert text == table_text(dict(reversed(table.items())))
    assert [json.loads(line.rstrip(",").partition(": ")[2])["name"] for line in text.splitlines()[1:-1]] == [
        "level1/1_Mine",
        "level1/2_Third",
        "level1/10_Other",
    ]
    path = tmp_path / "table.json"
    path.write_text(text)
    assert read_table(path) == table
    assert read_table(tmp_path / "none.json") == {}


def test_constants_of_a_small_size_are_those_that_differ():
    assert small_constants(problem()) == {"batch": 16}
    assert small_constants(problem(small={"batch": 16, "width": 64})) == {"batch": 16}
    assert small_constants(kernelbench.read_text(SOURCE, "mine")) == {}
