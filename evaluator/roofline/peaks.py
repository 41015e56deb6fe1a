"""Measured peaks of a GPU in the cache: keys and records, without PyTorch. `judge/exhibits/gpu_peaks.py` measures."""

import hashlib
from pathlib import Path

from evaluator.cache.measurements import look_up
from evaluator.devices.gpu import Gpu
from evaluator.records import ElementFormat, Precision, Problem, Record
from evaluator.toolchain.host_compiler import torch_version

_READER = Path(__file__).parent.parent / "judge" / "native" / "read.cu"


_RATES = {
    ElementFormat.INT8: 2.0,
    ElementFormat.FP8_E4M3: 2.0,
    ElementFormat.FP8_E5M2: 2.0,
    ElementFormat.INT4: 4.0,
    ElementFormat.MXFP4: 4.0,
    ElementFormat.NVFP4: 4.0,
}


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


def peak_of(problem: Problem) -> tuple[Precision, float]:
    """Return the precision to measure for a problem's products, and the factor of its rate.

    Tensor cores multiply operands of 8 bits at twice the rate of bf16, and of 4 bits at four times this rate (data
    sheets of NVIDIA H100 and B200). The factor counts for inputs declared so, as an upper limit.
    """
    factor = max((_RATES[form] for form in problem.formats.inputs.values()), default=None)
    return (problem.precision, 1.0) if factor is None else (Precision.BF16, factor)


def _of(gpu: Gpu) -> list[object]:
    return [gpu.uuid, gpu.driver, torch_version()]
