"""Bytes and FLOP of a problem's call, and the least time on this machine's GPU, as text and as a document. Pure."""

from typing import Any, NamedTuple

from evaluator.records import CaseName, Precision
from evaluator.roofline.least_time import CallWork, LeastTime, Roofs, least_time
from evaluator.text import amount, duration, one_line

_NOTE = "FLOP are those of matrix products, convolutions and attention."


class ProblemWork(NamedTuple):
    """Work of a call for each size, reasons for sizes without a count, and the limits of a GPU, if there is one."""

    known: dict[CaseName, CallWork]
    unknown: dict[CaseName, str]
    roofs: Roofs | None
    precision: Precision


def work_document(work: ProblemWork) -> dict[str, Any]:
    """Return the work as a document. Times are null without a measured limit."""
    return {
        "sizes": {size: _row_document(call_work, work.roofs) for size, call_work in work.known.items()},
        "not_counted": dict(work.unknown),
        "gpu": None if work.roofs is None else _gpu_document(work.roofs),
    }


def _row_document(work: CallWork, roofs: Roofs | None) -> dict[str, Any]:
    counts = {"read_bytes": work.read_bytes, "written_bytes": work.written_bytes, "flop": work.flop}
    if roofs is None:
        return counts
    least = least_time(work, roofs)
    return counts | {"memory_ms": least.memory_ms, "compute_ms": least.compute_ms, "least_ms": least.least_ms}


def _gpu_document(roofs: Roofs) -> dict[str, Any]:
    return {
        "name": roofs.gpu.name,
        "bandwidth_bytes_per_s": roofs.bandwidth_bytes_per_s,
        "l2_bytes": roofs.l2_bytes if roofs.bandwidth_bytes_per_s is not None else None,
        "peak_flop_per_s": roofs.peak_flop_per_s,
    }


def work_text(work: ProblemWork) -> str:
    """Return a table of the work, a row for each size."""
    header = ["size", "reads", "writes", "FLOP", *(["least time"] if _has_times(work) else [])]
    rows = [header, *(_row(size, call_work, work) for size, call_work in work.known.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows] if work.known else []
    lines += [f"  {size}: not counted: {one_line(reason, 160)}" for size, reason in work.unknown.items()]
    notes = [_NOTE, *_about_gpu(work)] if work.known else []
    return "\n".join(["a call moves and computes, each byte once", *lines, *notes])


def _has_times(work: ProblemWork) -> bool:
    return work.roofs is not None and work.roofs.bandwidth_bytes_per_s is not None


def _row(size: CaseName, call_work: CallWork, work: ProblemWork) -> list[str]:
    flop = amount(call_work.flop, "FLOP") if call_work.flop else "none"
    cells = [size, amount(call_work.read_bytes, "B"), amount(call_work.written_bytes, "B"), flop]
    if work.roofs is not None and _has_times(work):
        cells.append(_time(least_time(call_work, work.roofs)))
    return cells


def _time(least: LeastTime) -> str:
    if not least.least_ms:
        return "none: L2 holds all"
    by = "operations" if least.compute_ms is not None and least.compute_ms == least.least_ms else "memory"
    return f"{duration(least.least_ms)}, {by}"


def _about_gpu(work: ProblemWork) -> list[str]:
    roofs = work.roofs
    if roofs is None:
        return []
    name = one_line(roofs.gpu.name, 60)
    if roofs.bandwidth_bytes_per_s is None:
        return [f"The first grade on {name} measures its limits, and then a least time stands here."]
    limits = f"{amount(roofs.bandwidth_bytes_per_s, 'B/s')}"
    if roofs.peak_flop_per_s is not None:
        limits += f" and {amount(roofs.peak_flop_per_s, 'FLOP/s')} in {work.precision.value}"
    lines = [f"The least time is that of {name}.", f"Measured limits of this GPU: {limits}."]
    if roofs.peak_flop_per_s is None and any(call_work.flop for call_work in work.known.values()):
        lines.append(f"The peak in {work.precision.value} is not measured yet: the least time is that of memory alone.")
    return lines
