"""Outputs with a conj or neg bit are right on either side, and on both: such a bit is a view's, and honest."""

import pytest

from evaluator.records import Status
from tests.grading.harness import CHECK
from tests.grading.lazy import LAZY, answer, folder


@pytest.mark.parametrize(("sides", "device"), [("reference", "cpu"), ("submission", "cpu"), ("both", "emulated")])
def test_a_lazily_conjugated_output_is_graded(grade, tmp_path, sides, device):
    given, lazy, written_out = LAZY["two of them"]
    problem = folder(tmp_path, given, written_out if sides == "submission" else lazy)
    submission = answer(written_out if sides == "reference" else lazy)
    options = ("--device", device, "--size", "small", *CHECK)
    grade(submission, *options, problem=str(problem)).assert_verdict(Status.CORRECT)
