"""Forms of rows in half precision: rejected for their reason, taken by naive graders, with twins that are correct."""

import pytest

from evaluator.records import DeviceKind, Precision, Status
from tests import once
from tests.zoo.entries import entries
from tests.zoo.grading import Judge, control

FORMS = sorted(entries("half/"), key=lambda form: form.expected.problem)
each = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name.partition("/")[2])


@pytest.fixture(scope="module")
def judge():
    with Judge() as made:
        yield made


@each
def test_the_form_is_rejected_for_its_reason(judge, form):
    verdict = judge.cheat(form)
    assert verdict.state == "rejected for its reason", (verdict.status, verdict.code, verdict.message)


@each
def test_the_honest_twin_is_correct(judge, form):
    outcome = judge.honest(form)
    assert outcome.status is Status.CORRECT, outcome.reason


@each
def test_a_naive_grader_takes_the_form_in(form, tmp_path):
    said = control(form, form.cheat, tmp_path)
    if said is None:
        pytest.skip("no Landlock here: a naive grader would run unconfined")
    assert said.accepted, said


@each
def test_a_form_has_the_number_of_its_row_and_needs_no_gpu(form):
    rows = {row.name: row for row in entries()}
    row = rows[form.name.partition("/")[2]]
    assert form.expected.row == row.expected.row
    assert (form.expected.device, form.expected.compiles) == (DeviceKind.CPU, False)
    assert form.problem().precision in (Precision.BF16, Precision.FP16)
    assert form.cheat.read_text() != form.honest.read_text()
