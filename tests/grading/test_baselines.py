"""Another submission as the baseline, by the command line: it is built, walled in and verified like any other."""

import pytest

from evaluator.findings import Code
from evaluator.records import BaselineKind, Status
from tests.grading.harness import module

GOOD = module()
OTHERS = {
    "right": (module(forward=["return torch.where(x > 0, x, torch.zeros_like(x))"]), None),
    "wrong": (module(forward=["return x + 1"]), "values differ"),
    "dead": (module(forward=["import os", "os._exit(0)"]), "exited with code"),
}


def assert_sampled(samples):
    """The machine decides whether the side has windows; a window is one sample of many calls."""
    assert len(samples.samples_ms) >= (20 if samples.windows is None else 3)


@pytest.mark.parametrize(("source", "said"), OTHERS.values(), ids=OTHERS)
def test_another_submission_is_a_baseline_only_if_it_is_right(grader, tmp_path, source, said):
    other = tmp_path / "other.py"
    other.write_text(source)
    card = grader(tmp_path, GOOD, "--speedup-of", other).assert_verdict(Status.CORRECT)
    (found,) = card.baselines
    assert (found.kind, found.name, found.kept) == (BaselineKind.SUBMISSION, "other", False)
    if said is None:
        assert_sampled(found.samples)
        assert found.speedup_low is not None
    else:
        assert found.samples is found.speedup is None
        assert found.finding.code == Code.BASELINE_FAILED
        assert said in found.finding.message


def test_a_baseline_that_is_no_submission_ends_the_command(grader, tmp_path):
    other = tmp_path / "answer.md"
    other.write_text("There is no code in here.")
    run = grader(tmp_path, GOOD, "--speedup-of", other)
    assert run.code == 2
    assert "--speedup-of" in run.err


@pytest.mark.long
def test_the_compiled_reference_is_timed_and_kept(grader, tmp_path):
    run = grader(tmp_path, GOOD, "--baseline", "compile")
    (found,) = run.assert_verdict(Status.CORRECT).baselines
    assert found.finding is None, found.finding.message
    assert (found.kind, found.tf32) == (BaselineKind.COMPILE, None)
    assert_sampled(found.samples)
