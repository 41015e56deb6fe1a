"""Timelines: waits, and the trace."""

import datetime
import json

from evaluator.report.timeline import Lane, LaneKind, Session, SessionTimeline, Turn, trace_bytes, waits

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
TWO_LANES = [Lane(LaneKind.GPU, "GPU-1"), Lane(LaneKind.BUILD)]


def timeline(*turns, lanes=TWO_LANES, at=NOON):
    return SessionTimeline(Session(at, "a-host", lanes), turns)


BUILT = Turn(1, "relu", "a", [("start", 0.0), ("lint", 1.0), ("build", 1.5)], 4.0, is_built=True)
CHECKED = Turn(0, "relu", "a", [("start", 5.0), ("device", 6.0), ("check", 7.0), ("time", 9.0)], 10.0)


def test_a_built_submission_waits_until_its_turn_on_a_gpu():
    assert waits(timeline(BUILT, CHECKED)) == [(4.0, 5.0)]
    failed = Turn(1, "relu", "a", [("build", 0.0)], 4.0)
    assert waits(timeline(failed, CHECKED)) == []
    other = Turn(0, "relu", "b", [("check", 6.0)], 7.0)
    assert waits(timeline(BUILT, other)) == []


def test_an_unknown_stage_and_a_time_that_runs_backwards_are_harmless():
    odd = Turn(0, "relu", "a", [("later", 5.0), ("check", 3.0)], 1.0)
    assert list(odd.spans) == [("later", 5.0, 5.0), ("check", 3.0, 3.0)]


def test_a_trace_has_a_thread_for_each_lane_and_a_slice_for_each_stage():
    later = timeline(CHECKED, at=NOON + datetime.timedelta(seconds=60))
    events = json.loads(trace_bytes([timeline(BUILT, CHECKED), later]))["traceEvents"]
    threads = [each["args"]["name"] for each in events if each["name"] == "thread_name" and each["pid"] == 1]
    assert threads == ["GPU 0", "build 0"]
    slices = [(e["pid"], e["tid"], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert (1, 0, "check", 7_000_000, 2_000_000) in slices
    assert (1, 1, "relu/a", 0, 4_000_000) in slices
    assert (2, 0, "time", 69_000_000, 1_000_000) in slices
    counters = [(e["ts"], e["args"]["submissions"]) for e in events if e["ph"] == "C"]
    assert counters == [(4_000_000, 1), (5_000_000, 0)]
