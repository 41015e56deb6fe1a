"""Where a submission stands under the roofline, and whether that can be. Pure: values in, records out."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from evaluator.catalog.formula import evaluate
from evaluator.findings import Code, finding
from evaluator.records import Constant, Finding, Flips, Record, Roofline, RooflineOverride, Timing
from evaluator.roofline.floor import floor_ms
from evaluator.roofline.sampled import least_part


class Needs(Record, frozen=True):
    """What one call of a problem needs, as far as that was counted and sampled. All sizes in bytes.

    `read_bytes`, `written_bytes` and `flop` are `count.Work`'s. `input_bytes` and `state_bytes` are the parts of what
    is read that flips could change: floats and booleans of inputs (and of what is propagated back), and of weights.
    Flips are None where none were made, and all is taken to be needed. `distinct_bytes` are those of the outputs
    without what could be an expanded view, which nobody has to write; `distinct_input_bytes` the same of the inputs,
    and half of a symmetric one.
    """

    read_bytes: int
    written_bytes: int
    flop: int
    input_bytes: int
    state_bytes: int
    input_flips: Flips | None
    state_flips: Flips | None
    distinct_bytes: int
    distinct_input_bytes: int


class Roof(NamedTuple):
    """What a GPU was measured to do. `peak_flop_per_s` is that of the problem's precision; None without operations."""

    bandwidth_bytes_per_s: float
    l2_bytes: int
    peak_flop_per_s: float | None


class Traffic(NamedTuple):
    """Bytes that a call moves: what is needed in all likelihood, and what is certain."""

    read_bytes: int
    written_bytes: int
    certain_read_bytes: int
    certain_written_bytes: int


def traffic(needs: Needs, override: RooflineOverride | None, constants: Mapping[str, Constant]) -> Traffic:
    """Work out what must be moved. What the problem's author says is certain.

    What the meta device counted and flips cannot change (integers) is needed, and not certain.
    """
    changeable = min(needs.input_bytes + needs.state_bytes, needs.read_bytes)
    read = needs.read_bytes - changeable + _part(needs.input_flips) * needs.input_bytes
    read = min(read + _part(needs.state_flips) * needs.state_bytes, needs.read_bytes)
    certain = (
        0.0
        if needs.input_flips is None
        else least_part(needs.input_flips) * min(needs.input_bytes, needs.distinct_input_bytes)
    )
    found = Traffic(int(read), needs.written_bytes, int(certain), min(needs.distinct_bytes, needs.written_bytes))
    if override is not None and override.read_bytes is not None:
        said = evaluate(override.read_bytes, constants)
        found = found._replace(read_bytes=said, certain_read_bytes=said)
    if override is not None and override.written_bytes is not None:
        said = evaluate(override.written_bytes, constants)
        found = found._replace(written_bytes=said, certain_written_bytes=said)
    return found


def place(
    needs: Needs, roof: Roof, timing: Timing, override: RooflineOverride | None, constants: Mapping[str, Constant]
) -> Roofline:
    """Put a submission's time beside what a call takes at least.

    Raises:
        ValueError: the roof is none: see `floor_ms`.
    """
    moved = traffic(needs, override, constants)
    flop = needs.flop if override is None or override.flop is None else evaluate(override.flop, constants)
    least_ms = _floor_ms(moved.read_bytes, moved.written_bytes, roof)
    compute_ms = flop / roof.peak_flop_per_s * 1e3 if roof.peak_flop_per_s else 0.0
    taken_ms = timing.submission_median_ms
    return Roofline(
        read_bytes=max(needs.read_bytes, moved.read_bytes),
        written_bytes=moved.written_bytes,
        flop=flop,
        input_flips=needs.input_flips,
        state_flips=needs.state_flips,
        needed_read_bytes=moved.read_bytes,
        bandwidth_bytes_per_s=roof.bandwidth_bytes_per_s,
        l2_bytes=roof.l2_bytes,
        peak_flop_per_s=roof.peak_flop_per_s,
        floor_ms=least_ms,
        impossible_ms=_floor_ms(moved.certain_read_bytes, moved.certain_written_bytes, roof),
        target_ms=max(least_ms, compute_ms),
        of_floor=_rate(least_ms, taken_ms),
        bytes_per_s=_rate((moved.read_bytes + moved.written_bytes) * 1e3, taken_ms),
        flop_per_s=_rate(flop * 1e3, taken_ms) if flop else None,
        override_reason=None if override is None else override.reason,
    )


def is_impossible(roofline: Roofline, timing: Timing) -> bool:
    """Say whether a submission was faster than is possible by more than the clock's error.

    The upper end of its median's interval has that error in it, and the scatter of its samples. Where the reference
    itself was faster than that, it is the floor that is wrong.
    """
    high_ms = timing.submission_high_ms
    return high_ms is not None and high_ms < roofline.impossible_ms and not is_doubtful(roofline, timing)


def is_doubtful(roofline: Roofline, timing: Timing) -> bool:
    """Say whether the reference, which reads all it needs, was faster than is possible."""
    return timing.reference_high_ms is not None and timing.reference_high_ms < roofline.impossible_ms


def impossible(roofline: Roofline, timing: Timing) -> Finding:
    """Say what could not be."""
    message = (
        f"{timing.submission_median_ms:.4g} ms, give or take {timing.resolution_ms * 1e3:.3g} us: reading what matters "
        f"of {roofline.read_bytes} bytes and writing {roofline.written_bytes} takes this GPU at least "
        f"{roofline.impossible_ms:.4g} ms ({roofline.bandwidth_bytes_per_s / 1e9:.0f} GB/s)"
    )
    return finding(
        Code.IMPOSSIBLE, message, submission_ms=timing.submission_median_ms, impossible_ms=roofline.impossible_ms
    )


def remarks(roofline: Roofline, timing: Timing) -> list[Finding]:
    """Say where a floor is wrong, or a target was beaten by more than the clock's error."""
    high_ms = timing.submission_high_ms
    if is_doubtful(roofline, timing):
        message = (
            f"the reference took {timing.reference_median_ms:.4g} ms, the floor is {roofline.impossible_ms:.4g} ms"
        )
        return [finding(Code.FLOOR_DOUBTED, message)]
    if high_ms is None or high_ms >= roofline.target_ms:
        return []
    what = "the reference's operations at the measured peak" if roofline.target_ms > roofline.floor_ms else "the floor"
    message = f"the submission took {timing.submission_median_ms:.4g} ms, {what} {roofline.target_ms:.4g} ms"
    return [finding(Code.BEATS_TARGET, message, target_ms=roofline.target_ms)]


def _part(flips: Flips | None) -> float:
    return 1.0 if flips is None or not flips.samples else flips.mattered / flips.samples


def _floor_ms(read_bytes: int, written_bytes: int, roof: Roof) -> float:
    return floor_ms(
        read_bytes=read_bytes,
        written_bytes=written_bytes,
        bandwidth_bytes_per_s=roof.bandwidth_bytes_per_s,
        l2_bytes=roof.l2_bytes,
    )


def _rate(amount: float, taken_ms: float) -> float | None:
    rate = amount / taken_ms if taken_ms > 0 else math.inf
    return rate if math.isfinite(rate) else None
