"""Software and hardware of a grade, as seen by the judge."""

import os
import platform
from pathlib import Path

from evaluator.errors import ToolchainMissing
from evaluator.records import Environment
from evaluator.toolchain.host_compiler import cxx, torch_version
from evaluator.version import __version__


def environment(threads: int) -> Environment:
    """Return the description of this machine. Runs the compiler once, for the version."""
    # Imported here: a grade starts its first process before, and this import takes milliseconds.
    import psutil

    try:
        compiler = cxx().version
    except ToolchainMissing:
        compiler = "none"
    return Environment(
        warpgrade=__version__,
        python=platform.python_version(),
        torch=torch_version(),
        compiler=compiler,
        platform=platform.platform(),
        cpu=_cpu_name(),
        cpu_cores=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        threads=threads,
    )


def _cpu_name() -> str:
    """Return the processor's name from /proc/cpuinfo; arm64 kernels do not provide one."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
