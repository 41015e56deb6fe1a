"""Builds of a batch wait for the shared headers of split builds while a process makes them."""

import fcntl
import threading
from types import SimpleNamespace

import pytest

from evaluator.compile import device_builders
from evaluator.compile.cuda import precompiled
from evaluator.compile.cuda.precompiled import precompiled_folder, wait_while_made


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(precompiled, "_key", lambda: "0" * 32)
    monkeypatch.setattr(precompiled, "_LOOK_S", 0.001)
    precompiled_folder(tmp_path).mkdir()
    return tmp_path


def make(cache):
    entry = precompiled_folder(cache) / ("0" * 32)
    entry.mkdir()
    (entry / "complete").touch()


class Waiting:
    """A thread that waits, and the lock of a process that makes the headers."""

    def __init__(self, cache):
        self.lock = (precompiled_folder(cache) / ".lock").open("w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.thread = threading.Thread(target=wait_while_made, args=(cache,), daemon=True)
        self.thread.start()

    def is_over(self, within_s):
        self.thread.join(within_s)
        return not self.thread.is_alive()


def test_nobody_waits_where_nobody_makes_them(cache, tmp_path):
    wait_while_made(cache)
    wait_while_made(tmp_path / "no folder")


@pytest.mark.parametrize("made", [True, False])
def test_the_wait_ends_with_the_making_whether_or_not_there_are_headers(cache, made):
    waiting = Waiting(cache)
    assert not waiting.is_over(0.05)
    if made:
        make(cache)
    waiting.lock.close()
    assert waiting.is_over(60.0)


def test_the_wait_ends_where_the_making_takes_too_long(cache, monkeypatch):
    monkeypatch.setattr(precompiled, "_MOST_WAIT_S", 0.05)
    waiting = Waiting(cache)
    assert waiting.is_over(60.0)
    waiting.lock.close()


def test_a_build_comes_after_the_wait(monkeypatch, tmp_path):
    did = []
    monkeypatch.setattr(device_builders, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(device_builders, "wait_while_made", did.append)
    builder = SimpleNamespace(build=lambda request: did.append(request) or "built")
    preparation = SimpleNamespace(wait=lambda: did.append("own"))
    waiting = device_builders._waiting_builder(lambda source: builder, preparation, "text")
    assert waiting.build("request") == "built"
    assert did == ["own", tmp_path, "request"]
