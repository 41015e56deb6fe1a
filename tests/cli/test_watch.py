"""`grade --watch`: a change of a file starts a grade, and nothing is left behind."""

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import psutil
import pytest

from evaluator.batch.workers import worker_pool
from evaluator.catalog import find_problem
from evaluator.commands import main as cli
from evaluator.commands.watch import Watched, WatchedGrades, files_of, watch
from evaluator.errors import ExitCode
from evaluator.grading import card
from evaluator.grading.resolved_request import GradeArguments, request_for
from evaluator.records import Status
from tests.batch.fakes import FakeWorker

TOP = Path(__file__).parents[2]
_LIMIT_S = 120


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("x = 1\n")  # Without ModelNew: a verdict without PyTorch, in no time.


class Watching:
    """A running `warpgrade grade --watch`, and the lines that it writes."""

    def __init__(self, *words):
        self.process = subprocess.Popen(
            [sys.executable, str(TOP / "cli.py"), "grade", *words, "--watch", "--device", "cpu"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "WARPGRADE_CACHE": str(Path("cache").resolve())},
        )
        self._lines = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with self.process.stdout as stream:
            for line in stream:
                self._lines.put(line)

    def close(self):
        self.process.kill()
        self.process.wait(_LIMIT_S)
        self._reader.join(_LIMIT_S)

    def said(self, words):
        """Wait for a line with `words`; give the words of all lines up to it."""
        lines = []
        while not lines or words not in lines[-1]:
            lines.append(self._lines.get(timeout=_LIMIT_S))
        return " ".join("".join(lines).split())


@contextlib.contextmanager
def watching(*words):
    started = Watching(*words)
    try:
        yield started
    finally:
        started.close()


def test_every_way_to_save_a_file_starts_a_grade_and_ctrl_c_ends():
    with watching("relu", "mine.py") as run:
        assert "defines no class ModelNew" in run.said("Ctrl-C ends")
        Path("mine.py").write_text("")  # In place.
        assert "the text is empty" in run.said("Ctrl-C ends")
        Path("new").write_text("x = 3\n")
        Path("new").rename("mine.py")  # By a new file.
        assert "does not occur" in run.said("Ctrl-C ends")
        Path("mine.py").rename("mine.py~")  # By a copy: for a moment there is no file.
        shutil.copy("mine.py~", "mine.py")
        run.said("Ctrl-C ends")
        run.process.send_signal(signal.SIGINT)
        run.said("no longer watching")
        assert run.process.wait(_LIMIT_S) == ExitCode.INTERRUPTED
    assert Path("scorecards/relu/mine.json").exists()


def test_a_change_of_the_problem_starts_a_grade():
    shutil.copytree(find_problem("relu").path, "own/relu")
    with watching("relu", "mine.py", "--problems", "own") as run:
        run.said("Ctrl-C ends")
        Path("own/relu/problem.toml").write_text("level = 1\n")  # A broken problem does not end the watch.
        assert "error: " in run.said("Ctrl-C ends")
        shutil.copy(Path(find_problem("relu").path, "problem.toml"), "own/relu/problem.toml")
        assert "build error" in run.said("Ctrl-C ends")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.slow
def test_an_end_during_a_grade_leaves_no_process(number):
    Path("mine.py").write_text("import time\ntime.sleep(60)\nclass ModelNew: pass\n")
    with watching("relu", "mine.py") as run:
        run.said("build")
        others = psutil.Process(run.process.pid).children(recursive=True)
        assert others
        run.process.send_signal(number)
        run.process.wait(_LIMIT_S)
        _, alive = psutil.wait_procs(others, _LIMIT_S)
        assert alive == []


@pytest.mark.slow
def test_a_change_during_a_grade_ends_that_grade():
    Path("mine.py").write_text("import time\ntime.sleep(60)\nclass ModelNew: pass\n")
    with watching("relu", "mine.py") as run:
        run.said("build")
        Path("mine.py").write_text("x = 1\n")
        assert "does not occur" in run.said("Ctrl-C ends")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["relu", "-"], "- reads standard input once"),
        (["relu"], "needs PROBLEM and SUBMISSION"),
        (["--replay", "card.json"], "a card does not change"),
        (["rleu", "mine.py"], "there is no problem named 'rleu'"),
    ],
)
def test_what_cannot_be_watched_is_refused(words, why, capsys):
    assert cli.run(["grade", *words, "--watch"]) == 2
    assert why in capsys.readouterr().err


