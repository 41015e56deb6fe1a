"""The timeline that a batch records, and `report --timeline`."""

import json

import pytest

from evaluator.batch.runs import timeline_file
from evaluator.batch.runs.run_folder import RunFolder
from evaluator.batch.runs.timeline_file import TimelineWriter, read_timeline
from evaluator.commands import main as cli
from evaluator.report.timeline import MOST_STAGES, Lane, LaneKind, waits
from tests.batch.test_session import batch  # noqa: F401 - a fixture

FILES = {"relu/a.py": "# right", "relu/b.py": "# lost 1", "softmax/<b>.py": "# wrong"}


def stages(tmp_path):
    sessions = read_timeline(RunFolder(tmp_path / "run")).sessions
    return {turn.name: [name for name, _ in turn.stages] for each in sessions for turn in each.turns}


def test_a_batch_records_the_stages_of_each_turn(batch, hand_in, tmp_path):  # noqa: F811
    hand_in(FILES)
    batch()
    assert stages(tmp_path) == {
        "a": ["start", "build"],
        "b": ["start", "build", "again", "build"],
        "<b>": ["start", "build"],
    }
    (tmp_path / "submissions/relu/c.py").write_text("# wrong 2")
    batch()
    sessions = read_timeline(RunFolder(tmp_path / "run")).sessions
    assert [len(each.turns) for each in sessions] == [3, 1]
    assert [lane.kind for lane in sessions[0].session.lanes] == [LaneKind.GRADE]
    batch("--fresh")
    assert [len(each.turns) for each in read_timeline(RunFolder(tmp_path / "run")).sessions] == [4]


def test_a_report_writes_the_trace(batch, hand_in, tmp_path, capsys):  # noqa: F811
    hand_in(FILES)
    batch()
    assert cli.run(["report", "run", "--timeline", "trace.json"]) == 0
    assert "wrote trace.json: 1 session" in capsys.readouterr().err
    names = [event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]]
    assert {"relu/a", "softmax/<b>", "again"} <= set(names)


def test_a_run_without_a_timeline_says_so(batch, hand_in, tmp_path, capsys):  # noqa: F811
    hand_in(FILES)
    batch()
    (tmp_path / "run/timeline.jsonl").unlink()
    assert cli.run(["report", "run", "--timeline", "trace.json"]) == 2
    assert "no timeline is recorded" in capsys.readouterr().err
    assert not (tmp_path / "trace.json").exists()


def test_lines_that_no_batch_writes_are_left_out(tmp_path):
    folder = RunFolder(tmp_path)
    lines = [
        '{"type":"turn","lane":0,"problem":"p","name":"before any session","stages":[["check",1.0]],"ended_s":2.0}',
        '{"type":"session","started_at":"2026-01-01T00:00:00Z","host":"h","lanes":[{"kind":"gpu"}]}',
        '{"type":"turn","lane":0,"problem":"p","name":"n","stages":[["check",1.0]],"ended_s":2.0}',
        '{"type":"turn","lane":1,"problem":"p","name":"no such lane","stages":[["check",1.0]],"ended_s":2.0}',
        '{"type":"turn","lane":0,"problem":"p","name":"no stage","stages":[],"ended_s":2.0}',
        '{"type":"turn","lane":0,"problem":"p","name":"for ever","stages":[["check",1e300]],"ended_s":2.0}',
        '{"type":"turn","lane":0,"problem":"p","name":"earlier","stages":[["check",1.0]],"ended_s":2.0,"sums":[1]}',
        '{"type":"turn","lane":0,"problem":"p","name":"cut","stages":[["ch',
    ]
    folder.timeline.write_text("\n".join(lines))
    (only,) = read_timeline(folder).sessions
    assert [turn.name for turn in only.turns] == ["n", "earlier"]


def test_a_file_that_is_too_long_is_read_in_part(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)
    with_writer(folder, 50)
    assert not read_timeline(folder).is_cut
    monkeypatch.setattr(timeline_file, "_MAX_BYTES", folder.timeline.stat().st_size // 2)
    cut = read_timeline(folder)
    assert cut.is_cut
    assert 40 < len(cut.sessions[0].turns) < 60


def test_a_report_tells_of_a_timeline_that_is_read_in_part(batch, hand_in, monkeypatch, capsys):  # noqa: F811
    hand_in(FILES)
    batch()
    monkeypatch.setattr(timeline_file, "_MAX_BYTES", 300)
    assert cli.run(["report", "run", "--timeline", "trace.json"]) == 0
    assert "only its beginning was read" in capsys.readouterr().err


def with_writer(folder, count):
    writer = TimelineWriter(folder, [Lane(LaneKind.BUILD), Lane(LaneKind.GPU)], 0.0)
    for number in range(count):
        writer.stage(0, ("relu", f"s{number}"), "build", number)
        writer.stage(0, ("relu", f"s{number}"), "built", number + 0.5)
        writer.stage(1, ("relu", f"s{number}"), "check", number + 0.75)
        writer.end(1, number + 1.0)
    writer.close()


def test_a_turn_that_a_lane_lost_ends_with_the_next(tmp_path):
    folder = RunFolder(tmp_path)
    with_writer(folder, 2)
    (session,) = read_timeline(folder).sessions
    assert waits(session) == [(0.5, 0.75), (1.5, 1.75)]
    writer = TimelineWriter(folder, [Lane(LaneKind.GRADE)], 0.0)
    writer.stage(0, ("relu", "lost"), "build", 1.0)
    writer.stage(0, ("relu", "next"), "build", 3.0)
    writer.end(0, 4.0)
    writer.close()
    turns = read_timeline(folder).sessions[1].turns
    assert [(turn.name, turn.began_s, turn.ended_s) for turn in turns] == [("lost", 1.0, 3.0), ("next", 3.0, 4.0)]


@pytest.mark.parametrize("stage", ["build", "check"])
def test_many_stages_and_long_names_make_a_short_line(tmp_path, stage):
    folder = RunFolder(tmp_path)
    writer = TimelineWriter(folder, [Lane(LaneKind.GRADE)], 0.0)
    for number in range(1000):
        writer.stage(0, ("p" * 10_000, "\udc80" * 10_000), stage if number % 2 else "other", number)
    writer.end(0, 1000.0)
    writer.close()
    (turn,) = read_timeline(folder).sessions[0].turns
    assert len(turn.stages) == MOST_STAGES
    assert folder.timeline.stat().st_size < 8000
