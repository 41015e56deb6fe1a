"""Sums of sections and operations in the stages of a real grade."""

import time

from evaluator.judge.clock.host_clock import HostClock
from evaluator.records import Status
from evaluator.spans import Meter, Operation, Section, metered
from tests.grading.conftest import judging

RIGHT = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clamp(min=0)
"""


def test_a_grade_divides_check_and_time_into_its_sides_and_operations(judged):
    began_s = time.monotonic()
    with metered() as meter:
        outcome = judged(RIGHT)
    wall_s = time.monotonic() - began_s
    assert outcome.status is Status.CORRECT
    sums = meter.sums()
    assert 0 < sum(each.seconds for each in sums) <= wall_s
    sections = {(each.stage, each.sections) for each in sums}
    for side in (Section.REFERENCE_BEFORE, Section.SUBMISSION, Section.REFERENCE_AFTER):
        assert ("time", (side, Section.CALLS)) in sections
    assert ("check", (Section.CALLS,)) in sections
    of_calls = {each.operation: each for each in sums if each.sections == (Section.SUBMISSION, Section.CALLS)}
    asked = of_calls[Operation.CALL].times
    assert asked == of_calls[Operation.PREPARATION].times >= len(outcome.timing.submission.samples_ms)
    assert {Operation.START, Operation.END} <= {each.operation for each in sums}


def test_no_block_begins_or_ends_while_a_clock_runs(grader, monkeypatch):
    measure, move_to = HostClock.call, Meter.move_to
    moves, inside = [], []

    def measuring(*arguments, **options):
        before = len(moves)
        answer = measure(*arguments, **options)
        inside.append(len(moves) - before)
        return answer

    def counting(meter, place):
        moves.append(place)
        move_to(meter, place)

    monkeypatch.setattr(HostClock, "call", measuring)
    monkeypatch.setattr(Meter, "move_to", counting)
    with judging(grader) as judged, metered():
        assert judged(RIGHT).status is Status.CORRECT
    assert set(inside) == {0}  # not empty: there were such measurements
    assert len(moves) > len(inside)