def test_a_first_grade_that_is_impossible_ends_the_watch():
    with watching("relu", "missing.py") as run:
        assert "cannot read missing.py" in run.said("hint")
        assert run.process.wait(_LIMIT_S) == 2


def named(**changes):
    return {"problem": "relu", "submission": "mine.py", "problems": None, "replay": None, "speedup_of": None} | changes


def test_the_files_of_a_folder_and_of_the_other_submission_are_watched():
    Path("several").mkdir()
    Path("several/submission.toml").write_text("")
    Path("several/kernel.cu").write_text("")
    Path("several/notes.pdf").write_text("")
    found = files_of(named(submission="several", speedup_of="mine.py"))
    assert {path.name for path in found.paths()} == {
        *("submission.toml", "kernel.cu", "mine.py", "problem.toml", "reference.py")
    }
    Path("several/more.cu").write_text("")
    assert Path("several/more.cu") in found.paths()
    for number in range(2000):  # Not a submission: not looked through five times a second.
        Path(f"several/{number}.cu").touch()
    assert len(found.paths()) == 4


def test_a_change_counts_when_it_is_complete():
    path = Path("mine.py")
    watched = Watched(list, path)
    assert not watched.has_changed()
    path.write_text("x = 22\n")
    assert not watched.has_changed()  # It may still be written.
    path.write_text("x = 333\n")
    assert not watched.has_changed()
    assert watched.has_changed()
    watched.mark()
    path.unlink()
    assert not any(watched.has_changed() for _ in range(3))
    path.write_text("x = 4444\n")  # Of another size: within a tick of the clock, inode and time may be the same.
    assert not watched.has_changed()
    assert watched.has_changed()


def test_other_files_in_the_folder_of_a_submission_are_no_change():
    Path("submission.toml").write_text("")
    found = files_of(named(submission="."))
    watched = Watched(found.paths, found.submission)
    Path("scorecards").mkdir()
    Path(".kernel.cu.swp").touch()
    assert not any(watched.has_changed() for _ in range(3))
    Path("kernel.cu").touch()
    assert not watched.has_changed()
    assert watched.has_changed()


def test_a_change_during_a_grade_starts_the_next_and_only_a_grade_is_told():
    path, codes, said = Path("mine.py"), [None, ExitCode.NOT_CORRECT], []
    watched = Watched(list, path)

    def grade():
        if not codes:
            raise KeyboardInterrupt
        return codes.pop(0)

    def tell():
        said.append("told")
        path.write_text("x = 22\n")

    assert watch(watched, grade, tell, lambda: said.append("cleared")) == ExitCode.INTERRUPTED
    assert said == ["cleared", "told", "cleared"]


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(FakeWorker, "graded", Counter(), raising=False)
    monkeypatch.setattr(FakeWorker, "started", [], raising=False)
    monkeypatch.setattr(card, "_cpu_name", lambda: "a processor")
    return FakeWorker


@pytest.fixture
def grades(worker, monkeypatch):
    """Grades of a watch by workers that grade in no time; `changed` tells that a file has changed."""
    changed = threading.Event()
    monkeypatch.setattr(worker_pool, "LocalWorker", worker)
    with WatchedGrades(changed.is_set, sys.stderr) as made:
        made.changed = changed
        yield made


def card_of(grades, source, **named):
    Path("mine.py").write_text(source)
    arguments = GradeArguments(problem="relu", submission="mine.py")
    return grades.card_of(request_for(arguments, {"device": "emulated", **named}), ready=False, quiet=True)


def test_the_worker_stays_from_grade_to_grade(grades, worker):
    assert card_of(grades, "# right").status is Status.CORRECT
    assert card_of(grades, "# wrong", size="small").status is Status.WRONG_RESULT
    assert len(worker.started) == 1
    assert card_of(grades, "# right", device="cpu").status is Status.CORRECT
    assert [each.closed or each.interrupted.is_set() for each in worker.started] == [True, False]


def test_a_change_ends_a_grade_and_its_worker(grades, worker):
    grades.changed.set()
    assert card_of(grades, "# hanging") is None
    assert grades.was_given_up
    assert worker.started[0].interrupted.is_set()
    assert card_of(grades, "# right").status is Status.CORRECT


def test_a_machine_without_a_worker_is_a_card(grades, worker, monkeypatch):
    monkeypatch.setattr(worker_pool, "BACKOFF_S", (0.0, 0.0))
    card = card_of(grades, "# lost 99")
    assert card.status is Status.INFRA_ERROR
    assert "died" in card.reason.message
