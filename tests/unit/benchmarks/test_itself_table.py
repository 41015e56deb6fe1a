"""The table of references graded against themselves: names of its problems, and what its lines say."""

import json

import pytest
from msgspec.structs import replace

from benchmarks.timing import itself_table
from tests import cards


def problems(folder):
    return {json.loads(line)["problem"] for line in (folder / "submissions.jsonl").read_text().splitlines()}


def test_a_kernel_has_one_name_whatever_else_is_graded(tmp_path):
    """Under another name, a repeated command would count the same grades twice."""
    itself_table.make(tmp_path, None, 1)
    every = problems(tmp_path)
    assert len(every) == 40
    itself_table.make(tmp_path, ["add 16 Ki"], 2)
    assert len(problems(tmp_path)) == 1
    assert problems(tmp_path) < every
    assert len((tmp_path / "submissions.jsonl").read_text().splitlines()) == 2


def timed(reference_ms, low, high):
    timing = replace(
        cards.card().timing,
        reference_median_ms=reference_ms,
        submission_median_ms=1.0,
        speedup=reference_ms,
        speedup_low=low,
        speedup_high=high,
    )
    return cards.card(timing=timing)


def test_a_line_says_how_far_speedups_are_from_one():
    unquoted = cards.card(timing=replace(timed(0.98, 1, 1).timing, speedup=None, speedup_low=None, speedup_high=None))
    line = itself_table.line_of([timed(1.01, 0.99, 1.03), timed(1.04, 1.02, 1.06), unquoted])
    assert (line.reference_ms, line.grades, line.quoted) == (1.01, 3, 2)
    assert (line.holding, line.intervals) == (1, 2)
    assert (line.error, line.width) == (pytest.approx(0.02), pytest.approx(0.04))
