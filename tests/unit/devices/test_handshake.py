"""The judge's end of a window, with a page as a hostile runner would write it."""

import ctypes
import errno
import mmap
import os
import socket
import struct
import subprocess
from pathlib import Path

import pytest
import torch

from evaluator.devices import handshake
from evaluator.devices.handshake import JudgeEnd, RunnerEnd
from evaluator.devices.memory import HostRegion
from evaluator.toolchain import host_compiler

pytestmark = pytest.mark.slow
SOURCE = Path(__file__).with_name("handshake_guard.cpp")
NATIVE = Path(handshake.__file__).with_name("native")
PAGE = 4096
PAGES = 64
DONE, BLOCKS, BLOCK = 64, 128, 192
TICKET = 7


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    target = tmp_path_factory.mktemp("handshake") / "native.so"
    command = [host_compiler.cxx().path, str(SOURCE), f"-I{NATIVE}", "-std=c++17", "-O1", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", str(target)], check=True)
    return target


class Judge:
    """The judge's end, and the memory that a runner writes."""

    def __init__(self, library):
        self.page, self.region, self.inputs = HostRegion(PAGE), HostRegion(PAGES * PAGE), HostRegion(PAGE)
        self.end = JudgeEnd(library, self.page)
        self.ours, self.theirs = socket.socketpair()

    def close(self):
        for each in (self.page, self.region, self.inputs, self.ours, self.theirs):
            each.close()

    def say(self, blocks, ticket=TICKET):
        """List blocks, and report the end of a call, before or after its release."""
        for number, block in enumerate(blocks):
            self.page.buffer[BLOCK + 16 * number : BLOCK + 16 * number + 16] = struct.pack("<QQ", *block)
        self.page.buffer[BLOCKS : BLOCKS + 4] = struct.pack("<I", len(blocks))
        self.page.buffer[DONE : DONE + 4] = struct.pack("<I", ticket)

    def release(self, written=((0, PAGES * PAGE),), *, calls=1, secret=1, patience_s=60.0, long_ms=1e6):
        return self.end.release(
            self.ours.fileno(),
            [self.inputs.descriptor] * calls,
            TICKET,
            self.region.flat,
            torch.empty(0, dtype=torch.int64),
            written,
            secret,
            patience_s,
            long_ms,
        )


@pytest.fixture
def judge(built):
    with built.open("rb") as library:
        made = Judge(library.fileno())
        yield made
        made.close()


@pytest.fixture
def reads(built, judge):
    """Release a call, and return the pages in the order of their first reads, and the time of the call."""
    native = ctypes.CDLL(str(built))
    native.guard.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)

    def made(secret, sleep_us=0):
        judge.region.flat.fill_(1)
        order = (ctypes.c_int * 1024)()
        native.guard(judge.region.flat.data_ptr(), judge.region.size_bytes, sleep_us)
        (seen,) = judge.release(secret=secret)
        return list(order[: native.unguard(order)]), seen.elapsed_ms

    return made


def test_words_of_all_blocks_are_read_in_an_order_that_the_runner_cannot_choose(judge, reads):
    """A runner lists filler first, and computes the last block while the judge reads the filler."""
    judge.say([(number * PAGE, PAGE) for number in range(32)])
    orders = [reads(secret)[0] for secret in range(1, 9)]
    assert all(sorted(order) == list(range(32)) for order in orders)
    assert len(set(map(tuple, orders))) == 8
    assert {31} != {order[-1] for order in orders}
    assert min(order.index(31) for order in orders) < 8


def test_the_time_of_slow_reads_is_the_runners(judge, reads):
    judge.say([(0, PAGE)])
    assert reads(1, sleep_us=20_000)[1] > 19.8


def test_blocks_in_memory_that_nobody_wrote_are_not_read(judge):
    judge.region.flat[: 4 * PAGE].fill_(1)
    judge.say([(8 * PAGE, PAGE), (0, PAGE), (PAGE, 4 * PAGE), (2**63, 8), (3 * PAGE, PAGE), (64, 2**64 - 64)])
    (seen,) = judge.release([(0, 2 * PAGE), (3 * PAGE, 4 * PAGE)])
    assert seen.blocks == [(0, PAGE), (3 * PAGE, PAGE)]
    pages = set((seen.late_at * 4 // PAGE).tolist())
    assert pages == {0, 3}
    with pytest.raises(OSError, match=os.strerror(errno.ENXIO)):  # Nor has the judge allocated a page.
        os.lseek(judge.region.descriptor, 4 * PAGE, os.SEEK_DATA)


def test_words_are_those_at_their_places(judge):
    words = judge.region.flat.view(torch.int32)
    words.copy_(torch.arange(len(words)))
    judge.say([(PAGE + 2, 400), (8 * PAGE, 40 * PAGE)])
    (seen,) = judge.release()
    assert seen.late.tolist() == seen.late_at.tolist() == sorted(seen.late_at.tolist())
    assert set(range(PAGE // 4 + 1, PAGE // 4 + 100)) <= set(seen.late_at.tolist())
    assert seen.late_at.max() >= 40 * PAGE // 4


def test_disturbed_calls_keep_their_time(judge):
    judge.say([])
    assert [seen.elapsed_ms > 0 for seen in judge.release(calls=1, long_ms=1e-6)] == [True]
    judge.say([])
    (alone,) = judge.release(calls=4, long_ms=1e-6, patience_s=0.05)
    assert alone.elapsed_ms > 0


def test_a_long_call_lets_python_handle_signals(judge, monkeypatch):
    monkeypatch.setattr(handshake, "_SLICE_S", 0.01)
    release, entries = judge.end._release, []

    def entered(*given):
        entries.append(given)
        if len(entries) == 6:
            judge.say([(0, PAGE)])
        return release(*given)

    monkeypatch.setattr(judge.end, "_release", entered)
    (seen,) = judge.release()
    assert len(entries) == 6
    assert seen.elapsed_ms > 40
    assert len(judge.theirs.recv(16)) == 1  # One release.


def test_patience_ends(judge):
    assert judge.release(patience_s=0.05) == []


@pytest.mark.parametrize("bare", [False, True])
def test_a_bare_call_maps_nothing_and_calls_nothing(built, judge, bare):
    """A submission may leave out what a bare call leaves out; the clock's error is the difference."""
    judge.inputs.flat.fill_(7)
    reserved, made = mmap.mmap(-1, PAGE), []
    with built.open("rb") as library:
        runner = RunnerEnd(library.fileno(), judge.page.descriptor)
    judge.page.buffer[:4] = struct.pack("<I", TICKET)
    socket.send_fds(judge.ours, [b"\0"], [judge.inputs.descriptor])
    base = ctypes.addressof(ctypes.c_char.from_buffer(reserved))
    results = runner.answer(
        judge.theirs.fileno(), TICKET, base, [(0, PAGE)], [lambda: made.append(reserved[0])], bare=bare
    )
    assert (len(results), made, reserved[0]) == ((1, [], 0) if bare else (1, [7], 7))
    assert struct.unpack("<I", judge.page.buffer[DONE : DONE + 4]) == (TICKET,)
