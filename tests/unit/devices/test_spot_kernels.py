"""Masks and digests of a spot check: the kernels on the CPU, and the launches without a GPU."""

import ctypes
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.devices import spot_kernels
from evaluator.devices.spot_kernels import SpotKernels
from evaluator.toolchain import host_compiler

SOURCE = Path(__file__).with_name("spot_kernels_host.cpp")
KERNELS = Path(spot_kernels.__file__).parents[1] / "judge" / "native"
THREADS = 8


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    target = tmp_path_factory.mktemp("spot") / "spot.so"
    command = [host_compiler.cxx().path, str(SOURCE), f"-I{KERNELS}", "-std=c++20", "-O1", "-shared", "-fPIC"]
    subprocess.run([*command, "-pthread", "-x", "c++", "-o", str(target)], check=True)
    return ctypes.CDLL(str(target))


@pytest.fixture
def kernels(library, monkeypatch):
    """The launches of `SpotKernels`, on memory of the host."""

    def launch(function, *, blocks, threads, stream, arguments):
        if function == "await":
            library.wait_on_host(*map(pointer, arguments))
        else:
            given = [pointer(each) for each in arguments]
            getattr(library, f"{function}_on_host")(min(blocks, 3), THREADS, *given)

    monkeypatch.setattr(spot_kernels.driver, "launch", launch)
    made = object.__new__(SpotKernels)
    made._await, made._mask, made._digest = "await", "mask", "digest"
    made._key, made._state = Words(1), Words(2)
    return made


class Words:
    """Words of 64 bits in the place of a tensor."""

    def __init__(self, count):
        self.words = (ctypes.c_uint64 * count)()

    def data_ptr(self):
        return ctypes.addressof(self.words)

    def fill_(self, value):
        self.words[0] = value % 2**64


def pointer(argument):
    return ctypes.c_uint64(argument.value) if isinstance(argument, ctypes.c_uint64) else argument


def digest(kernels, *parts):
    """Return the digest of byte strings, each in a buffer of its own, at an address that is a multiple of 4."""
    slot = Words(1)
    buffers = [
        (ctypes.c_uint32 * (len(part) // 4 + 2)).from_buffer_copy(part + bytes(8 - len(part) % 4)) for part in parts
    ]
    kernels.digest([(ctypes.addressof(each), len(part)) for each, part in zip(buffers, parts, strict=True)],
                   slot.data_ptr(), stream=0)  # fmt: skip
    return slot.words[0]


def test_a_mask_hides_every_word_and_a_second_one_restores_all(kernels):
    memory = (ctypes.c_uint32 * 1000)()
    kernels.take(2**63 + 12345)
    kernels.mask(ctypes.addressof(memory), 4 * 999, stream=0)
    hidden = list(memory)
    assert memory[999] == 0
    assert len(set(hidden[:999])) > 990
    assert 0.45 < sum(word.bit_count() for word in hidden[:999]) / (32 * 999) < 0.55
    kernels.take(2**63 + 12346)
    kernels.mask(ctypes.addressof(memory), 4 * 999, stream=0)
    assert sum(word == 0 for word in memory) < 5  # Another key restores nothing.
    kernels.mask(ctypes.addressof(memory), 4 * 999, stream=0)
    kernels.take(2**63 + 12345)
    kernels.mask(ctypes.addressof(memory), 4 * 999, stream=0)
    assert not any(memory)


@pytest.mark.parametrize(("word", "at_least"), [(7, 7), (9, 7), (3, 2**32 - 5)])
def test_a_wait_ends_where_the_word_has_come_so_far_and_takes_the_key(kernels, word, at_least):
    words, key = (ctypes.c_uint32 * 1)(word), (ctypes.c_uint64 * 1)(2**60 + 1)
    kernels.wait(ctypes.addressof(words), ctypes.c_int(at_least).value, ctypes.addressof(key), stream=0)
    assert kernels._key.words[0] == 2**60 + 1


@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=1, max_size=200), st.data())
def test_a_digest_depends_on_every_bit(kernels, content, data):
    place, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
    other = bytearray(content)
    other[place] ^= 1 << bit
    first = digest(kernels, content)
    assert first
    assert digest(kernels, content) == first
    assert digest(kernels, bytes(other)) != first


def test_a_digest_depends_on_where_tensors_begin_and_on_their_order(kernels):
    found = {digest(kernels, b"abcdefgh"), digest(kernels, b"abcd", b"efgh"), digest(kernels, b"efgh", b"abcd")}
    found |= {digest(kernels), digest(kernels, b"abcdefg"), digest(kernels, b"abcdefgh" * 100)}
    assert len(found) == 6


def test_memory_that_begins_within_a_word_has_the_same_digest(kernels):
    content = bytes(range(1, 200))
    buffer = (ctypes.c_uint8 * 256)()
    found = set()
    for start in range(4):
        buffer[start : start + len(content)] = content
        slot = Words(1)
        kernels.digest([(ctypes.addressof(buffer) + start, len(content))], slot.data_ptr(), stream=0)
        found.add(slot.words[0])
    assert found == {digest(kernels, content)}
