"""Ends that come from outside: Ctrl-C, a kill, a full disk."""

import os
import signal
import subprocess
import time

import pytest

from evaluator.files.card_files import read_card
from evaluator.records import Status
from tests.grading.harness import module, nobody_left_behind

SLOW = module("import time", "time.sleep(60)")


def said_by(process: subprocess.Popen, word: bytes) -> None:
    """Wait until the progress on stderr has come to `word`."""
    for line in process.stderr:
        if word in line:
            return
    raise AssertionError(f"{word!r} was never said")


@pytest.mark.parametrize(("stage", "later_s"), [(b"read", 0.2), (b"read", 1.0), (b"build", 0.05), (b"build", 1.0)])
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


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_leaves_nobody(grader, tmp_path, number):
    daemon = "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.fork()\n"
    (tmp_path / "mine.py").write_text(daemon + SLOW)
    with nobody_left_behind(), grader.running(tmp_path, "relu", "mine.py") as process:
        said_by(process, b"build")
        time.sleep(1.0)
        process.send_signal(number)
        process.communicate(timeout=240)
    assert process.returncode == -number
    assert {path.name for path in tmp_path.iterdir()} == {"mine.py"}
    for left in grader.temporary.glob("warpgrade*"):
        left.rmdir()  # an empty folder is all that may be left


@pytest.fixture
def full_disk(tmp_path):
    """A file system with no room left for a card, but with some at the time of the first look."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", place], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk_shows_the_result_and_says_so(grader, tmp_path, full_disk):
    (tmp_path / "mine.py").write_text(module() + "# " + "x" * 8000)
    with nobody_left_behind():
        done = subprocess.run(
            [*grader.command("relu", "mine.py", "--size", "awkward", "--output", full_disk / "card.json")],
            cwd=tmp_path,
            env=grader.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert "correct" in done.stdout
    assert "No space left on device" in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr
    assert list(full_disk.iterdir()) == []


def test_a_closed_stdout_spoils_nothing(grader, tmp_path):
    (tmp_path / "mine.py").write_text(module())
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        grader.command("relu", "mine.py", "--size", "awkward", "--output", tmp_path / "card.json"),
        cwd=tmp_path,
        env=grader.environment,
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert read_card(tmp_path / "card.json").status is Status.CORRECT
