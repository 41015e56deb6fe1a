"""Workers of a batch wait for the shared headers of split builds while one of them makes the headers."""

import fcntl
import threading
from types import SimpleNamespace

import pytest

from evaluator.compile import device_builders, precompiled
from evaluator.compile.precompiled import make_or_await, precompiled_folder
from evaluator.errors import JudgeFailed
from evaluator.records import DeviceKind


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(precompiled, "_key", lambda: "0" * 32)
    monkeypatch.setattr(precompiled, "_LOOK_S", 0.001)
    monkeypatch.setattr(precompiled, "_TRIED", set())
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
        self.thread = threading.Thread(target=make_or_await, args=(None, cache), daemon=True)
        self.thread.start()

    def is_over(self, within_s):
        self.thread.join(within_s)
        return not self.thread.is_alive()


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


@pytest.mark.parametrize("error", [None, JudgeFailed("no space"), OSError("no folder")])
def test_a_process_makes_them_once_whatever_becomes_of_it(cache, monkeypatch, error):
    made = []

    def fail(cache):
        made.append(cache)
        if error is not None:
            raise error

    monkeypatch.setattr(precompiled, "_make", lambda run_tool, cache: fail(cache))
    for _ in range(3):
        make_or_await(None, cache)
    assert made == [cache]


def test_headers_that_are_there_are_not_made(cache, monkeypatch):
    made = []
    monkeypatch.setattr(precompiled, "precompile", lambda *asked: made.append(asked))
    make(cache)
    make_or_await(None, cache)
    assert made == []


@pytest.mark.parametrize("for_many", [True, False])
def test_only_for_many_submissions_are_they_made_before_a_build(monkeypatch, tmp_path, for_many):
    asked = []
    monkeypatch.setattr(device_builders, "build_kernels", lambda *_: b"kernels")
    monkeypatch.setattr(device_builders, "build_device_allocator", lambda *_: b"library")
    monkeypatch.setattr(device_builders, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(device_builders, "worth_trying", lambda _: False)
    monkeypatch.setattr(device_builders, "make_or_await", lambda *how: asked.append(how))
    gpu, cache = SimpleNamespace(capability=(9, 0)), SimpleNamespace(parts=None)
    equipped = device_builders.device_builders(DeviceKind.CUDA, gpu, "run", cache, 1.0, None, for_many=for_many)
    equipped.make_headers()
    equipped.close(lambda: None)
    assert asked == ([("run", tmp_path)] if for_many else [])
