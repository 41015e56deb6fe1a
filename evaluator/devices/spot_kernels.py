"""Masks of inputs and digests of outputs on a GPU: launches of `judge/native/spot.cu`, in judge and runner."""

import ctypes
import struct
from collections.abc import Sequence

import torch

from evaluator.devices import driver

_THREADS = 256
_WORDS_PER_BLOCK = 4 * _THREADS
_MOST_BLOCKS = 264
"""Two blocks for each multiprocessor of an H200. The number has to be equal on both sides, and in `spot.cu`."""
_WORDS_PER_TILE, _MOST_MASK_BLOCKS = 16 * _THREADS, 1056
"""Eight blocks for each multiprocessor of an H200 are the most threads that it holds. A mask is the same with any
number of blocks, and a submission that removes masks with more must gain nothing."""
STATE_WORDS = 4 + 2 * _MOST_BLOCKS
"""Words of 64 bits between the blocks and launches of a digest."""


class SpotKernels:
    """The kernels of a cubin, in the current context."""

    def __init__(self, image: bytes) -> None:
        """Load the kernels, and launch each once: a first launch synchronizes with the GPU."""
        module = driver.load_module(image)
        self._await = driver.kernel(module, "warpgrade_await")
        self._mask = driver.kernel(module, "warpgrade_mask")
        self._digest = driver.kernel(module, "warpgrade_digest")
        self._state = torch.zeros(STATE_WORDS, dtype=torch.int64, device="cuda")
        self._key = torch.zeros(2, dtype=torch.int64, device="cuda")
        words = torch.zeros(4, dtype=torch.int64, device="cuda")
        self.wait(words.data_ptr(), 0, words.data_ptr() + 16, stream=0)
        self.mask(words.data_ptr(), 4, stream=0)
        self.digest([(words.data_ptr(), 4)], words.data_ptr() + 16, stream=0)
        torch.cuda.synchronize()

    def wait(self, address: int, at_least: int, key_address: int, *, stream: int) -> None:
        """Queue a wait until the word at `address` is `at_least`, and read the key, 16 bytes at `key_address`."""
        driver.launch(
            self._await,
            blocks=1,
            threads=1,
            stream=stream,
            arguments=[
                ctypes.c_uint64(address),
                ctypes.c_int(at_least),
                ctypes.c_uint64(key_address),
                ctypes.c_uint64(self._key.data_ptr()),
            ],
        )

    def take(self, key: int) -> None:
        """Set the key, of 128 bits. The current stream queues the copies."""
        for index, word in enumerate(struct.unpack("<2q", key.to_bytes(16, "little"))):
            self._key[index].fill_(word)

    def mask(self, address: int, size_bytes: int, *, stream: int) -> None:
        """Queue the XOR of `size_bytes` at `address`, a multiple of 4, with the stream of the key. Twice restores."""
        words = size_bytes // 4
        if words:
            driver.launch(
                self._mask,
                blocks=min(-(-words // _WORDS_PER_TILE), _MOST_MASK_BLOCKS),
                threads=_THREADS,
                stream=stream,
                arguments=[ctypes.c_uint64(address), ctypes.c_uint64(words), ctypes.c_uint64(self._key.data_ptr())],
            )

    def digest(self, spans: Sequence[tuple[int, int]], slot_address: int, *, stream: int) -> None:
        """Queue the digest of `spans`, pairs of address and size in bytes: 128 bits at a slot, the first word not 0."""
        parts = spans or [(0, 0)]
        for part, (address, size_bytes) in enumerate(parts):
            driver.launch(
                self._digest,
                blocks=_blocks(-(-size_bytes // 4)),
                threads=_THREADS,
                stream=stream,
                arguments=[
                    ctypes.c_uint64(address),
                    ctypes.c_uint64(size_bytes),
                    ctypes.c_uint64(part),
                    ctypes.c_uint64(self._state.data_ptr()),
                    ctypes.c_uint64(slot_address),
                    ctypes.c_int(part == len(parts) - 1),
                ],
            )


def _blocks(words: int) -> int:
    return min(max(-(-words // _WORDS_PER_BLOCK), 1), _MOST_BLOCKS)
