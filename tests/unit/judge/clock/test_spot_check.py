"""Releases of a spot check's calls, with a page that a thread answers instead of a GPU."""

import ctypes
import struct
import threading
import time
from types import SimpleNamespace

import msgspec
import pytest
import torch

from evaluator.devices.memory import DIGESTS, GO, KEYS, PAGE_BYTES, PLACES, HostRegion, SharedMemory
from evaluator.judge.clock.spot_check import SpotCheck
from evaluator.protocol.frames import Done, Masked, Scalar, WindowDone
from evaluator.records import Fault, Status
from tests.unit.judge.clock.host_gpu import CALL, on_the_host

TICKET, DIGESTS_OF_CALLS = 9, [2**127 + 5, 2**64 + 1]
FRAMES = [msgspec.structs.replace(CALL, ticket=TICKET, token=token) for token in (77, 78)]
DONES = [Done(index=3, token=frame.token, outputs=Scalar(value=None)) for frame in FRAMES]


class Kernels:
    """The kernels of the judge: they keep the keys of masks, and digest the outputs to given numbers."""

    def __init__(self, *digests):
        self.keys, self._digests = [], iter(digests)

    def take(self, key):
        self.keys.append(key)

    def mask(self, address, size_bytes, *, stream):
        pass

    def digest(self, spans, slot, *, stream):
        ctypes.memmove(slot, next(self._digests).to_bytes(16, "little"), 16)


@pytest.fixture
def checked(monkeypatch):
    """Make a spot check of two calls whose stream writes these digests; gives the answer, the keys and the page."""
    on_the_host(monkeypatch, "zeros")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))

    def run(written, kernels, *, timeout_s=300.0, exited=False, answer=None):
        threads, seen = [], []

        def stream():
            """Write each digest when its call is released, as the runner's stream does."""
            for number, digest in enumerate(written):
                while struct.unpack_from("<I", page.buffer, GO)[0] < TICKET + number:
                    time.sleep(1e-4)
                seen.append(int.from_bytes(page.buffer[KEYS + 16 * number : KEYS + 16 * number + 16], "little"))
                struct.pack_into("<Q", page.buffer, DIGESTS + 16 * number + 8, digest >> 64)
                struct.pack_into("<Q", page.buffer, DIGESTS + 16 * number, digest % 2**64)

        def send(frame, stage, timeout_s):
            threads.append(threading.Thread(target=stream, daemon=True))
            threads[0].start()

        session = SimpleNamespace(
            send=send,
            answered=lambda within_s: True,
            within=lambda timeout_s: timeout_s,
            window_answer=lambda frames, timeout_s: answer or WindowDone(calls=DONES),
            child=SimpleNamespace(poll_exit=lambda: object() if exited else None),
        )
        memory = SharedMemory(region, region, 0, None, 0, page)
        found = SpotCheck(session, memory, 0, kernels).run(FRAMES, [Masked(0, 4)] * 2, timeout_s)
        if len(written) == 2:
            threads[0].join()
        return found, seen, bytes(page.buffer[PLACES : PLACES + 64])

    with HostRegion(PAGE_BYTES) as page, HostRegion(4096) as region:
        yield run


def test_each_call_is_released_with_its_key_and_ends_with_its_digest(checked):
    kernels = Kernels(*DIGESTS_OF_CALLS)
    found, keys, places = checked(DIGESTS_OF_CALLS, kernels)
    assert (found.mismatch, [call.done for call in found.calls]) == (None, DONES)
    assert keys == kernels.keys
    assert len({*keys}) == 2
    assert not any(places)
    assert all(0 < time_ms < 300_000 for time_ms in found.times_ms)


def test_outputs_that_change_after_the_digest_are_a_mismatch(checked):
    found, _, _ = checked(DIGESTS_OF_CALLS, Kernels(DIGESTS_OF_CALLS[0], 7))
    assert found.mismatch == 1


def test_a_call_without_a_digest_ends_the_spot_check_at_the_time_limit(checked):
    fault = Fault(Status.TIMEOUT, None)
    assert checked(DIGESTS_OF_CALLS[:1], Kernels(), timeout_s=0.05, answer=fault)[0] is fault
    assert checked([], Kernels(), timeout_s=0.05)[0].status is Status.REJECTED


def test_a_runner_that_has_exited_is_not_waited_for(checked):
    started = time.monotonic()
    assert checked([], Kernels(), timeout_s=600.0, exited=True)[0].status is Status.REJECTED
    assert time.monotonic() - started < 300
