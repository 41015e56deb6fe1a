"""The front end's confined child: a text that is too much for it is told, and costs the judge little."""

import pytest

from evaluator.emulator import rehearsal
from evaluator.emulator.rehearsal import REHEARSING, too_much
from evaluator.frames import BuildRequest
from evaluator.isolation import Limits, Starter

KERNEL = "__global__ void k(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }\n"


@pytest.fixture(scope="module")
def spawn():
    with Starter(preload=(REHEARSING,)) as starter:
        yield lambda entry, limits: starter.spawn(entry, limits=limits)


def request(text):
    return BuildRequest(name="mine", cuda_sources=[text], with_cuda=True)


def test_a_long_text_of_usual_code_is_not_too_much(spawn):
    assert too_much(request(KERNEL * 1000), spawn) is None


def test_a_short_text_needs_no_child():
    assert too_much(request(KERNEL), spawn=None) is None


def test_a_text_that_takes_too_long_is_told(spawn, monkeypatch):
    monkeypatch.setattr(rehearsal, "_LIMIT_S", 0.5)
    assert too_much(request(KERNEL * 40_000), spawn) == "the emulator needs more than 0.5 s to read the sources"


def test_a_text_that_takes_too_much_memory_is_told(spawn, monkeypatch):
    monkeypatch.setattr(rehearsal, "_LIMITS", Limits(memory_bytes=64 << 20, processes=16))
    # Python may go round and round where it has no memory left for its own exception; then time ends it.
    assert "read the sources" in too_much(request(KERNEL * 10_000), spawn)


def test_a_child_that_ends_without_an_answer_is_told(spawn, monkeypatch):
    monkeypatch.setattr(rehearsal, "_SHORT", 0)
    assert "cannot read the sources" in too_much(request(KERNEL), lambda _, limits: spawn("os:abort", limits))
