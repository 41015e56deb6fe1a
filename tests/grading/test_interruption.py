"""Ends that come from outside: Ctrl-C, a kill."""

import signal
import subprocess
import time

import pytest

from tests.grading.harness import module, nobody_left_behind

SLOW = module("import time", "time.sleep(60)")


def said_by(process: subprocess.Popen, word: bytes) -> None:
    """Wait until the progress on stderr has come to `word`."""
    for line in process.stderr:
        if word in line:
            return
    raise AssertionError(f"{word!r} was never said")


@pytest.mark.parametrize(("stage", "later_s"), [(b"read", 0.2), (b"build", 1.0)])
def test_ctrl_c_ends_everything(grader, tmp_path, stage, later_s):
    """At 0.2 s PyTorch is being imported, which may swallow a KeyboardInterrupt."""
    (tmp_path / "mine.py").write_text(SLOW)
    with nobody_left_behind(), grader.running(tmp_path, "relu", "mine.py") as process:
        said_by(process, stage)
        time.sleep(later_s)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=240)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert b"interrupted" in err
    assert out == b""
    assert {path.name for path in tmp_path.iterdir()} == {"mine.py"}
    assert list(grader.temporary.glob("warpgrade*")) == []


def test_a_kill_leaves_nobody(grader, tmp_path):
    daemon = "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.fork()\n"
    (tmp_path / "mine.py").write_text(daemon + SLOW)
    with nobody_left_behind(), grader.running(tmp_path, "relu", "mine.py") as process:
        said_by(process, b"build")
        time.sleep(1.0)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=240)
    assert process.returncode == -signal.SIGKILL
    assert {path.name for path in tmp_path.iterdir()} == {"mine.py"}
    for left in grader.temporary.glob("warpgrade*"):
        left.rmdir()  # an empty folder is all that may be left
