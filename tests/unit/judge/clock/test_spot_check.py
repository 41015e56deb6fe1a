"""Releases of a spot check's calls, with a page that a thread answers instead of a GPU."""

import mmap
import struct
import threading
import time
from types import SimpleNamespace

import pytest

from evaluator.devices.memory import DIGESTS, GO, KEYS, PAGE_BYTES, PLACES
from evaluator.judge.clock.spot_check import SpotCheck


@pytest.fixture
def page():
    return mmap.mmap(-1, PAGE_BYTES)


def spot_check(page, *, exited=False):
    made = object.__new__(SpotCheck)
    made._page = page
    made._session = SimpleNamespace(child=SimpleNamespace(poll_exit=lambda: object() if exited else None))
    return made


def soon(seconds):
    return time.perf_counter_ns() + int(seconds * 1e9)


def answering(page, number, ticket, digest):
    """Write the digest when the call is released, as the runner's stream does, and return the key that was there."""
    seen = []

    def wait():
        while struct.unpack_from("<I", page, GO)[0] < ticket:
            pass
        seen.append(int.from_bytes(page[KEYS + 16 * number : KEYS + 16 * number + 16], "little"))
        struct.pack_into("<Q", page, DIGESTS + 16 * number + 8, digest >> 64)
        struct.pack_into("<Q", page, DIGESTS + 16 * number, digest % 2**64)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return seen, thread


def test_a_call_is_released_with_its_key_and_ends_with_its_digest(page):
    seen, thread = answering(page, 15, 9, 2**127 + 5)
    time_ms, digest = spot_check(page)._release(15, 9, 2**128 - 1, soon(300))
    thread.join()
    assert (seen, digest) == ([2**128 - 1], 2**127 + 5)
    assert not any(page[PLACES : PLACES + 64])
    assert 0 < time_ms < 300_000


def test_the_digest_of_another_call_ends_nothing(page):
    struct.pack_into("<Q", page, DIGESTS, 7)
    assert spot_check(page)._release(1, 5, 1, soon(0.05)) is None


def test_a_runner_that_has_exited_is_not_waited_for(page):
    started = time.monotonic()
    assert spot_check(page, exited=True)._release(0, 5, 1, soon(600)) is None
    assert time.monotonic() - started < 300
