"""A batch from the command line, with workers that grade in no time."""

import errno
import json
import os
import sqlite3
import threading
import time
from collections import Counter
from pathlib import Path

import filelock
import pytest
from jsonschema import Draft202012Validator

from evaluator.batch import scheduler
from evaluator.batch.runs import inputs, run_folder
from evaluator.batch.runs.run_folder import RunFolder
from evaluator.errors import UsageError
from evaluator.files.card_files import read_card, write_card
from evaluator.grade_options import GradeOptions
from evaluator.records import BaselineKind, DeviceKind, SizeName
from evaluator.schema import SchemaName, schema
from tests import cards


def statuses(tmp_path):
    top = tmp_path / "run" / "cards"
    return {str(path.relative_to(top)): read_card(path).status.value for path in sorted(top.glob("**/*.json"))}


FOUR = {"relu/a.py": "# right", "relu/b.py": "# wrong", "softmax/c.py": "# uncompiled", "softmax/d.md": "none"}


def test_only_the_problems_of_a_pattern_are_graded(batch, hand_in, tmp_path):
    hand_in(FOUR)
    assert batch("--only", "soft*") == 1
    assert list(statuses(tmp_path)) == ["softmax/c.json", "softmax/d.md.json"]
    assert "[2/2]" in batch.err
    assert batch("--only", "rel[u]", "--only", "relu") == 1
    assert len(statuses(tmp_path)) == 4


def test_everything_gets_a_card(batch, hand_in, tmp_path):
    hand_in(FOUR)
    assert batch() == 1
    assert statuses(tmp_path) == {
        "relu/a.json": "correct",
        "relu/b.json": "wrong_result",
        "softmax/c.json": "build_error",
        "softmax/d.md.json": "build_error",
    }
    assert "1 correct" in batch.err
    assert {line["card"]: line["status"] for line in batch.lines} == statuses(tmp_path)
    assert all(line["how"] == "graded" for line in batch.lines)


def test_the_same_command_goes_on(batch, hand_in, tmp_path, worker):
    hand_in(FOUR)
    batch()
    (tmp_path / "run/cards/relu/b.json").unlink()
    (tmp_path / "run/cards/softmax/c.json").write_text("{")  # nothing of ours leaves this, but a disk may
    batch()
    assert worker.graded == Counter({"# right": 1, "# wrong": 2, "# uncompiled": 2, "unread": 1})
    assert Counter(line["how"] for line in batch.lines) == Counter(kept=2, graded=2)


def test_a_lost_index_is_made_again(batch, hand_in, tmp_path, worker):
    hand_in(FOUR)
    batch()
    index = tmp_path / "run/index.sqlite"
    with sqlite3.connect(index) as connection:
        rows = sorted(connection.execute("SELECT card, status, size_bytes FROM cards"))
    connection.close()
    whole = index.read_bytes()
    for broken in (None, b"SQLite format 3\0 or not", b"", whole[:4096] + b"\xff" * (len(whole) - 4096)):
        index.unlink() if broken is None else index.write_bytes(broken)
        batch()
        with sqlite3.connect(index) as connection:
            assert sorted(connection.execute("SELECT card, status, size_bytes FROM cards")) == rows
        connection.close()
    assert sum(worker.graded.values()) == 4


def test_a_card_that_was_changed_is_read_again(batch, hand_in, tmp_path):
    hand_in({"relu/a.py": "# right"})
    assert batch() == 0
    path = tmp_path / "run/cards/relu/a.json"
    card = read_card(path)
    crashed = cards.crashed_card(problem=card.problem, submission=card.submission, device=card.device)
    write_card(crashed, path)
    assert batch() == 1
    assert batch.lines[0]["status"] == "runtime_error"


def test_a_card_that_contradicts_itself_is_graded_again(batch, hand_in, tmp_path):
    hand_in({"relu/a.py": "# right", "relu/b.py": "# right too"})
    assert batch() == 0
    path = tmp_path / "run/cards/relu/a.json"
    path.write_text(path.read_text().replace('"status": "correct"', '"status": "timeout"'))
    assert batch() == 0
    assert {line["card"]: line["how"] for line in batch.lines} == {"relu/a.json": "graded", "relu/b.json": "kept"}


