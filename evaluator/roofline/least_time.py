"""Least time of a problem's call on a GPU, before any grade: the roofline of the counted work."""

from typing import NamedTuple

from evaluator.catalog import sized_source
from evaluator.catalog.readers.formula import evaluate
from evaluator.catalog.reference import read_reference
from evaluator.devices.gpu import Gpu, gpus
from evaluator.records import CaseName, Problem
from evaluator.roofline.attained import floor_ms
from evaluator.roofline.counted_work import CallWork
from evaluator.roofline.peaks import known_bandwidth, known_peak, peak_of


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
