"""Measured peaks of a GPU in the cache: keys and records, without PyTorch. `judge/roofline/gpu_peaks.py` measures."""

import hashlib
import importlib.metadata
from pathlib import Path

from evaluator.cache.measurements import look_up
from evaluator.devices.gpu import Gpu
from evaluator.records import Precision, Record

_READER = Path(__file__).parent.parent / "judge" / "native" / "read.cu"


class Bandwidth(Record, frozen=True):
    """Highest bandwidth of a kernel that reads, writes or copies, in bytes/s (reads and writes count alike).

    `l2_bytes` is the size of the GPU's L2 cache.
    """

    bytes_per_s: float
    l2_bytes: int


class Peak(Record, frozen=True):
    """Highest rate of a matrix product, in operations/s."""

    flop_per_s: float


def bandwidth_key(gpu: Gpu) -> list[object]:
    """Return the key of the bandwidth of `gpu`."""
    return ["bandwidth", *_of(gpu), hashlib.sha256(_READER.read_bytes()).hexdigest()]


def peak_key(gpu: Gpu, precision: Precision) -> list[object]:
    """Return the key of the peak of `gpu` in `precision`."""
    return ["peak", *_of(gpu), precision.value]


def known_bandwidth(gpu: Gpu) -> Bandwidth | None:
    """Return the measured bandwidth of `gpu`; None before the first measurement."""
    return look_up(bandwidth_key(gpu), Bandwidth)


def known_peak(gpu: Gpu, precision: Precision) -> Peak | None:
    """Return the measured peak of `gpu` in `precision`; None before the first measurement."""
    return look_up(peak_key(gpu, precision), Peak)


def _of(gpu: Gpu) -> list[object]:
    return [gpu.uuid, gpu.driver, importlib.metadata.version("torch")]
