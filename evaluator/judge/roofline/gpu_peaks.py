"""What the GPU at hand can do at most, measured: bytes a second from memory, operations a second in a precision.

Measured by the judge when no runner exists, once for each GPU, driver and PyTorch, and kept. The best of many is
taken: a floor must not rest on a moment in which the GPU was slow.
"""

import ctypes
import hashlib
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from evaluator.cache.measurements import measured_once
from evaluator.devices import driver
from evaluator.devices.gpu import Gpu
from evaluator.records import Precision, Record

_MOST_BYTES = 4 << 30
_LEAST_BYTES = 256 << 20
_WARM_S = 0.3
"""A GPU that was idle raises its clocks within this time."""
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


class Bandwidth(Record, frozen=True):
    """The fastest that any kernel was seen to read, write or copy, in bytes a second (read and written alike)."""

    bytes_per_s: float


class Peak(Record, frozen=True):
    """The fastest matrix product seen, in operations a second."""

    flop_per_s: float


def bandwidth(gpu: Gpu, kernels: bytes) -> float:
    """Give the memory bandwidth of `gpu`, which is the one at hand, in bytes a second."""
    parts = ["bandwidth", *_of(gpu), hashlib.sha256(kernels).hexdigest()]
    return measured_once(parts, Bandwidth, lambda: Bandwidth(bytes_per_s=measured_bandwidth(kernels))).bytes_per_s


def peak(gpu: Gpu, precision: Precision) -> float:
    """Give the peak of matrix products in `precision`, in operations a second."""
    parts = ["peak", *_of(gpu), precision.value]
    return measured_once(parts, Peak, lambda: Peak(flop_per_s=measured_peak(precision))).flop_per_s


def _of(gpu: Gpu) -> list[object]:
    return [gpu.uuid, gpu.driver, str(torch.__version__)]


def measured_bandwidth(kernels: bytes) -> float:
    """Measure it now: by a kernel that only reads, by PyTorch's fill and by its copy; the best counts."""
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

    ways: list[Callable[[], object]] = [reads(each * multiprocessors) for each in _BLOCKS_PER_MULTIPROCESSOR]
    # Half of the memory is read and the other half written; every way moves as many bytes.
    ways += [lambda: words.fill_(0), lambda: words[half:].copy_(words[:half])]
    _warm(ways[0])
    return max(size_bytes / (_best_ms(way, _LAUNCHES) * 1e-3) for way in ways)


def measured_peak(precision: Precision) -> float:
    """Measure it now, by PyTorch's products of square matrices."""
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
    """Let products round their operands, for as long as they are measured: the judge computes in true fp32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
