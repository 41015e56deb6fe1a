"""`grade --watch`: a change of a file starts a grade, and nothing is left behind."""

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from evaluator.catalog import find_problem
from evaluator.commands import main as cli
from evaluator.commands.shell.watch import GradeProcess, Watched, watch
from evaluator.commands.shell.watched_files import files_of
from evaluator.errors import ExitCode

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
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


def test_a_grade_that_fails_or_is_killed_has_an_exit_code():
    with GradeProcess(lambda: os._exit(1)) as one, GradeProcess(lambda: 1 / 0) as other:
        assert (one.code_within(None), other.code_within(None)) == (1, ExitCode.INFRASTRUCTURE)
    with GradeProcess(lambda: os.kill(os.getpid(), signal.SIGKILL)) as killed:
        assert killed.code_within(None) == ExitCode.INFRASTRUCTURE


def test_a_grade_of_a_background_job_ends_by_sigint():
    """A shell starts a background job with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    read, write = os.pipe()

    def grade():
        try:
            os.write(write, b".")
            time.sleep(600)
        except KeyboardInterrupt:
            os._exit(7)

    try:
        with GradeProcess(grade) as grading:
            os.read(read, 1)
        assert grading.code_within(0.0) == 7
    finally:
        signal.signal(signal.SIGINT, before)


INTERRUPTED_AT_ONCE = """
import os, time
from evaluator.commands.shell.watch import GradeProcess
from tests.signals import interrupting

os.fork = interrupting(os.fork)
try:
    with GradeProcess(lambda: time.sleep(600)) as grading:
        print("exit code", grading.code_within(60.0))
except KeyboardInterrupt:
    print("a copy of the watching process", flush=True)
"""


def test_a_grade_that_is_interrupted_at_once_does_not_go_on_as_its_parent():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT_ONCE],
        env={**os.environ, "PYTHONPATH": str(TOP)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"exit code {ExitCode.INFRASTRUCTURE:d}\n"


def test_ctrl_c_right_after_the_start_of_a_grade_ends_that_grade(monkeypatch):
    started, fork = [], os.fork

    def interrupted():
        if pid := fork():
            started.append(pid)
            signal.raise_signal(signal.SIGINT)
        return pid

    monkeypatch.setattr(os, "fork", interrupted)
    watched = Watched(list, Path("mine.py"))
    assert watch(watched, lambda: time.sleep(600), pytest.fail, pytest.fail) == ExitCode.INTERRUPTED
    with pytest.raises(ChildProcessError):
        os.waitpid(started[0], os.WNOHANG)


def test_a_second_ctrl_c_kills_the_grade(monkeypatch):
    read, write = os.pipe()

    def grade():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.write(write, b".")
        time.sleep(600)

    grading = GradeProcess(grade)
    os.read(read, 1)
    within = grading.code_within
    monkeypatch.setattr(grading, "code_within", lambda limit_s: interrupt() if limit_s else within(limit_s))
    with pytest.raises(KeyboardInterrupt):
        grading.__exit__()
    assert grading._code == ExitCode.INFRASTRUCTURE


def interrupt():
    raise KeyboardInterrupt
