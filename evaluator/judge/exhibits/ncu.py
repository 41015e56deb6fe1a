"""Nsight Compute: search for the executable, command line, and parser of the raw page.

The profiled program contains the submission, which can print arbitrary text into the page. The parser therefore treats
the page as untrusted text, with bounded lengths and validated numbers.
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
"""Limit of launches: ncu runs each launch several times and saves and restores memory. Thousands would take minutes."""
REFUSED = "ERR_NVGPUCTRPERM"
"""Error name of a driver that restricts the counters to administrators."""

_PACKAGES = Path("/opt/nvidia/nsight-compute")
_DURATION = "gpu__time_duration.sum"
_BYTES = "dram__bytes.sum"
_BANDWIDTH = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
_OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
_NAME = "Kernel Name"
_OPTIONS = (
    # The program starts the collection itself: cudaProfilerStart.
    *("--profile-from-start", "off"),
    *("--target-processes", "all"),
    # Leave the clocks unlocked: other programs use the GPU's clocks too.
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
    """One launch of a kernel. None marks a counter that the GPU lacks, or an invalid number."""

    name: str
    time_us: float
    dram_bytes: float | None
    bandwidth_percent: float | None
    occupancy_percent: float | None


def find_ncu(packages: Path = _PACKAGES) -> Path | None:
    """Return the path of ncu: from PATH, from the CUDA toolkit, or from the newest package of Nsight Compute."""
    if (on_path := shutil.which("ncu")) is not None:
        return Path(on_path)
    paths = []
    with contextlib.suppress(ToolchainMissing):
        paths.append(nvcc.cuda_home() / "bin" / "ncu")
    paths += sorted(packages.glob("*/ncu"), key=_version, reverse=True)
    return next((path for path in paths if path.is_file() and os.access(path, os.X_OK)), None)


def installation(ncu: Path) -> list[Path]:
    """Return the folders that `ncu` needs besides the system folders.

    The toolkit's `ncu` is a script that starts a program of another NVIDIA package.
    """
    # An installation has a folder `target`, with a program for each architecture. Any other folder may be a home
    # folder.
    folders = [folder for folder in (ncu.parent, ncu.resolve().parent) if (folder / "target").is_dir()]
    with contextlib.suppress(ToolchainMissing):
        folders.append(nvcc.cuda_home())
    return [*folders, *([_PACKAGES] if _PACKAGES.is_dir() else [])]


def command(ncu: Path, program: Sequence[str]) -> list[str]:
    """Return the command line of ncu for `program`."""
    return [str(ncu), *_OPTIONS, *program]


def read_page(text: str) -> list[Launch]:
    """Return the launches in the output of ncu and the profiled program, in order.

    The page comes last, so the last header line counts.
    """
    lines = text.splitlines()
    headers = [number for number, line in enumerate(lines) if _is_header(line)]
    if not headers:
        return []
    header = _fields(lines[headers[-1]])
    below = (_fields(line) for line in lines[headers[-1] + 1 :])
    rows = [dict(zip(header, fields, strict=True)) for fields in below if len(fields) == len(header)]
    # The first row has the units.
    launches = (_launch(row, rows[0]) for row in rows[1 : MOST_LAUNCHES + 1])
    return [launch for launch in launches if launch is not None]


def _is_header(line: str) -> bool:
    return f'"{_NAME}"' in line and f'"{_DURATION}"' in line


def _fields(line: str) -> list[str]:
    """Split a line of the page; return nothing for other lines. One line at a time, to confine an unclosed quote."""
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
    """Parse a number from 0 to `most`, with or without thousands separators. None for other texts."""
    plain = text.replace(",", "") if _GROUPED.match(text) else text
    try:
        value = float(plain) * factor if factor is not None else math.nan
    except ValueError:
        return None
    return value if 0 <= value <= most else None


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", path.parent.name)[:4])