def test_equal_submissions_are_graded_once_and_reported_for_each(batch, hand_in, tmp_path, worker, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})  # a core for each of two jobs
    hand_in({f"relu/{name}.py": "# right" for name in "abc"} | {"softmax/a.py": "# right"})
    assert batch("--jobs", 2) == 0
    assert worker.graded["# right"] == 2  # once for each problem
    assert len(statuses(tmp_path)) == 4
    assert read_card(tmp_path / "run/cards/relu/b.json").submission.name == "b"
    assert sorted(line["how"] for line in batch.lines) == ["copied", "copied", "graded", "graded"]
    hand_in({"relu/late.py": "# right"})
    batch()
    assert worker.graded["# right"] == 2
    assert read_card(tmp_path / "run/cards/relu/late.json").submission.origin.endswith("late.py")


@pytest.mark.parametrize("how", ["lost", "infra"])
def test_what_the_machine_failed_is_tried_again_on_a_fresh_worker(batch, hand_in, worker, how):
    hand_in({"relu/a.py": f"# {how} 2"})
    assert batch() == 0
    assert len(worker.started) == 3
    assert all(each.closed for each in worker.started)


@pytest.mark.parametrize("how", ["lost", "infra"])
def test_after_three_times_it_is_recorded_and_only_a_wish_tries_again(batch, hand_in, tmp_path, worker, how):
    hand_in({"relu/a.py": f"# {how} 3", "relu/b.py": "# wrong"})
    assert batch() == 3
    assert statuses(tmp_path) == {"relu/a.json": "infra_error", "relu/b.json": "wrong_result"}
    assert read_card(tmp_path / "run/cards/relu/a.json").submission.source == f"# {how} 3"
    assert batch() == 3
    assert worker.graded[f"# {how} 3"] == 3
    assert batch("--retry", "infra") == 1
    assert worker.graded == Counter({f"# {how} 3": 4, "# wrong": 1})
    batch("--retry", "failed")
    assert worker.graded["# wrong"] == 2


def test_what_another_attempt_cannot_help_is_not_tried_again(batch, hand_in, worker, tmp_path):
    hand_in({"relu/a.py": "# broken"})
    assert batch() == 3
    assert worker.graded["# broken"] == 1
    reason = read_card(tmp_path / "run/cards/relu/a.json").reason
    assert (reason.message, reason.next_step) == ("the problem is broken", "mend its get_inputs")


@pytest.mark.parametrize(("times", "status"), [(1, "correct"), (2, "runtime_error")])
def test_who_is_killed_gets_a_second_chance_and_no_third(batch, hand_in, tmp_path, worker, times, status):
    """Afterwards its own kill cannot be told from another's."""
    hand_in({"relu/a.py": f"# killed {times}"})
    batch()
    assert statuses(tmp_path) == {"relu/a.json": status}
    assert worker.graded[f"# killed {times}"] == 2
    assert len(worker.started) == 1  # the worker is not to blame


@pytest.mark.parametrize("what", ["plan", "log", "card"])
def test_a_disk_that_is_full_ends_it_and_the_same_command_goes_on(batch, hand_in, tmp_path, monkeypatch, what):
    hand_in({f"relu/{n}.py": f"# right {n}" for n in range(4)})

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        match what:
            case "plan":
                patch.setattr(run_folder.PlanFile, "__init__", with_a_full_file)
            case "log":
                patch.setattr(scheduler.Scheduler, "_note", full)
            case "card":
                patch.setattr("os.fsync", full)
        assert batch() == 3
    assert "No space left on device" in batch.err
    assert "Traceback" not in batch.err
    assert "repeat the command to resume" in batch.err or what == "card"
    assert batch() == 0
    assert len(statuses(tmp_path)) == 4


def with_a_full_file(plan, folder, begin=run_folder.PlanFile.__init__):
    begin(plan, folder)
    plan._file.close()
    plan._file = Path("/dev/full").open("ab", buffering=0)  # noqa: SIM115 - the plan closes it


def test_fresh_begins_again(batch, hand_in, tmp_path, worker):
    hand_in({"relu/a.py": "# right", "relu/b.py": "# right too"})
    batch()
    (tmp_path / "submissions/relu/b.py").unlink()
    batch("--fresh")
    assert worker.graded["# right"] == 2
    assert list(statuses(tmp_path)) == ["relu/a.json"]
    assert list(RunFolder(tmp_path / "run").read_plan()) == ["relu/a.json"]


def test_a_strangers_folder_is_left_alone(batch, hand_in, tmp_path):
    hand_in({"relu/a.py": "# right"})
    (tmp_path / "run").mkdir()
    (tmp_path / "run/thesis.txt").write_text("dear")
    assert batch("--fresh") == 2
    assert "contains files that are not a run's" in batch.err
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_other_terms_need_another_folder(batch, hand_in):
    hand_in({"relu/a.py": "# right"})
    batch()
    assert batch("--size", "full") == 2
    assert "was started with the device's own size, not size full" in batch.err


