"""Along which dimensions rows are independent, by trial."""

import pytest
from msgspec.structs import replace

from evaluator.judge.setup import problem_traits
from evaluator.judge.setup.problem_traits import find_row_sites
from evaluator.records import RowSite
from tests.unit.references import reference

ROWS = RowSite(0, 0, {"output": 0})
COLUMNS = RowSite(0, 1, {"output": 1})
UNSIGNED = [replace(site, signs=False) for site in (ROWS, COLUMNS)]
SITES = [
    ("x * 2", "torch.rand(16, 64)", "pass", [ROWS, COLUMNS]),
    ("torch.softmax(x, 1)", "torch.rand(16, 64)", "pass", [ROWS, COLUMNS]),
    ("x.T @ x", "torch.rand(16, 16)", "pass", []),
    ("x.T @ self.w", "torch.rand(16, 64)", "self.w = nn.Parameter(torch.rand(16, 8))", [RowSite(0, 1, {"output": 0})]),
    ("x.sum()", "torch.rand(16, 64)", "pass", []),
    (
        "(x * 2, x.mean())",
        "torch.rand(16, 64)",
        "pass",
        [RowSite(0, 0, {"output[0]": 0}), RowSite(0, 1, {"output[0]": 1})],
    ),
    ("self.conv(x)", "torch.rand(16, 3, 9, 9)", "self.conv = nn.Conv2d(3, 5, 3)", [ROWS]),
    ("self.norm(x)", "torch.rand(16, 6, 5)", "self.norm = nn.BatchNorm1d(6)", [ROWS, COLUMNS]),
    ("x.cumsum(0)", "torch.rand(16)", "pass", []),
    ("x * 2", "torch.randint(9, (16, 64)).float()", "pass", []),
    ("x * 2", "torch.rand(16, 1).expand(16, 64)", "pass", []),
    ("x * 2", "torch.rand(16, 64).sort(-1).values", "pass", []),
    ("x - x[:1]", "torch.rand(16, 64)", "pass", [COLUMNS]),
    ("x.abs()", "torch.rand(16, 64)", "pass", [ROWS, COLUMNS]),
    ("torch.exp(-x)", "torch.rand(16, 64) * 200", "pass", UNSIGNED),
    ("torch.log(x)", "torch.rand(16, 64)", "pass", UNSIGNED),
    ("x / x.mean()", "torch.rand(16, 64)", "pass", [ROWS, COLUMNS]),
    ("x.sort(0).values", "torch.rand(16, 64)", "pass", [COLUMNS]),
    ("x.mean(0, keepdim=True).expand(16, 64) + 0", "torch.rand(16, 64)", "pass", [COLUMNS]),
]


@pytest.mark.parametrize(("output", "given", "init", "sites"), SITES)
def test_independent_dimensions_are_found(output, given, init, sites):
    assert find_row_sites(reference(output, given, init)) == sites


def test_an_output_over_its_mean_depends_mostly_on_its_own_rows():
    made = reference("(c := a @ b) / c.mean()", "torch.rand(64, 64), torch.rand(64, 64)", forward="a, b")
    assert find_row_sites(made) == [ROWS, RowSite(1, 1, {"output": 1})]


def test_a_row_that_gives_others_as_much_as_its_own_is_no_site():
    """A quarter of the change of a row is the most that others may have."""
    for share, sites in ((0.1, [ROWS]), (0.4, [])):
        made = reference(f"x.sum(1) + {share} * x.sum()", "torch.randn(64, 32)")
        assert find_row_sites(made) == sites


def test_what_is_too_slow_has_no_sites(monkeypatch):
    made = reference("x * 2", "torch.rand(16, 64)")
    assert find_row_sites(made)
    monkeypatch.setattr(problem_traits, "LONGEST_S", 0.0)
    assert find_row_sites(made) == []


def test_without_float64_there_are_no_sites():
    made = reference("x * 2", "torch.rand(16, 64)")
    made.leave_float64()
    assert find_row_sites(made) == []
