"""Calls of the reference before a problem's first grade, counted: with a stored decision, none of them decides."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from evaluator.catalog import find_problem, kernelbench, stored_locks
from evaluator.catalog.lock import RowSitesLock, SizeLock
from evaluator.catalog.stored_locks import FileLock, table_text
from evaluator.grade_options import GradeOptions
from evaluator.judge.inputs.input_distributions import RULES
from evaluator.judge.setup import distribution_mix
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.judge.setup.problem_setup import set_up_problem
from evaluator.judge.setup.row_sites import SITE_RULES
from evaluator.protocol import model_call
from evaluator.records import DeviceKind, Profile, RowSite, SizeName

SOURCE = """\
import torch
from torch import nn

batch = 1024

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 32)

    def forward(self, x):
        return torch.relu(self.linear(x))

def get_inputs():
    return [torch.randn(batch, 64)]

def get_init_inputs():
    return []
"""
KNOWN = SizeLock(use=[Profile.SIGNED_NORMAL, Profile.SMALL], distances={Profile.SMALL: {"output": 1.5e-1}})
SITE = RowSite(0, 0, {"output": 0})
DECIDING = 60
"""Calls of a decision: five for each of twelve distributions, and a few for the cost and the rows."""


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """Make a problem in KernelBench's form, without any shipped decision, and an empty cache."""
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(stored_locks, "SHIPPED_FILE", tmp_path / "shipped.json")
    stored_locks._shipped_entries.cache_clear()
    made = kernelbench.read_text(SOURCE, "mine")
    yield replace(made, sizes={SizeName.FULL: {"batch": 1024}, SizeName.SMALL: {"batch": 32}})
    stored_locks._shipped_entries.cache_clear()


def ship(problem, **changes):
    """Ship a decision about the problem."""
    entry = FileLock(
        name=problem.name,
        rules=RULES,
        small={"batch": 32},
        sizes={SizeName.SMALL: KNOWN},
        row_sites=RowSitesLock(rules=SITE_RULES, sites=[SITE]),
    )
    stored_locks.SHIPPED_FILE.write_text(table_text({problem.sha256: replace(entry, **changes)}))
    stored_locks._shipped_entries.cache_clear()


def set_up(problem, size=SizeName.SMALL):
    """Return the distributions in use and the number of the reference's calls."""
    calls = []

    def counted(*arguments):
        calls.append(None)
        return answer(*arguments)

    answer = model_call.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_call, "run", counted)
        terms = GradeTerms(problem, GradeOptions(DeviceKind.CPU, size=size), None, 1)
        setup = set_up_problem(terms, 1, SimpleNamespace(library=None))
    return setup.distribution_mix, len(calls)


def test_with_a_shipped_decision_a_first_grade_makes_no_call_that_decides(bare):
    first, deciding = set_up(bare)
    later, usual = set_up(bare)
    assert first == later
    assert deciding > usual + DECIDING
    ship(bare)
    stored_locks.SHIPPED_FILE.parent.joinpath("cache").rename(stored_locks.SHIPPED_FILE.parent / "earlier")
    shipped, calls = set_up(bare)
    assert calls == usual
    assert (shipped.use, shipped.distances, shipped.row_sites) == (tuple(KNOWN.use), KNOWN.distances, (SITE,))


@pytest.mark.parametrize(
    "changes",
    [{"rules": RULES - 1}, {"small": {"batch": 16}}, {"sizes": {SizeName.FULL: KNOWN}}],
    ids=["rules", "small size", "no such size"],
)
def test_a_decision_for_something_else_is_made_anew(bare, changes):
    ship(bare, **changes)
    mix, calls = set_up(bare)
    assert calls > DECIDING
    assert mix.use == tuple(profile for profile in distribution_mix.PROFILES if profile is not Profile.NEAR_ONE)


def test_a_large_size_takes_the_shipped_decision_about_the_small_one(bare, monkeypatch):
    monkeypatch.setattr(distribution_mix, "_LARGE_ELEMENTS", 1024 * 64 - 1)
    ship(bare)
    _, usual = set_up(bare)
    mix, calls = set_up(bare, SizeName.FULL)
    assert mix.use == tuple(KNOWN.use)
    assert calls <= usual + 2


@pytest.mark.usefixtures("bare")
def test_a_shipped_problem_has_its_decisions_in_its_folder():
    first, deciding = set_up(find_problem("softmax"))
    later, usual = set_up(find_problem("softmax"))
    assert (first, deciding) == (later, usual)
