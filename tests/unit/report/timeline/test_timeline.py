"""Timelines: sums, waits, the chart's bounded size, and the trace."""

import datetime
import json
import re

import pytest

from evaluator.report.timeline.chart import chart
from evaluator.report.timeline.division import Portion, division_lines, operation_of, portions, section_of
from evaluator.report.timeline.page_section import timeline_section, use_lines
from evaluator.report.timeline.recording import Activity, Lane, LaneKind, Session, SessionTimeline, Turn, uses, waits
from evaluator.report.timeline.trace import trace_bytes
from evaluator.spans import Operation, Section, SpanSum

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
TWO_LANES = [Lane(LaneKind.GPU, "GPU-1"), Lane(LaneKind.BUILD)]


def timeline(*turns, lanes=TWO_LANES, at=NOON):
    return SessionTimeline(Session(at, "a-host", lanes), turns)


BUILT = Turn(1, "relu", "a", [("start", 0.0), ("lint", 1.0), ("build", 1.5)], 4.0, is_built=True)
CHECKED = Turn(0, "relu", "a", [("start", 5.0), ("device", 6.0), ("check", 7.0), ("time", 9.0)], 10.0)


def test_the_seconds_of_a_kind_are_those_of_its_lanes():
    gpu, build = uses(timeline(BUILT, CHECKED))
    assert (gpu.kind, gpu.lanes, gpu.session_s) == (LaneKind.GPU, 1, 10.0)
    assert {activity: s for activity, s in gpu.seconds.items() if s} == {
        Activity.START: 1.0,
        Activity.DEVICE: 1.0,
        Activity.CHECK: 2.0,
        Activity.TIME: 1.0,
    }
    assert gpu.busy == pytest.approx(0.5)
    assert build.seconds[Activity.BUILD] == pytest.approx(3.0)
    assert use_lines(timeline(BUILT, CHECKED))[0] == (
        "1 GPU lane: 50% of 10.0 s busy; start 1.0 s, device 1.0 s, check 2.0 s, time 1.0 s"
    )


def test_a_built_submission_waits_until_its_turn_on_a_gpu():
    assert waits(timeline(BUILT, CHECKED)) == [(4.0, 5.0)]
    failed = Turn(1, "relu", "a", [("build", 0.0)], 4.0)
    assert waits(timeline(failed, CHECKED)) == []
    other = Turn(0, "relu", "b", [("check", 6.0)], 7.0)
    assert waits(timeline(BUILT, other)) == []


def test_an_unknown_stage_and_a_time_that_runs_backwards_are_harmless():
    odd = Turn(0, "relu", "a", [("later", 5.0), ("check", 3.0)], 1.0)
    assert [(span.activity, span.seconds) for span in odd.spans] == [(Activity.OTHER, 0.0), (Activity.CHECK, 0.0)]
    assert "<svg" in chart(timeline(odd)).svg


def test_a_column_is_stacked_by_its_shares():
    """The GPU works in the first half of the session, and checks in half of that time."""
    half = [Turn(0, "relu", str(n), [("check", n / 8), ("time", n / 8 + 1 / 16)], n / 8 + 1 / 8) for n in range(4000)]
    svg = chart(timeline(*half, Turn(1, "relu", "last", [("build", 999.0)], 1000.0))).svg
    checks = re.search(r'class="a-check" d="([^"]*)"', svg)[1]
    assert re.fullmatch(r"M76\.0 14h508\.0v8h-508\.0z", checks)
    assert 'class="a-other"' not in svg


def test_the_page_has_the_seconds_of_each_activity():
    section = timeline_section([timeline(BUILT, CHECKED)])
    header, rows = section.sessions[0].header, section.sessions[0].rows
    assert [row[header.index("check, s")] for row in rows] == ["2.0", "0.0"]
    assert {len(row) for row in rows} == {len(header)}


