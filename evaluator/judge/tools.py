"""Compilers, and other programs that are given a submission's sources, behind the walls of a starter."""

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from evaluator.build.cache import cache_folder
from evaluator.build.prepared import prepared_folder
from evaluator.deadline import Deadline
from evaluator.emulator import headers
from evaluator.errors import JudgeFailed
from evaluator.isolation import Limits, Starter, ToolResult, run_tool
from evaluator.records import DeviceKind
from evaluator.toolchain import nvcc

_NO_SPACE = os.strerror(errno.ENOSPC)
_LITTLE_BYTES = 64 << 20


class Tools:
    """Runs programs that see, besides the system, what building for a device needs."""

    def __init__(self, starter: Starter, device: DeviceKind, deadline: Callable[[], Deadline] = Deadline) -> None:
        """Run them as processes of `starter`, until the `deadline` of the grade at most."""
        self._deadline = deadline
        self._starter = starter
        self._device = device

    def __call__(
        self, argv: Sequence[str], *, work: Path, timeout_s: float, limits: Limits, readable: Sequence[Path] = ()
    ) -> ToolResult:
        """Run `argv` to its end, or to `timeout_s`. Raises JudgeFailed if it cannot start, or has no room on disk.

        Raises DeadlineReached where the whole grade is out of time: a program that was killed then says nothing.
        """
        deadline = self._deadline()
        timeout_s = deadline.within(timeout_s)
        cuda = [nvcc.cuda_home(), prepared_folder(cache_folder())] if self._device is DeviceKind.CUDA else []
        known = [headers.INCLUDE, *readable, *cuda]
        result = run_tool(self._starter, argv, work=work, limits=limits, timeout_s=timeout_s, readable=known)
        deadline.check()
        if not result.ok and _NO_SPACE in result.output and shutil.disk_usage(work).free < _LITTLE_BYTES:
            raise JudgeFailed(f"the compiler's disk is full: {work.parent.parent}", hint="free space in $TMPDIR")
        return result
