"""Folders that hostile code has written are removed, or left and named; no later grade fails because of them."""

import itertools
import logging
import os
import resource
from contextlib import closing
from pathlib import Path

import pytest
from confinement import hear, tell

from evaluator.sandbox import run_tool
from evaluator.sandbox.scratch_folders import Removal, Scratch, hand_over, remove_abandoned, remove_folder

DEEP = 2000
"""More than Python's stack allows calls, and five times as long a path as a system call takes."""


def standing_still():
    """A clock for removals that are not to depend on how busy the machine is."""
    return 0.0


def nest(top, depth, name="d" * 10):
    """Make `depth` folders in each other, as a submission can: by descriptors, never by a path."""
    at = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    return made


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_deep_folders_are_removed_with_few_descriptors(folder):
    nest(folder, DEEP)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 8, hard))
    try:
        assert remove_folder(folder, clock=standing_still) is Removal.GONE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not folder.exists()


def test_whatever_names_kinds_and_modes_there_are(folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("")
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "link").symlink_to(outside)
    (folder / "a" / "loop").symlink_to("loop")
    os.mkfifo(folder / "a" / "pipe")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\n\x1b[2J")).mkdir()
    Path(os.fsdecode(os.fsencode(folder) + b"/a/b/\xfe")).write_text("")
    for index in range(5000):
        (folder / "a" / f"{index}").mkdir() if index % 2 else (folder / "a" / f"{index}").touch()
    for closed in (folder / "a" / "b", folder / "a", folder):
        closed.chmod(0)
    assert remove_folder(folder, clock=standing_still) is Removal.GONE
    assert not folder.exists()
    assert (outside / "kept").exists()


def test_the_time_is_limited_and_a_later_try_goes_on(folder):
    nest(folder, 100)
    ticks = itertools.count()
    assert remove_folder(folder, within_s=50, clock=lambda: next(ticks)) is Removal.UNFINISHED
    assert folder.exists()
    assert remove_folder(folder, clock=standing_still) is Removal.GONE


def test_what_cannot_be_removed_is_named_once_and_not_tried_again(temporary, monkeypatch, caplog):
    scratch = Scratch("run")
    (scratch.path / "deep").mkdir()
    (scratch.path / "deep" / "rock").write_text("")
    (scratch.path / "sand").write_text("")
    unlink = os.unlink

    def immutable(name, **how):
        if name == "rock":
            raise PermissionError(1, "Operation not permitted", name)
        unlink(name, **how)

    monkeypatch.setattr(os, "unlink", immutable)
    with caplog.at_level(logging.WARNING, "warpgrade"):
        scratch.close()
        assert remove_abandoned() == []
    aside = temporary / f"warpgrade-left-{scratch.path.name}"
    told = [(record.name, record.getMessage()) for record in caplog.records]
    assert told == [("warpgrade", f"{aside} cannot be removed; it is left there")]
    assert [path.name for path in aside.rglob("*")] == ["deep", "rock"]
    assert list(temporary.iterdir()) == [aside]


def test_one_that_takes_long_stays_for_the_next_start(temporary, monkeypatch):
    path = temporary / "warpgrade-run-dead"
    path.mkdir()
    nest(path, 50)
    ticks = itertools.count()
    assert remove_abandoned(clock=lambda: next(ticks)) == []
    assert path.exists()
    assert remove_abandoned(clock=standing_still) == [path]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_deep_folders_are_handed_over(folder):
    nest(folder, DEEP, "d")
    (folder / "file").write_text("")
    assert hand_over(folder, 12_345, 12_345, clock=standing_still)
    assert {(folder / name).stat().st_uid for name in ("", "file", "d", "d/" * 1000)} == {12_345}
    ticks = itertools.count()
    assert not hand_over(folder, 0, 0, within_s=5, clock=lambda: next(ticks))
    assert remove_folder(folder, clock=standing_still) is Removal.GONE


@pytest.fixture
def unhurried(monkeypatch):
    """Removals beside which other processes may take all the time they like."""
    for function in (remove_folder, hand_over):
        monkeypatch.setitem(function.__kwdefaults__, "clock", standing_still)


def test_a_runner_that_digs_deep_ends_as_any_other(fork_server, spawn, unhurried):
    child = spawn(fork_server, "burdens:dig")
    tell(child, DEEP)
    assert hear(child) == "dug"
    child.kill()
    assert not child.private.exists()


@pytest.mark.skipif(not Path("/usr/bin/perl").exists(), reason="needs a program that every user may run")
def test_a_tool_that_digs_deep_ends_as_any_other(fork_server, temporary, unhurried):
    """A profiled submission has a folder of the host's, as every runner has in a container."""
    with closing(Scratch("build")) as scratch:
        scratch.path.chmod(0o711)
        work = scratch.path / "work"
        work.mkdir()
        program = f'for (1..{DEEP}) {{ mkdir "d" x 10; chdir "d" x 10 }} chmod 0, "."'
        result = run_tool(fork_server, ["/usr/bin/perl", "-e", program], work=work, timeout_s=60)
        assert result.ok, result.output
    assert remove_abandoned() == []
    assert list(temporary.iterdir()) == []
