"""Nsight Compute: where it is, how it is asked, and what its page of raw numbers says.

The program that it watches has the submission in it, which can write into that page whatever it likes. So the page is
read as text of a stranger: bounded, and without numbers that are none.
"""

import contextlib
import csv
import math
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from evaluator.errors import ToolchainMissing
from evaluator.toolchain import nvcc

MOST_LAUNCHES = 64
"""Each launch is run several times over, with its memory saved and restored; a call of thousands would take minutes."""
REFUSED = "ERR_NVGPUCTRPERM"
"""What the driver's refusal is called, where it keeps the counters for administrators."""

_PACKAGES = Path("/opt/nvidia/nsight-compute")
_DURATION = "gpu__time_duration.sum"
_BYTES = "dram__bytes.sum"
_BANDWIDTH = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
_OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
_NAME = "Kernel Name"
_OPTIONS = (
    # The program says itself which call is watched: cudaProfilerStart.
    *("--profile-from-start", "off"),
    *("--target-processes", "all"),
    # The clocks as they are: they are this machine's, and other programs have them too.
    *("--clock-control", "none"),
    *("--cache-control", "none"),
    *("--launch-count", str(MOST_LAUNCHES)),
    *("--metrics", f"{_DURATION},{_BYTES},{_BANDWIDTH},{_OCCUPANCY}"),
    *("--csv", "--page", "raw"),
    *("--print-units", "base"),
    *("--print-kernel-base", "demangled"),
)
_TO_US = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}
_TO_BYTES = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
_TO_PERCENT = {"%": 1.0}
_GROUPED = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?\Z")
_MOST_LINE = 65_536
_MOST_NAME = 4096
_LEAST_US, _MOST_US = 1e-3, 1e12
_MOST_BYTES = 1e18
_MOST_PERCENT = 1e3


class Launch(NamedTuple):
    """One launch of a kernel, as the page has it. None where this GPU does not count it, or no number stands there."""

    name: str
    time_us: float
    dram_bytes: float | None
    bandwidth_percent: float | None
    occupancy_percent: float | None


def find_ncu(packages: Path = _PACKAGES) -> Path | None:
    """Find ncu: on the PATH, in the CUDA toolkit, or where its own packages put it (the newest there)."""
    if (on_path := shutil.which("ncu")) is not None:
        return Path(on_path)
    places = []
    with contextlib.suppress(ToolchainMissing):
        places.append(nvcc.cuda_home() / "bin" / "ncu")
    places += sorted(packages.glob("*/ncu"), key=_version, reverse=True)
    return next((place for place in places if place.is_file() and os.access(place, os.X_OK)), None)


def installation(ncu: Path) -> list[Path]:
    """List the folders that `ncu` needs besides the system's own: those of its installation, and no others.

    The toolkit's own `ncu` is a script that starts one of NVIDIA's packages.
    """
    # Its folder has `target`, with a program for each kind of machine. A folder around anything else may be a home.
    folders = [folder for folder in (ncu.parent, ncu.resolve().parent) if (folder / "target").is_dir()]
    with contextlib.suppress(ToolchainMissing):
        folders.append(nvcc.cuda_home())
    return [*folders, *([_PACKAGES] if _PACKAGES.is_dir() else [])]


def command(ncu: Path, program: Sequence[str]) -> list[str]:
    """Give the command line that has `ncu` watch `program` and print what it counted."""
    return [str(ncu), *_OPTIONS, *program]


def read_page(text: str) -> list[Launch]:
    """Read the launches out of what ncu and the program under it printed, in their order.

    The page comes last, so the last line that is a header counts.
    """
    lines = text.splitlines()
    headers = [number for number, line in enumerate(lines) if _is_header(line)]
    if not headers:
        return []
    header = _fields(lines[headers[-1]])
    below = (_fields(line) for line in lines[headers[-1] + 1 :])
    rows = [dict(zip(header, fields, strict=True)) for fields in below if len(fields) == len(header)]
    # The first row has the units.
    found = (_launch(row, rows[0]) for row in rows[1 : MOST_LAUNCHES + 1])
    return [launch for launch in found if launch is not None]


def _is_header(line: str) -> bool:
    return f'"{_NAME}"' in line and f'"{_DURATION}"' in line


def _fields(line: str) -> list[str]:
    """Take a line of the page apart; nothing where it is none. Line by line, so that no quote swallows what follows."""
    if not line.startswith('"') or len(line) > _MOST_LINE:
        return []
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def _launch(row: dict[str, str], units: dict[str, str]) -> Launch | None:
    def read(metric: str, factors: dict[str, float], most: float) -> float | None:
        return _number(row.get(metric, ""), factors.get(units.get(metric, "")), most)

    name, time_us = row.get(_NAME, "")[:_MOST_NAME], read(_DURATION, _TO_US, _MOST_US)
    if not name or time_us is None or time_us < _LEAST_US:
        return None
    return Launch(
        name=name,
        time_us=time_us,
        dram_bytes=read(_BYTES, _TO_BYTES, _MOST_BYTES),
        bandwidth_percent=read(_BANDWIDTH, _TO_PERCENT, _MOST_PERCENT),
        occupancy_percent=read(_OCCUPANCY, _TO_PERCENT, _MOST_PERCENT),
    )


def _number(text: str, factor: float | None, most: float) -> float | None:
    """Read a number from 0 to `most`, its thousands set apart by commas or not. None for anything else."""
    plain = text.replace(",", "") if _GROUPED.match(text) else text
    try:
        value = float(plain) * factor if factor is not None else math.nan
    except ValueError:
        return None
    return value if 0 <= value <= most else None


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", path.parent.name)[:4])