def test_the_chart_of_ten_thousand_grades_stays_small():
    lanes = [*([Lane(LaneKind.GPU)] * 8), *([Lane(LaneKind.BUILD)] * 64)]
    turns = [
        Turn(n % 72, "relu", f"sample {n}", [(stage, n / 5 + part) for part, stage in enumerate(Activity)], n / 5 + 7.3)
        for n in range(10_000)
    ]
    section = timeline_section([timeline(*turns, lanes=lanes)] * 5)
    assert len(section.sessions) == 2
    assert section.left_out.startswith("3 shorter sessions left out")
    assert section.sessions[0].remarks == ["32 lanes not drawn."]
    assert sum(len(each.svg) for each in section.sessions) < 4 << 20


def test_a_session_without_length_is_drawn():
    assert "<svg" in chart(timeline(Turn(0, "relu", "a", [("start", 0.0)], 0.0))).svg
    assert timeline_section([]) is None


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


WINDOWS = (Section.SUBMISSION, Section.WINDOWS)
DIVIDED = Turn(
    0,
    "relu",
    "a",
    [("check", 0.0), ("time", 10.0)],
    30.0,
    sums=[
        SpanSum("time", (), Operation.OTHER, 1.0, 1),
        SpanSum("time", WINDOWS, Operation.COMPARISON, 8.0, 90),
        SpanSum("time", (Section.REFERENCE_AFTER,), Operation.COMPARISON, 2.0, 10),
        SpanSum("time", WINDOWS, Operation.CALL, 9.0, 6),
    ],
)


def test_the_parts_of_a_stage_add_up_by_section_and_by_operation():
    both = timeline(DIVIDED, DIVIDED, BUILT)
    assert portions(both, section_of) == [
        Portion("time", "submission, windows", 34.0),
        Portion("check", "not divided", 20.0),
        Portion("time", "reference after", 4.0),
        Portion("time", "other", 2.0),
    ]
    assert [each for each in portions(both, operation_of) if each.stage == "time"] == [
        Portion("time", "comparison", 20.0),
        Portion("time", "clocked calls", 18.0),
        Portion("time", "other", 2.0),
    ]


def test_the_time_of_an_earlier_attempt_is_not_divided():
    twice = Turn(0, "relu", "a", [("time", 0.0), ("again", 40.0), ("time", 50.0)], 70.0, sums=DIVIDED.sums)
    assert Portion("time", "not divided", 40.0) in portions(timeline(twice), section_of)


def test_the_tables_show_shares_and_merge_small_parts():
    small = [SpanSum("check", (), operation, 0.01, 1) for operation in (Operation.INPUTS, Operation.WEIGHTS)]
    turn = Turn(0, "relu", "a", [("check", 0.0), ("time", 10.0)], 30.0, sums=[*DIVIDED.sums, *small])
    lines = division_lines(timeline(turn))
    assert lines[0] == "where the GPUs' turns went, by section:"
    rows = [line.split() for line in lines]
    assert ["time", "submission,", "windows", "17.0", "57%"] in rows
    assert ["2", "smaller", "parts", "0.0", "0%"] in rows
    assert division_lines(timeline(CHECKED)) == []
    assert division_lines(timeline(turn, lanes=[Lane(LaneKind.GRADE)]))[0] == "where the turns went, by section:"


def test_a_divided_stage_has_nested_slices_of_the_sums():
    events = json.loads(trace_bytes([timeline(DIVIDED)]))["traceEvents"]
    parts = [
        (e["name"], e["ts"] / 1e6, e["dur"] / 1e6, e["args"].get("times")) for e in events if e.get("cat") == "sum"
    ]
    assert parts == [
        ("other", 10.0, 1.0, 1),
        ("submission", 11.0, 17.0, None),
        ("windows", 11.0, 17.0, None),
        ("comparison", 11.0, 8.0, 90),
        ("clocked calls", 19.0, 9.0, 6),
        ("reference after", 28.0, 2.0, None),
        ("comparison", 28.0, 2.0, 10),
    ]


def test_sums_that_exceed_their_stage_end_with_the_stage():
    short = Turn(0, "relu", "a", [("time", 0.0), ("roofline", 5.0)], 6.0, sums=DIVIDED.sums)
    events = json.loads(trace_bytes([timeline(short)]))["traceEvents"]
    ends = [e["ts"] + e["dur"] for e in events if e.get("cat") == "sum"]
    assert max(ends) == 5_000_000
