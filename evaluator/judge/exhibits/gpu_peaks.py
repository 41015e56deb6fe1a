"""Measured peaks of the current GPU: memory bandwidth in bytes/s, matrix products in operations/s for a precision.

The judge measures without a runner, once for each GPU, driver and PyTorch, and caches the result. The best of many
samples counts: a floor must not rest on a moment with a slow GPU.
"""

import ctypes
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from evaluator.cache.build_cache import measured_once
from evaluator.devices import driver
from evaluator.devices.gpu import Gpu
from evaluator.records import Precision
from evaluator.roofline.least_time import Bandwidth, Peak, bandwidth_key, peak_key

_MOST_BYTES = 4 << 30
_LEAST_BYTES = 256 << 20
_WARM_S = 0.3
"""Time in which an idle GPU raises its clocks."""
_LAUNCHES = 12
_THREADS = 512
_BLOCKS_PER_MULTIPROCESSOR = (4, 8, 16)
_EDGES = (4096, 8192)
_PRODUCTS = 6
_DTYPES = {
    Precision.FP32: torch.float32,
    Precision.TF32: torch.float32,
    Precision.BF16: torch.bfloat16,
    Precision.FP16: torch.float16,
}


def bandwidth(gpu: Gpu, kernels: bytes) -> float:
    """Return the memory bandwidth of `gpu`, the current GPU, in bytes/s."""

    def measured() -> Bandwidth:
        l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        return Bandwidth(bytes_per_s=measured_bandwidth(kernels), l2_bytes=l2_bytes)

    return measured_once(bandwidth_key(gpu), Bandwidth, measured).bytes_per_s


def peak(gpu: Gpu, precision: Precision) -> float:
    """Return the peak rate of matrix products in `precision`, in operations/s."""
    return measured_once(peak_key(gpu, precision), Peak, lambda: Peak(flop_per_s=measured_peak(precision))).flop_per_s


def measured_bandwidth(kernels: bytes) -> float:
    """Measure the bandwidth now, by a read-only kernel, PyTorch's fill and PyTorch's copy; the best counts."""
    free_bytes, _ = torch.cuda.mem_get_info()
    size_bytes = max(min(_MOST_BYTES, free_bytes // 4), _LEAST_BYTES) // 512 * 512
    data = torch.zeros(size_bytes, dtype=torch.uint8, device="cuda")
    sink = torch.zeros(1, dtype=torch.int32, device="cuda")
    words = data.view(torch.int32)
    half = words.numel() // 2
    read = driver.kernel(driver.load_module(kernels), "warpgrade_read")
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count

    def reads(blocks: int) -> Callable[[], None]:
        return lambda: driver.launch(
            read,
            blocks=blocks,
            threads=_THREADS,
            stream=torch.cuda.current_stream().cuda_stream,
            arguments=[
                ctypes.c_uint64(data.data_ptr()),
                ctypes.c_int64(size_bytes // 16),
                ctypes.c_uint64(sink.data_ptr()),
            ],
        )

    ways: list[Callable[[], object]] = [reads(factor * multiprocessors) for factor in _BLOCKS_PER_MULTIPROCESSOR]
    # The copy reads half of the memory and writes the other half: all ways move equally many bytes.
    ways += [lambda: words.fill_(0), lambda: words[half:].copy_(words[:half])]
    _warm(ways[0])
    return max(size_bytes / (_best_ms(way, _LAUNCHES) * 1e-3) for way in ways)


def measured_peak(precision: Precision) -> float:
    """Measure the peak now, by PyTorch's products of square matrices."""
    rates = []
    with _tf32(allowed=precision is Precision.TF32):
        for edge in _EDGES:
            left, right = (torch.randn(edge, edge, device="cuda").to(_DTYPES[precision]) for _ in range(2))
            out = torch.empty(edge, edge, device="cuda", dtype=_DTYPES[precision])

            def product(left: torch.Tensor = left, right: torch.Tensor = right, out: torch.Tensor = out) -> None:
                torch.mm(left, right, out=out)

            _warm(product)
            rates.append(2 * edge**3 / (_best_ms(product, _PRODUCTS) * 1e-3))
    return max(rates)


def _warm(work: Callable[[], object]) -> None:
    deadline = time.monotonic() + _WARM_S
    while time.monotonic() < deadline:
        work()
        torch.cuda.synchronize()


def _best_ms(work: Callable[[], object], times: int) -> float:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]  # type: ignore[no-untyped-call]
    work()
    events[0].record()
    for event in events[1:]:
        work()
        event.record()
    torch.cuda.synchronize()
    times_ms: list[float] = [one.elapsed_time(other) for one, other in itertools.pairwise(events)]
    return min(times_ms)


@contextmanager
def _tf32(*, allowed: bool) -> Iterator[None]:
    """Context in which products may round operands to TF32; elsewhere the judge computes in true fp32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
