"""Folders in the temporary folder end with their owner, however that ends."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from evaluator.sandbox import scratch_folders
from evaluator.sandbox.scratch_folders import Scratch, entered, remove_abandoned

TOP = Path(__file__).parents[2]
OWNER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from evaluator.sandbox.scratch_folders import Scratch
made = Scratch("build")
(made.path / "work").mkdir(mode=0o000)
print(made.path, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_it_is_there_until_it_is_closed():
    made = Scratch("run")
    (made.path / "file").write_text("")
    assert remove_abandoned() == []
    made.close()
    assert not made.path.exists()
    made.close()


def test_what_a_killed_process_left_is_removed_and_a_live_ones_is_not():
    with subprocess.Popen([sys.executable, "-c", OWNER, TOP], stdout=subprocess.PIPE, text=True) as process:
        path = Path(process.stdout.readline().strip())
        assert path.exists()
        assert remove_abandoned() == []
        process.send_signal(signal.SIGKILL)
    assert remove_abandoned() == [path]
    assert not path.exists()


def test_what_is_not_ours_stays(temporary):
    names = ["warpgrade-other", "build-1", "warpgrade-build", "xwarpgrade-build-1"]
    for name in names:
        (temporary / name).mkdir()
    (temporary / "warpgrade-run-file").write_text("")
    (temporary / "warpgrade-run-link").symlink_to(temporary / names[0])
    assert remove_abandoned() == []
    assert len(list(temporary.iterdir())) == 6


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_runners_folder_is_ours_and_another_accounts_is_not(temporary):
    runners, accounts = temporary / "warpgrade-run-1", temporary / "warpgrade-run-2"
    for path, user in ((runners, 2_000_000_123), (accounts, 1)):
        path.mkdir()
        os.chown(path, user, user)
    assert remove_abandoned() == [runners]
    assert accounts.exists()


def test_one_that_is_tidied_away_at_once_is_made_again(monkeypatch):
    """Between its making and its lock, another process may take it for a dead one's."""
    locked, taken = scratch_folders._locked, []

    def stolen_once(folder):
        if not taken:
            taken.append(folder)
            folder.rmdir()
        return locked(folder)

    monkeypatch.setattr(scratch_folders, "_locked", stolen_once)
    made = Scratch("run")
    assert made.path.exists()
    assert made.path != taken[0]
    made.close()


def interrupted(function):
    """Return `function` with Ctrl-C at its end, the first time."""
    left = [signal.SIGINT]

    def run(*arguments, **named):
        result = function(*arguments, **named)
        while left:
            signal.raise_signal(left.pop())
        return result

    return run


def test_an_interrupt_right_after_it_is_made_removes_it(temporary, monkeypatch):
    """No statement lies between creation and registration of the removal."""
    monkeypatch.setattr(tempfile, "mkdtemp", interrupted(tempfile.mkdtemp))
    with pytest.raises(KeyboardInterrupt), contextlib.ExitStack() as stack:
        entered("run", stack)
    assert list(temporary.iterdir()) == []


def test_an_interrupt_does_not_end_its_removal(temporary, monkeypatch):
    made = Scratch("build")
    (made.path / "file").write_text("")
    monkeypatch.setattr(Path, "chmod", interrupted(Path.chmod))  # at the beginning of the removal
    with pytest.raises(KeyboardInterrupt):
        made.close()
    assert list(temporary.iterdir()) == []
    made.close()


def test_a_folder_that_can_never_be_kept_is_an_error(monkeypatch):
    monkeypatch.setattr(scratch_folders, "_locked", lambda _: None)
    with pytest.raises(FileNotFoundError):
        Scratch("run")
