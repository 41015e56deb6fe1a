"""Along which dimensions rows are independent, by trial."""

import hashlib

import pytest
import torch
from msgspec.structs import replace

from evaluator.catalog.lock import LOCK_FILE, Lock, RowSitesLock, lock_text
from evaluator.judge.inputs.input_distributions import RULES
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup import row_sites
from evaluator.judge.setup.distribution_mix import distribution_mix_for
from evaluator.judge.setup.row_sites import SITE_RULES, find_row_sites
from evaluator.records import Precision, RowSite, SizeName, ToleranceRule, ValuesRule
from tests.unit.references import problem, reference

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
    monkeypatch.setattr(row_sites, "LONGEST_S", 0.0)
    assert find_row_sites(made) == []


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_missing_sites_for_lack_of_memory_are_not_kept(tmp_path, monkeypatch, calls):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))
    made = reference("x * 2", "torch.rand(16, 64)")
    run, left = Reference._run, iter(range(calls))

    def short(self, model, *arguments):
        if model is self.exact_model and next(left, None) is None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(self, model, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Reference, "_run", short)
        assert row_sites.row_sites_for(made, SizeName.SMALL) == ()
    assert row_sites.row_sites_for(made, SizeName.SMALL) == (ROWS, COLUMNS)


def test_what_is_kept_is_not_tried_without_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path))

    def does_not_fit(_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    made = reference("x * 2", "torch.rand(16, 64)")
    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.Module, "double", does_not_fit)
        with pytest.raises(MemoryError):
            row_sites.sites_to_keep(made, SizeName.SMALL)
        assert row_sites.row_sites_for(made, SizeName.SMALL) == ()
    assert row_sites.sites_to_keep(made, SizeName.SMALL) == (ROWS, COLUMNS)


def test_a_problem_without_a_small_size_is_tried_at_its_own():
    full = problem("x * 2", "torch.rand(16, 64)", sizes={SizeName.FULL: {}}, sha256="without a small size")
    made = Reference(full, SizeName.FULL, 1)
    assert row_sites.row_sites_for(made, SizeName.FULL) == (ROWS, COLUMNS)


def test_sites_of_a_lock_are_taken_for_its_rules_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))
    made = reference("x * 2", "torch.rand(16, 64)", path=str(tmp_path))
    known = RowSitesLock(rules=SITE_RULES, sites=[ROWS])
    for lock, wanted in (
        (Lock(problem=made.problem.sha256, rules=RULES, row_sites=known), (ROWS,)),
        (Lock(problem="1" * 64, rules=RULES, row_sites=known), (ROWS, COLUMNS)),
        (Lock(problem=made.problem.sha256, rules=RULES - 1, row_sites=known), (ROWS, COLUMNS)),
        (Lock(problem=made.problem.sha256, rules=RULES, row_sites=replace(known, rules=2)), (ROWS, COLUMNS)),
        (Lock(problem=made.problem.sha256, rules=RULES), (ROWS, COLUMNS)),
    ):
        (tmp_path / LOCK_FILE).write_text(lock_text(lock))
        assert row_sites.row_sites_for(made, SizeName.SMALL) == wanted


def test_without_float64_there_are_no_sites():
    made = reference("x * 2", "torch.rand(16, 64)")
    made.leave_float64()
    assert find_row_sites(made) == []


def mix(precision=Precision.FP32, rule=ToleranceRule.MEASURED, values=ValuesRule.ALL, output="torch.relu(x)"):
    made = reference(
        output, "torch.rand(32, 64)", precision=precision, sha256=hashlib.sha256(output.encode()).hexdigest()
    )
    return distribution_mix_for(made, SizeName.SMALL, rule, values).row_sites


def test_secret_rows_show_roundings_that_the_problem_does_not_allow():
    assert mix() == mix(precision=Precision.BF16) == (ROWS, COLUMNS)
    assert mix(precision=Precision.TF32) == ()
    assert mix(rule=ToleranceRule.KERNELBENCH) == ()
    assert mix(values=ValuesRule.OWN) == ()
    assert mix(output="torch.log(x)") == tuple(UNSIGNED)
