"""Builds that failed, remembered."""

import pytest

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.builder import BuildResult, FailedBuilds
from evaluator.findings import Code, finding
from evaluator.records import BuildUnit, Diagnostic

KEY = "ab" * 32
SUBMISSION = "import torch"
ERROR = "cuda.cu(3): error: identifier undefined"


def failed(*, log=ERROR, code=Code.COMPILE_FAILED, severity="error", **details) -> BuildResult:
    said = Diagnostic(
        file="cuda.cu", line=3, column=0, severity=severity, message="undefined", submission_line=9, source_line=""
    )
    unit = BuildUnit(name="x", key=KEY, ok=False, cached=False, wall_s=6.5, diagnostics=[said], log=log)
    return BuildResult(unit=unit, library=None, finding=finding(code, "x does not compile", **details))


def test_the_next_grade_of_the_same_submission_is_told_at_once(tmp_path):
    first = failed()
    assert FailedBuilds(BuildCache(tmp_path), SUBMISSION).note(KEY, first) is first
    again = FailedBuilds(BuildCache(tmp_path), SUBMISSION).get(KEY)
    assert (again.finding, again.unit.diagnostics, again.unit.log) == (first.finding, first.unit.diagnostics, ERROR)
    assert (again.unit.cached, again.unit.wall_s, again.unit.ok, again.library) == (True, 0.0, False, None)


def test_another_submission_has_other_lines_and_asks_the_compiler(tmp_path):
    FailedBuilds(BuildCache(tmp_path), SUBMISSION).note(KEY, failed())
    assert FailedBuilds(BuildCache(tmp_path), SUBMISSION + " ").get(KEY) is None


@pytest.mark.parametrize(
    "built",
    [
        failed(code=Code.COMPILER_TIMED_OUT),
        failed(killed=True),
        failed(severity="warning"),
        failed(log=f"{ERROR}\nfatal error: error writing to /tmp/x.s: No space left on device"),
        failed(log=f"{ERROR}\ncc1plus: out of memory allocating 65536 bytes"),
        failed(log=f"{ERROR}\nvirtual memory exhausted: Cannot allocate memory"),
    ],
)
def test_what_the_machine_may_be_to_blame_for_is_tried_again_by_the_next_grade_but_not_by_this_one(tmp_path, built):
    failures = FailedBuilds(BuildCache(tmp_path), SUBMISSION)
    failures.note(KEY, built)
    assert failures.get(KEY) is built
    assert FailedBuilds(BuildCache(tmp_path), SUBMISSION).get(KEY) is None


def test_what_was_built_is_not_kept_here(tmp_path):
    unit = BuildUnit(name="x", key=KEY, ok=True, cached=False, wall_s=1.0, diagnostics=[], log="")
    failures = FailedBuilds(BuildCache(tmp_path), SUBMISSION)
    failures.note(KEY, BuildResult(unit=unit, library=b"library", finding=None))
    assert failures.get(KEY) is None


def test_a_damaged_entry_counts_as_absent(tmp_path):
    FailedBuilds(BuildCache(tmp_path), SUBMISSION).note(KEY, failed())
    (entry,) = (tmp_path / "failures").glob("*/*/library.so")
    entry.write_bytes(b"{}")
    assert FailedBuilds(BuildCache(tmp_path), SUBMISSION).get(KEY) is None
