"""Fork servers of runners: environment variables, early import of a language, and compilers in the same sandbox."""

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from evaluator.compile.build_memory import held_bytes
from evaluator.compile.precompiled import precompiled_folder
from evaluator.deadline import Deadline
from evaluator.devices.gpu import show_only
from evaluator.emulator import headers
from evaluator.emulator.parsing import PARSER
from evaluator.errors import JudgeFailed
from evaluator.languages.language import uses_triton
from evaluator.paths import cache_folder
from evaluator.protocol.submission_files import names_variables
from evaluator.records import DeviceKind, SandboxMode
from evaluator.sandbox import DEFAULT_PRELOAD, ForkServer, Limits, ToolResult, run_tool
from evaluator.toolchain import nvcc

_LINT = "evaluator.lint.lint"


def fork_server_for(device: DeviceKind, gpu: str | None, sandbox: SandboxMode, threads: int) -> ForkServer:
    """Start a fork server for a device, and for the GPU with UUID `gpu`, without waiting until the server is ready.

    Both sides of a comparison get the same variables. Idle OpenMP threads sleep: with spinning threads, two busy cores
    slow a parallel loop by a factor of six (measured), and every call's time depends on the machine's load.
    """
    added = [_LINT, *([] if device is DeviceKind.CPU else [PARSER])]
    return ForkServer(mode=sandbox, environment=_environment(device, gpu, threads), preload=(*DEFAULT_PRELOAD, *added))


def light_fork_server_for(device: DeviceKind, sandbox: SandboxMode) -> ForkServer:
    """Start a fork server without PyTorch, without waiting until the server is ready.

    Compilers and the judge's own analysis of a submission's text run here. Start-up takes a fifth of the time.
    """
    return ForkServer(mode=sandbox, preload=(_LINT, *([] if device is DeviceKind.CPU else [PARSER])))


def _environment(device: DeviceKind, gpu: str | None, threads: int) -> dict[str, str]:
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        # A runner's user has no passwd entry, but torch.compile looks up the user name.
        "USER": "runner",
        "LOGNAME": "runner",
        **(_gpu_variables(gpu) if gpu is not None else {}),
        # On `emulated`, Triton's own interpreter runs Triton kernels; Triton reads the variable at import.
        **({"TRITON_INTERPRET": "1"} if device is DeviceKind.EMULATED else {}),
    }


def _gpu_variables(gpu: str) -> dict[str, str]:
    """Return the variables that show a runner its GPU, and have torch's import detect the GPU through NVML.

    Detection through CUDA would initialize the CUDA runtime in the fork server; no forked child could use CUDA then.
    """
    return {**show_only(gpu), "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


_TRITON = "evaluator.runner.triton.preloaded"


def prepare_for(source: str, device: DeviceKind, fork_server: ForkServer) -> None:
    """Import Triton in a fork server if the submission's text names Triton. Idle runners import Triton themselves."""
    if device is not DeviceKind.CPU and uses_triton(source) and not names_variables(source):
        fork_server.preload(_TRITON)


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
