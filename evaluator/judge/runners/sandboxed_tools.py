"""Compilers and other programs that read a submission's sources, run in a fork server's sandbox."""

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from evaluator.compile.cuda.precompiled import precompiled_folder
from evaluator.compile.extension.build_memory import held_bytes
from evaluator.deadline import Deadline
from evaluator.emulator import headers
from evaluator.errors import JudgeFailed
from evaluator.paths import cache_folder
from evaluator.records import DeviceKind
from evaluator.sandbox import ForkServer, Limits, ToolResult, run_tool
from evaluator.toolchain import nvcc

_NO_SPACE = os.strerror(errno.ENOSPC)
_LITTLE_BYTES = 64 << 20


class SandboxedTools:
    """Runs programs that can read the system and the toolchain files of a device."""

    def __init__(
        self, fork_server: ForkServer, device: DeviceKind, deadline: Callable[[], Deadline] = Deadline
    ) -> None:
        """Run programs as processes of `fork_server`, at most until the grade's `deadline`."""
        self._deadline = deadline
        self._fork_server = fork_server
        self._device = device

    def __call__(
        self, argv: Sequence[str], *, work: Path, timeout_s: float, limits: Limits, readable: Sequence[Path] = ()
    ) -> ToolResult:
        """Run `argv` to its end or to `timeout_s`. Raises JudgeFailed if `argv` cannot start or the disk is full.

        Raises DeadlineReached at the deadline of the whole grade: the output of a killed program proves nothing.
        """
        deadline = self._deadline()
        timeout_s = deadline.within(timeout_s)
        cuda = [nvcc.cuda_home(), precompiled_folder(cache_folder())] if self._device is DeviceKind.CUDA else []
        paths = [headers.INCLUDE, *readable, *cuda]
        limits = replace(limits, held_bytes=min(limits.held_bytes, held_bytes()))
        result = run_tool(self._fork_server, argv, work=work, limits=limits, timeout_s=timeout_s, readable=paths)
        deadline.check()
        if not result.ok and _NO_SPACE in result.output and shutil.disk_usage(work).free < _LITTLE_BYTES:
            raise JudgeFailed(f"the compiler's disk is full: {work.parent.parent}", hint="free space in $TMPDIR")
        return result
