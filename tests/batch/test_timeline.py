"""The timelines that a batch records, in Chrome's trace format."""

import json

from evaluator.batch.runs.run_folder import RunFolder
from evaluator.batch.timeline import MOST_STAGES, WAITING, Timeline
from evaluator.batch.workers.messages import GradePart
from evaluator.batch.workers.worker_handle import Slot

FILES = {"relu/a.py": "# right", "relu/b.py": "# lost 1", "softmax/<b>.py": "# wrong"}


def events_of(run):
    """Return the events of each session; the format needs no closing bracket."""
    files = sorted((run / "logs").glob("timeline-*.json"))
    return [json.loads(file.read_text().rstrip().removesuffix(",") + "]") for file in files]


def slices(events):
    return [(event["name"], event["ts"] / 1e6, event["dur"] / 1e6) for event in events if event["ph"] == "X"]


def test_a_batch_records_the_stages_of_each_turn(batch, hand_in, tmp_path):
    hand_in(FILES)
    batch()
    (events,) = events_of(tmp_path / "run")
    names = [name for name, _, _ in slices(events)]
    assert sorted(name for name in names if "/" in name) == ["relu/a", "relu/b", "softmax/<b>"]
    assert names[names.index("relu/b") :][:5] == ["relu/b", "start", "build", "again", "build"]
    assert [event["args"]["name"] for event in events if event["name"] == "thread_name"] == ["grade 0"]
    (tmp_path / "submissions/relu/c.py").write_text("# wrong 2")
    batch()
    assert [len(slices(each)) for each in events_of(tmp_path / "run")] == [len(names), 3]
    batch("--fresh")
    assert len(events_of(tmp_path / "run")) == 1


def recorded(tmp_path, part, write):
    """Return the events of a session with a building slot and a slot of `part`."""
    folder = RunFolder(tmp_path)
    folder.logs.mkdir()
    timeline = Timeline(folder, [Slot(part=GradePart.BEGIN), Slot(part=part)], 0.0)
    write(timeline)
    timeline.close()
    (events,) = events_of(tmp_path)
    return events


def test_the_submissions_between_build_and_gpu_are_counted(tmp_path):
    def write(timeline):
        for number in range(2):
            timeline.stage(0, ("relu", f"s{number}"), "build", number)
            timeline.stage(0, ("relu", f"s{number}"), "built", number + 0.5)
        timeline.stage(1, ("relu", "s0"), "check", 1.75)
        timeline.end(1, 2.0)

    events = recorded(tmp_path, GradePart.FINISH, write)
    counts = [(event["ts"] / 1e6, event["args"]["submissions"]) for event in events if event["name"] == WAITING]
    assert counts == [(0.5, 1), (1.5, 2), (1.75, 1)]


def test_a_turn_that_a_lane_lost_ends_with_the_next(tmp_path):
    def write(timeline):
        timeline.stage(1, ("relu", "lost"), "build", 1.0)
        timeline.stage(1, ("relu", "next"), "build", 3.0)
        timeline.end(1, 4.0)

    turns = [each for each in slices(recorded(tmp_path, GradePart.ALL, write)) if "/" in each[0]]
    assert turns == [("relu/lost", 1.0, 2.0), ("relu/next", 3.0, 1.0)]


def test_many_stages_and_long_names_make_short_events(tmp_path):
    def write(timeline):
        for number in range(1000):
            timeline.stage(1, ("p" * 10_000, "\udc80" * 10_000), "build" if number % 2 else "other", number)
        timeline.end(1, 1000.0)

    events = recorded(tmp_path, GradePart.ALL, write)
    assert len(slices(events)) == MOST_STAGES + 1
    assert len(json.dumps(events)) < 12_000
