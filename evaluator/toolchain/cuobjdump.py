"""Disassembler of the CUDA toolkit."""

import functools
import os
import subprocess

from evaluator.errors import ToolchainMissing
from evaluator.toolchain.host_compiler import Toolchain
from evaluator.toolchain.nvcc import cuda_home


@functools.cache
def cuobjdump() -> Toolchain | None:
    """Find cuobjdump beside nvcc, and its version; None for a toolkit without disassembler."""
    try:
        path = cuda_home() / "bin" / "cuobjdump"
    except ToolchainMissing:
        return None
    if not os.access(path, os.X_OK):
        return None
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=60)
    lines = answer.stdout.strip().splitlines()
    return Toolchain(str(path), lines[-1].strip()) if answer.returncode == 0 and lines else None
