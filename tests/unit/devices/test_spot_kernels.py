"""Masks and digests of a spot check: the kernels on the CPU, and the launches without a GPU."""

import ctypes
import subprocess
from pathlib import Path
from types import SimpleNamespace

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
    made._key, made._state = Words(2), Words(spot_kernels.STATE_WORDS)
    return made


class Words:
    """Words of 64 bits in the place of a tensor."""

    def __init__(self, count):
        self.words = (ctypes.c_uint64 * count)()

    def data_ptr(self):
        return ctypes.addressof(self.words)

    def __getitem__(self, place):
        return SimpleNamespace(fill_=lambda value: self.words.__setitem__(place, value % 2**64))

    @property
    def whole(self):
        return int.from_bytes(self.words, "little")


def pointer(argument):
    return ctypes.c_uint64(argument.value) if isinstance(argument, ctypes.c_uint64) else argument


def digest(kernels, *parts):
    """Return the digest of byte strings, each in a buffer of its own, at an address that is a multiple of 4."""
    slot = Words(2)
    buffers = [
        (ctypes.c_uint32 * (len(part) // 4 + 2)).from_buffer_copy(part + bytes(8 - len(part) % 4)) for part in parts
    ]
    kernels.digest([(ctypes.addressof(each), len(part)) for each, part in zip(buffers, parts, strict=True)],
                   slot.data_ptr(), stream=0)  # fmt: skip
    assert not any(kernels._state.words[:4])
    return slot.whole


def test_a_mask_hides_every_word_and_a_second_one_restores_all(kernels):
    memory = (ctypes.c_uint32 * 1000)()
    kernels.take(2**127 + 12345)
    kernels.mask(ctypes.addressof(memory), 4 * 999, stream=0)
    hidden = list(memory)
    assert memory[999] == 0
    assert len(set(hidden[:999])) > 990
    assert 0.45 < sum(word.bit_count() for word in hidden[:999]) / (32 * 999) < 0.55
    kernels.take(2**126 + 12345)
    kernels.mask(ctypes.addressof(memory), 4 * 999, stream=0)
    assert sum(word == 0 for word in memory) < 5  # Another key restores nothing.
    kernels.mask(ctypes.addressof(memory), 4 * 999, stream=0)
    kernels.take(2**127 + 12345)
    kernels.mask(ctypes.addressof(memory), 4 * 999, stream=0)
    assert not any(memory)


def test_a_mask_is_the_stream_of_chacha_with_eight_rounds(kernels):
    """Known words of an input must not show the key. The numbers are test vector 1 of ChaCha8 for keys of 128 bits."""
    memory = (ctypes.c_uint32 * 128)()
    kernels.take(0)
    kernels.mask(ctypes.addressof(memory), 4 * 128, stream=0)
    of_the_first_thread = b"".join(word.to_bytes(4, "little") for word in memory[::THREADS])
    assert of_the_first_thread.hex() == (
        "e28a5fa4a67f8c5defed3e6fb7303486aa8427d31419a729572d777953491120"
        "b64ab8e72b8deb85cd6aea7cb6089a101824beeb08814a428aab1fa2c816081b"
    )
    assert len(set(memory)) == 128


@pytest.mark.parametrize(("word", "at_least"), [(7, 7), (9, 7), (3, 2**32 - 5)])
def test_a_wait_ends_where_the_word_has_come_so_far_and_takes_the_key(kernels, word, at_least):
    words, key = (ctypes.c_uint32 * 1)(word), (ctypes.c_uint64 * 2)(2**60 + 1, 2**63 + 2)
    kernels.wait(ctypes.addressof(words), ctypes.c_int(at_least).value, ctypes.addressof(key), stream=0)
    assert list(kernels._key.words) == [2**60 + 1, 2**63 + 2]


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


def permuted(words):
    """Return 16 words after eight rounds of ChaCha."""
    words = list(words)
    for _ in range(4):
        for a, b, c, d in (*((k, 4 + k, 8 + k, 12 + k) for k in range(4)),
                           *((k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4) for k in range(4))):  # fmt: skip
            for one, other, third, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                words[one] = (words[one] + words[other]) % 2**32
                mixed = words[third] ^ words[one]
                words[third] = (mixed << turn | mixed >> (32 - turn)) % 2**32
    return words


def taken_in(chain, data, kind, place):
    found = permuted([0x70726177, 0x64617267, kind, place, *chain, *data, *[0] * (8 - len(data))])
    return [(before + after) % 2**32 for before, after in zip(chain, found[4:8], strict=True)]


def joined(chains):
    while len(chains) > 1:
        count = len(chains)
        threes = [chains[first : first + 3] for first in range(0, count, 3)]
        chains = [taken_in(first, [word for other in others for word in other], 2, count) for first, *others in threes]
    return chains[0]


def spelt(parts):
    """Return the digest in plain steps: chains of threads, joined by threes in blocks, then over blocks, then parts."""
    total = [0] * 4
    for part, content in enumerate(parts):
        words = [int.from_bytes(content[at : at + 4], "little") for at in range(0, len(content), 4)]
        blocks = min(max(-(-len(words) // 1024), 1), 3)
        stride, of_blocks = blocks * THREADS, []
        for block in range(blocks):
            chains = []
            for thread in range(block * THREADS, (block + 1) * THREADS):
                chain = [0] * 4
                for first in range(thread, len(words), 8 * stride):
                    chain = taken_in(chain, words[first : first + 8 * stride : stride], 1, first)
                chains.append(chain)
            of_blocks.append(joined(chains))
        total = taken_in(total, [*joined(of_blocks), len(content)], 3, part)
    return sum(word << 32 * place for place, word in enumerate(total)) | 1


@pytest.mark.parametrize("sizes", [(0,), (5,), (96, 300), (4 * 1024 * 2 + 2, 7), (20_000,)])
def test_a_digest_joins_chains_by_a_one_way_function(kernels, sizes):
    """No sum: bits of the outputs that no tolerance decides could be chosen to reach a digest that was published."""
    parts = [bytes((7 * at + size) % 251 for at in range(size)) for size in sizes]
    assert digest(kernels, *parts) == spelt(parts)


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
        slot = Words(2)
        kernels.digest([(ctypes.addressof(buffer) + start, len(content))], slot.data_ptr(), stream=0)
        found.add(slot.whole)
    assert found == {digest(kernels, content)}
