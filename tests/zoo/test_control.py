"""What counts as a naive grader that takes a cheat in."""

import pytest

from tests.zoo import grading
from tests.zoo.entries import entries
from tests.zoo.grading import Accepted


@pytest.fixture
def row():
    (entry,) = (entry for entry in entries() if entry.expected.control.over_twin)
    return entry


@pytest.mark.parametrize(
    ("cheat", "twin", "accepted"),
    [
        (Accepted(True, 40.0), Accepted(True, 20.0), True),
        (Accepted(True, 25.0), Accepted(True, 20.0), False),
        (Accepted(True, 40.0), Accepted(False, 20.0), False),
        (Accepted(False, 40.0), Accepted(True, 20.0), False),
    ],
)
def test_where_the_work_itself_is_fast_a_cheat_must_be_faster_than_its_twin(
    row, cheat, twin, accepted, tmp_path, monkeypatch
):
    said = {row.cheat: cheat, row.honest: twin}
    monkeypatch.setattr(grading, "_naive_verdict", lambda entry, submission, folder: said[submission])
    assert grading.control(row, row.cheat, tmp_path).accepted is accepted


def test_where_nothing_can_confine_a_naive_grader_there_is_no_answer(row, tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "_naive_verdict", lambda entry, submission, folder: None)
    assert grading.control(row, row.cheat, tmp_path) is None