def manifest(submissions="-", **options):
    return run_folder.manifest_for(GradeOptions(DeviceKind.CPU, **options), submissions)


def refusal(path, begun, wanted):
    """Say what the second of two sittings on the folder `path` is told."""
    with run_folder.opened(path, begun):
        pass
    with pytest.raises(UsageError) as raised, run_folder.opened(path, wanted):
        pass
    return raised.value


def test_terms_that_were_left_out_are_told_in_words(tmp_path):
    named = manifest(
        size=SizeName.SMALL,
        timeout_s=5.0,
        require_own_kernel=0.5,
        strict=True,
        baselines=(BaselineKind.COMPILE,),
        problems=tmp_path,
    )
    told = refusal(tmp_path / "run", manifest(), named).message
    assert told.partition("was started with ")[2].split("; ") == [
        "the device's own size, not size small",
        "the judge's own timeout, not timeout_s 5.0",
        "no required share of own kernels, not require_own_kernel 0.5",
        "strict off, not strict on",
        "no baselines, not baselines compile",
        f"the shipped problems, not problems {tmp_path}",
    ]


def test_other_submissions_need_another_folder(batch, hand_in, tmp_path, monkeypatch):
    hand_in({"relu/a.py": "# right"})
    assert batch() == 0
    before = (tmp_path / "run/cards/relu/a.json").read_bytes()
    (tmp_path / "others/relu").mkdir(parents=True)
    (tmp_path / "others/relu/a.py").write_text("# wrong")
    assert batch(submissions="others") == 2
    assert f"was started with submissions {tmp_path}/submissions, not submissions {tmp_path}/others" in batch.err
    assert "name another folder with --run, or start over with --fresh" in batch.err
    assert (tmp_path / "run/cards/relu/a.json").read_bytes() == before
    assert batch("--fresh", submissions="others") == 1
    (tmp_path / "others/relu/a.py").write_text("# right again")
    assert batch(submissions="others") == 0


def test_one_place_of_submissions_may_be_spelled_in_many_ways(batch, hand_in, tmp_path, monkeypatch):
    hand_in({"relu/a.py": "# right"})
    (tmp_path / "link").symlink_to("submissions")
    for spelled in ("submissions", "./submissions/", tmp_path / "submissions", "link"):
        assert batch(submissions=spelled) == 0, batch.err
    earlier = tmp_path / "run/manifest.json"  # an earlier version wrote the place as it was given
    earlier.write_text(earlier.read_text().replace(f"{tmp_path}/submissions", "submissions"))
    assert batch(submissions="./submissions") == 0, batch.err


def test_a_pipe_is_known_by_its_text():
    """What /dev/fd/63 leads to is another pipe each time the same command is given."""
    end, other = os.pipe()
    os.close(other)
    place = f"/dev/fd/{end}"
    assert manifest(submissions=place).submissions == place
    os.close(end)


