"""What is found in a folder is a regular file; what is named may be more; nothing hangs."""

import contextlib
import os
import socket
import threading
from pathlib import Path

import pytest

from evaluator.files.safe_open import NotRegular, open_to_append, read_found, read_named, read_named_regular

SILENCE_S = 0.05


def link(path):
    path.symlink_to("/etc/hostname")


def link_to_folder(path):
    path.symlink_to("/etc")


def dangling(path):
    path.symlink_to("nowhere")


def bound(path):
    with socket.socket(socket.AF_UNIX) as end, contextlib.chdir(path.parent):
        end.bind(path.name)


IRREGULAR = {
    "a symbolic link": [link, link_to_folder, dangling],
    "a named pipe": [os.mkfifo],
    "a socket": [bound],
    "a folder": [os.mkdir],
}
CASES = [(make, said) for said, makers in IRREGULAR.items() for make in makers]


@pytest.mark.parametrize(("make", "said"), CASES)
def test_what_is_found_must_be_a_file(make, said, tmp_path):
    make(tmp_path / "a.py")
    with pytest.raises(NotRegular) as raised:
        read_found(tmp_path, "a.py", 10)
    assert said in raised.value.strerror


def test_a_device_is_no_file(tmp_path):
    with pytest.raises(NotRegular, match="it is a device"):
        read_found(Path("/dev"), "zero", 10)


def test_no_folder_on_the_way_is_a_link(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "a.py").write_text("secret")
    (tmp_path / "subs").mkdir()
    (tmp_path / "subs" / "relu").symlink_to(tmp_path / "secret")
    with pytest.raises(NotRegular, match="relu is a symbolic link"):
        read_found(tmp_path / "subs", "relu/a.py", 10)


@pytest.mark.parametrize("place", ["../a", "/etc/hostname", "a/../../b", "", ".", "a//b"])
def test_a_place_lies_below_its_folder(place, tmp_path):
    with pytest.raises(NotRegular, match="leaves the folder"):
        read_found(tmp_path, place, 10)


def test_a_link_that_comes_after_the_look_is_not_followed(tmp_path, monkeypatch):
    """What stands there is asked of the descriptor: between a look and an opening there is time."""
    (tmp_path / "a.py").write_text("mine")
    look = os.stat

    def swapped(path, **how):
        facts = look(path, **how)
        if path == "a.py":
            (tmp_path / "a.py").unlink()
            (tmp_path / "a.py").symlink_to("/etc/hostname")
        return facts

    monkeypatch.setattr(os, "stat", swapped)
    with pytest.raises(NotRegular, match="a symbolic link"):
        read_found(tmp_path, "a.py", 100)


def test_a_pipe_that_comes_after_the_look_does_not_block(tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text("mine")
    look = os.stat

    def swapped(path, **how):
        facts = look(path, **how)
        if path == "a.py":
            (tmp_path / "a.py").unlink()
            os.mkfifo(tmp_path / "a.py")
        return facts

    monkeypatch.setattr(os, "stat", swapped)
    with pytest.raises(NotRegular, match="a named pipe"):
        read_found(tmp_path, "a.py", 100)


@pytest.mark.parametrize("read", [lambda p, n: read_found(p.parent, p.name, n), read_named, read_named_regular])
def test_what_is_read_has_a_limit(read, tmp_path):
    path = tmp_path / "a.py"
    path.write_bytes(b"x" * 100)
    assert read(path, 10) == b"x" * 11
    assert read(path, 1000) == b"x" * 100


def test_a_named_link_is_followed(tmp_path):
    (tmp_path / "a.py").write_text("mine")
    (tmp_path / "b.py").symlink_to("a.py")
    assert read_named(tmp_path / "b.py", 10) == read_named_regular(tmp_path / "b.py", 10) == b"mine"


def test_a_named_pipe_that_nobody_writes_into_is_given_up(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TimeoutError, match="nothing was written"):
        read_named(tmp_path / "pipe", 10, SILENCE_S)
    with pytest.raises(NotRegular, match="a named pipe"):
        read_named_regular(tmp_path / "pipe", 10)


def test_a_named_pipe_is_read_to_its_end(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(b"x" * 200_000))
    writer.start()
    assert read_named(tmp_path / "pipe", 1 << 20) == b"x" * 200_000
    writer.join()


def test_a_process_substitution_waits_for_its_writer():
    """The shell's `<(...)` is a pipe without a name: its writer may think for as long as it likes."""
    reader, writer = os.pipe()
    later = threading.Timer(3 * SILENCE_S, lambda: (os.write(writer, b"late"), os.close(writer)))
    later.start()
    try:
        assert read_named(Path(f"/dev/fd/{reader}"), 10, SILENCE_S) == b"late"
    finally:
        later.join()
        os.close(reader)


@pytest.mark.parametrize("make", [link, dangling, os.mkfifo])
def test_nothing_is_appended_through_a_link_or_a_pipe(make, tmp_path):
    make(tmp_path / "batch.log")
    with pytest.raises(OSError, match=r"link|pipe"):
        open_to_append(tmp_path, "batch.log")


def test_what_is_ours_is_appended_to(tmp_path):
    for text in (b"a", b"b"):
        with open_to_append(tmp_path, "batch.log") as file:
            file.write(text)
    assert (tmp_path / "batch.log").read_bytes() == b"ab"
