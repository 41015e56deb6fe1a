"""Least time of a call, from counted work and the measured limits of a GPU.

The process runs the reference's own code on the meta device (`work_count.py`). The caller needs no PyTorch.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

from evaluator.cache.build_cache import look_up, measured_once
from evaluator.catalog import sized_source
from evaluator.catalog.formula import evaluate
from evaluator.catalog.reference import read_reference
from evaluator.devices.gpu import Gpu, gpus
from evaluator.records import CaseName, ElementFormat, Precision, Problem, Record
from evaluator.roofline.attained import floor_ms
from evaluator.sandbox.question import PROBLEM_ANSWER_BYTES, PROBLEM_LIMITS, NoAnswer, Question
from evaluator.toolchain.host_compiler import torch_version

_VERSION = 1


class CallWork(Record, frozen=True):
    """Bytes and operations of a call, with each byte moved once.

    `read_bytes` covers the storages of inputs, parameters and buffers (and of output gradients, where gradients are
    graded) with values used by any operation. Each byte counts once, however many tensors share the byte.
    `written_bytes` covers outputs and gradients in new storages. `flop` counts matrix products, convolutions and
    attention, forward and backward: a multiplication plus an addition are two. Other arithmetic is not counted.

    Neither number is a lower bound for every program. A reference that gathers or slices an input does not read the
    whole input. A reference that multiplies by a diagonal matrix computes more than necessary. A verdict based on these
    numbers requires proof that every byte matters.
    """

    read_bytes: int
    written_bytes: int
    flop: int


class WorkBySize(Record, frozen=True):
    """Work of a call for each size. A size in `unknown` has a reason instead."""

    known: dict[CaseName, CallWork]
    unknown: dict[CaseName, str]


COUNT = Question("evaluator.roofline.work_count:run", Problem, WorkBySize, 300.0, PROBLEM_LIMITS, PROBLEM_ANSWER_BYTES)
"""A usual count takes the time of importing PyTorch plus a second."""


def work_of(problem: Problem) -> WorkBySize:
    """Return the work of a call for each size of `problem`. A failed process is a reason, and is not cached."""
    axes = {name: case.axes for name, case in problem.cases.items()}
    parts = ["work", _VERSION, problem.sha256, axes, torch_version()]
    work = measured_once(parts, WorkBySize, lambda: COUNT.ask_in_new_sandbox(problem))
    if isinstance(work, NoAnswer):
        return WorkBySize(known={}, unknown=dict.fromkeys(problem.cases, f"the count failed: {work.reason}"))
    return work


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


class Roofs(NamedTuple):
    """A GPU with measured limits. None: no grade has measured the limit yet."""

    gpu: Gpu
    bandwidth_bytes_per_s: float | None
    l2_bytes: int
    peak_flop_per_s: float | None


class LeastTime(NamedTuple):
    """Time to move the bytes, and time of the operations; None without a measured limit, or without operations."""

    memory_ms: float | None
    compute_ms: float | None

    @property
    def least_ms(self) -> float | None:
        """The larger time."""
        return max((time_ms for time_ms in self if time_ms is not None), default=None)


def roofs_of(problem: Problem) -> Roofs | None:
    """Return the limits of this machine's first GPU; None without a GPU. Nothing is measured."""
    if not (visible := gpus()):
        return None
    gpu = visible[0]
    precision, factor = peak_of(problem)
    bandwidth, peak = known_bandwidth(gpu), known_peak(gpu, precision)
    return Roofs(
        gpu,
        None if bandwidth is None else bandwidth.bytes_per_s,
        0 if bandwidth is None else bandwidth.l2_bytes,
        None if peak is None else peak.flop_per_s * factor,
    )


def stated(problem: Problem, size: CaseName, work: CallWork) -> CallWork:
    """Return the counted work with the numbers of the problem's author in place of counts."""
    override = problem.roofline
    if override is None:
        return work
    names = read_reference(sized_source(problem, size), problem.path).constants
    constants = {name: literal.value for name, literal in names.items()}
    formulas = (override.read_bytes, override.written_bytes, override.flop)
    counts = (work.read_bytes, work.written_bytes, work.flop)
    return CallWork(
        *(
            counted if formula is None else evaluate(formula, constants)
            for formula, counted in zip(formulas, counts, strict=True)
        )
    )


def least_time(work: CallWork, roofs: Roofs) -> LeastTime:
    """Return the time of `work` at the limits, with every byte needed and no input in the L2 cache."""
    memory_ms = compute_ms = None
    if roofs.bandwidth_bytes_per_s is not None:
        memory_ms = floor_ms(
            read_bytes=work.read_bytes,
            written_bytes=work.written_bytes,
            bandwidth_bytes_per_s=roofs.bandwidth_bytes_per_s,
            l2_bytes=roofs.l2_bytes,
        )
    if roofs.peak_flop_per_s is not None and work.flop:
        compute_ms = work.flop / roofs.peak_flop_per_s * 1e3
    return LeastTime(memory_ms, compute_ms)