@pytest.mark.parametrize(
    ("submissions", "message", "hint"),
    [
        ("nowhere", "cannot read nowhere: No such file", "name a folder of submissions, a file of JSON lines"),
        ("empty", "empty contains no submissions", "PROBLEM/NAME.py"),
        ("submissions/relu/a.py", "a.py is a single submission", "`warpgrade grade PROBLEM submissions/relu/a.py`"),
        ("submissions/relu/b.MD", "b.MD is a single submission", "`warpgrade grade PROBLEM submissions/relu/b.MD`"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--shard", "1/2")])
def test_what_cannot_begin_leaves_no_folder(batch, hand_in, tmp_path, worker, submissions, message, hint, more):
    hand_in({"relu/a.py": "# right\nx = 1\n", "relu/b.MD": "none"})
    (tmp_path / "empty/relu").mkdir(parents=True)
    assert batch(*more, submissions=submissions) == 2
    assert message in batch.err
    assert hint in batch.err
    assert "refused" not in batch.err
    assert not (tmp_path / "run").exists()
    assert worker.started == []
    if not more:
        batch()
        assert batch("--fresh", submissions=submissions) == 2
        assert statuses(tmp_path) == {"relu/a.json": "correct", "relu/b.MD.json": "build_error"}


def test_a_part_without_submissions_is_no_mistake(batch, hand_in, tmp_path):
    """Of four parts of one submission three are empty: whoever shares a batch out cannot know which."""
    hand_in({"relu/a.py": "# right"})
    assert [batch("--shard", f"{part}/4") for part in range(1, 5)] == [0] * 4
    assert statuses(tmp_path) == {"relu/a.json": "correct"}


def test_a_second_batch_on_the_folder_is_told(batch, hand_in, tmp_path):
    hand_in({"relu/a.py": "# right"})
    batch()
    with filelock.FileLock(tmp_path / "run/.lock"):
        assert batch() == 2
    assert "another batch is using run" in batch.err


def test_limit_and_shards(batch, hand_in, tmp_path):
    hand_in({f"relu/{n}.py": f"# right {n}" for n in range(12)})
    assert batch("--limit", 3) == 0
    assert len(statuses(tmp_path)) == 3
    for part in (1, 2, 3):
        assert batch("--shard", f"{part}/3") == 0
    assert len(statuses(tmp_path)) == 12
    assert batch("--shard", "4/3") == 2


def test_fail_fast(batch, hand_in, worker):
    hand_in({f"relu/{n:02}.py": "# wrong" if n == 2 else f"# right {n}" for n in range(10)})
    assert batch("--fail-fast") == 1
    assert worker.graded["# wrong"] == 1
    assert sum(worker.graded.values()) == 3


def test_ctrl_c_ends_every_worker_and_says_how_to_go_on(batch, hand_in, tmp_path, worker, monkeypatch):
    hand_in({"relu/a.py": "# right", "relu/b.py": "# hanging", "relu/c.py": "# right too"})
    main = threading.main_thread().ident

    def press():
        import signal

        while worker.graded["# hanging"] == 0:
            time.sleep(0.01)
        signal.pthread_kill(main, signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    assert batch() == 130
    presser.join()
    assert "repeat the command to resume" in batch.err
    assert all(each.interrupted.is_set() for each in worker.started)
    assert "relu/b.json" not in statuses(tmp_path)
    hand_in({"relu/b.py": "# right at last"})
    assert batch() == 0


def test_a_file_that_has_not_changed_is_not_read_again(batch, hand_in, tmp_path, monkeypatch):
    hand_in({"relu/a.py": "# right", "relu/b.py": "# wrong", "relu/c.md": "none"})
    batch()
    read = []
    original = inputs.read_submission
    monkeypatch.setattr(inputs, "read_submission", lambda path, **how: (read.append(path), original(path, **how))[1])
    batch()
    assert [line["how"] for line in batch.lines] == ["kept"] * 3
    assert read == []
    os.utime(tmp_path / "submissions/relu/b.py", ns=(1, 1))
    (tmp_path / "run/cards/relu/a.json").unlink()
    batch()
    assert sorted(path.name for path in read) == ["a.py", "b.py"]
    assert sorted(line["how"] for line in batch.lines) == ["graded", "kept", "kept"]


def test_an_outdated_plan_is_written_anew(batch, hand_in, tmp_path):
    hand_in({"relu/a.py": "# right", "relu/b.py": "# wrong"})
    batch()
    plan = tmp_path / "run/plan.jsonl"
    whole = RunFolder(tmp_path / "run").read_plan()
    plan.write_bytes(plan.read_bytes() * 10)
    batch()
    assert len(plan.read_bytes().split()) == 2
    assert RunFolder(tmp_path / "run").read_plan() == whole


def test_what_stands_in_the_plan_is_not_written_again(batch, tmp_path):
    line = json.dumps({"problem": "relu", "source": "# right", "sample": 0})
    (tmp_path / "in.jsonl").write_text(f"{line}\n")
    for _ in range(3):
        assert batch(submissions="in.jsonl") == 0
    assert len((tmp_path / "run/plan.jsonl").read_bytes().split()) == 1


def test_the_manifest_fits_its_schema(batch, hand_in, tmp_path):
    hand_in({"relu/a.py": "# right"})
    batch()
    manifest = json.loads((tmp_path / "run/manifest.json").read_bytes())
    fits = Draft202012Validator(schema(SchemaName.RUN)).is_valid
    assert fits(manifest)
    assert not fits({**manifest, "terms": None})


def test_a_batch_that_was_killed_while_it_wrote_its_manifest_begins_again(batch, hand_in, tmp_path):
    hand_in({"relu/a.py": "# right"})
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.warpgrade-0123456789abcdef.tmp").write_text("{")
    assert batch() == 0, batch.err
    assert list(statuses(tmp_path)) == ["relu/a.json"]
