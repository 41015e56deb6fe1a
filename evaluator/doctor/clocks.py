"""Effect of locked clocks on the machine's GPUs, and the command for locking the clocks. Locks nothing."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence

from evaluator.devices.gpu import Gpu, gpus, leased, look_at_clock, max_sm_mhz, show_only
from evaluator.errors import InfraError
from evaluator.records import Record
from evaluator.sandbox.filesystem.visible_files import source_root

_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from evaluator.doctor.clock_sampler import main; main()"
_PROGRAM_LIMIT_S = 120
_LEAST_SAMPLES = 10
_STEADY = 0.01
"""Range of clocks, relative to the highest, below which locking changes little."""


class ClockSpread(Record, frozen=True):
    """Times of a short kernel, and the multiprocessors' clocks meanwhile: the middle 90 % of the samples."""

    samples: int
    low_us: float
    median_us: float
    high_us: float
    low_mhz: int
    median_mhz: int
    high_mhz: int


class ClockReport(Record, frozen=True):
    """Clock of a GPU, and the effect of a lock.

    `spread` is None without a measurement; `why_not` is the reason. `lock_mhz` is the lowest measured clock, which the
    GPU held under load, or its highest clock without a measurement.
    """

    gpu: str
    sm_mhz: int | None
    max_mhz: int | None
    throttled: list[str]
    spread: ClockSpread | None
    why_not: str
    lock_mhz: int | None
    command: str
    undo: str
    gain: str


def clock_reports() -> list[ClockReport]:
    """Measure every visible GPU. Raises InfraError without a GPU."""
    found = gpus()
    if not found:
        raise InfraError("no NVIDIA GPU is visible", hint="run `warpgrade doctor --clocks` on a machine with a GPU")
    return [_report(gpu) for gpu in found]


def _report(gpu: Gpu) -> ClockReport:
    spread, why_not = _measured(gpu)
    return report_of(gpu, spread, why_not)


def report_of(gpu: Gpu, spread: ClockSpread | None, why_not: str) -> ClockReport:
    """Return the report of a GPU with a measured spread, or with the reason for no measurement."""
    look, highest = look_at_clock(gpu), max_sm_mhz(gpu)
    lock_mhz = highest if spread is None else spread.low_mhz
    select = f"sudo nvidia-smi -i {gpu.number}"
    return ClockReport(
        gpu=f"{gpu.number}: {gpu.name}",
        sm_mhz=None if look is None else look.sm_mhz,
        max_mhz=highest,
        throttled=[] if look is None else list(look.throttled),
        spread=spread,
        why_not=why_not,
        lock_mhz=lock_mhz,
        command="" if lock_mhz is None else f"{select} -lgc {lock_mhz},{lock_mhz}",
        undo=f"{select} -rgc",
        gain=_gain(spread),
    )


def _gain(spread: ClockSpread | None) -> str:
    if spread is None:
        return "unknown without a measurement"
    moved = (spread.high_mhz - spread.low_mhz) / spread.high_mhz
    if moved <= _STEADY:
        return f"little: the clock stayed within {moved:.1%} under load"
    slower = (spread.median_mhz - spread.low_mhz) / spread.median_mhz
    return (
        f"times no longer follow a clock that moves by {moved:.1%}; kernels that compute take about {slower:.1%} "
        "longer than at the median clock"
    )


def _measured(gpu: Gpu) -> tuple[ClockSpread | None, str]:
    """Run the sampler beside no other grade. Return the spread, or None with the reason."""
    command = [sys.executable, "-P", "-c", _BOOT, str(source_root()), gpu.uuid]
    environment = {**os.environ, **show_only(gpu.uuid)}
    try:
        with leased(gpu, 0.0):
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=_PROGRAM_LIMIT_S,
            )
    except InfraError as error:
        return None, error.message
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        return None, f"the kernel could not be timed: {error}"
    samples: list[tuple[float, int]] = []
    with contextlib.suppress(ValueError, TypeError):
        samples = [(float(us), int(mhz)) for us, mhz in json.loads(done.stdout)]
    if len(samples) < _LEAST_SAMPLES:
        said = done.stderr.strip().splitlines()
        return None, f"the kernel could not be timed: {said[-1][:300] if said else 'too few samples'}"
    return spread_of(samples), ""


def spread_of(samples: Sequence[tuple[float, int]]) -> ClockSpread:
    """Return the spread of pairs of a time in us and a clock in MHz."""
    times_us, clocks_mhz = sorted(us for us, _ in samples), sorted(mhz for _, mhz in samples)
    low, middle, high = (int(part * (len(samples) - 1)) for part in (0.05, 0.5, 0.95))
    return ClockSpread(
        samples=len(samples),
        low_us=times_us[low],
        median_us=times_us[middle],
        high_us=times_us[high],
        low_mhz=clocks_mhz[low],
        median_mhz=clocks_mhz[middle],
        high_mhz=clocks_mhz[high],
    )
