"""Device-specific parts of a grade: the extension builder, and the native library of the device's runners.

On `cuda`, a thread builds the shared files of split builds, so that the first split build on a machine does not wait.
"""

import functools
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.builder import BuildResult, CpuBuilder, RunTool
from evaluator.compile.cuda_builder import CudaBuilder
from evaluator.compile.emulated_builder import EmulatedBuilder
from evaluator.compile.own_libraries import (
    build_allocator,
    build_device_allocator,
    build_kernels,
    build_runtime,
    full_headers_are_built,
    runtime_is_built,
)
from evaluator.compile.precompiled import make_or_await, precompile, worth_trying
from evaluator.deadline import DeadlineReached
from evaluator.devices.gpu import Gpu
from evaluator.devices.memory import sealed_file
from evaluator.emulator.parsing.parse_in_sandbox import read_for_emulator, too_much_to_split
from evaluator.errors import WarpgradeError
from evaluator.paths import cache_folder
from evaluator.protocol.frames import BuildRequest
from evaluator.records import DeviceKind
from evaluator.sandbox import ToolResult
from evaluator.sandbox.question import Spawn
from evaluator.toolchain import nvcc

_LAST_IN_LINE = ("-n", "19")
_AGAIN_S = 0.05


class BackgroundPrecompile:
    """Run of `prepare` in a low-priority thread. Failures have no effect on the grade."""

    def __init__(self, run_tool: RunTool, cache: Path) -> None:
        """Start the thread. The thread calls `run_tool`."""
        self._run_tool = run_tool
        self._cache = cache
        self._ending = False
        # An event instead of `join`: after Ctrl-C in `join`, Python reports the thread as ended.
        self._done = threading.Event()
        # Daemon thread: a process that never calls `end` must not wait. The compiler dies with the process.
        threading.Thread(target=self._prepare, name="prepare", daemon=True).start()

    def wait(self) -> None:
        """Wait for completion. Ctrl-C interrupts the wait."""
        # In rounds: Python handles a signal that comes just before a wait only after the wait.
        while not self._done.wait(_AGAIN_S):
            pass

    def end(self, kill: Callable[[], None]) -> None:
        """Stop the thread at once. `kill` ends all programs of `run_tool`; repeated, as a program may be starting."""
        self._ending = True
        while not self._done.is_set():
            kill()
            self._done.wait(_AGAIN_S)

    def _prepare(self) -> None:
        try:
            precompile(self._run_behind, self._cache)
        except (WarpgradeError, OSError, DeadlineReached):
            return  # No compiler, space or time: builds use the next step.
        except Exception:
            if not self._ending:  # Killing tools from another thread causes arbitrary exceptions.
                raise
        finally:
            self._done.set()

    def _run_behind(self, argv: Sequence[str], **how: Any) -> ToolResult:
        nice = shutil.which("nice")
        return self._run_tool([*([nice, *_LAST_IN_LINE] if nice else []), *argv], **how)


class ExtensionBuilder(Protocol):
    """Builder for `load_inline` and `load`."""

    def build(self, request: BuildRequest) -> BuildResult:
        """Build one extension, or report why not."""


class DeviceBuilders(NamedTuple):
    """Builder factory of a device, and a descriptor of its native library: the allocator, or the emulator's runtime.

    `builder_of` returns a builder for a submission's source; compiler messages refer to the source's lines. `kernels`
    is a cubin with the judge's GPU kernels. `preparation` builds shared headers in the background, for faster later
    builds; `make_headers` builds them at once, or waits for another process that does.
    """

    builder_of: Callable[[str], ExtensionBuilder]
    library: int | None
    kernels: bytes | None = None
    preparation: BackgroundPrecompile | None = None
    make_headers: Callable[[], None] = lambda: None

    def wait(self) -> None:
        """Wait for the background preparation."""
        if self.preparation is not None:
            self.preparation.wait()

    def close(self, kill: Callable[[], None]) -> None:
        """Close the library and stop the background preparation; `kill` ends all running tools."""
        if self.preparation is not None:
            self.preparation.end(kill)
        if self.library is not None:
            os.close(self.library)


def to_build(device: DeviceKind) -> str:
    """Return a message if `device_builders` will start a long build; else an empty string."""
    if device is DeviceKind.EMULATED and not runtime_is_built(BuildCache(cache_folder())):
        return "building the emulator, once for this installation: about half a minute"
    return ""


def to_build_on_error(device: DeviceKind) -> str:
    """Return a message if the first build error will start a long build; else an empty string."""
    if device is DeviceKind.EMULATED and not full_headers_are_built(BuildCache(cache_folder())):
        return "the first error in code with PyTorch's headers precompiles them, once: 810 MB in the cache"
    return ""


def device_builders(
    device: DeviceKind,
    gpu: Gpu | None,
    run_tool: RunTool,
    cache: BuildCache,
    build_timeout_s: float,
    spawn: Spawn,
    *,
    for_many: bool = False,
) -> DeviceBuilders:
    """Prepare a device. The first use builds the device's library and stores it in `cache`.

    Compilers run through `run_tool`. Our own analysis of submission text runs in children of `spawn`. `for_many`
    submissions, shared headers are made before the first build, instead of beside it.
    """
    builder_of = functools.partial(builder, device, gpu, run_tool, cache, build_timeout_s, spawn)
    match device:
        case DeviceKind.CPU:
            library = build_allocator(run_tool, cache.parts)
            return DeviceBuilders(builder_of, None if library is None else sealed_file(library))
        case DeviceKind.EMULATED:
            return DeviceBuilders(builder_of, sealed_file(build_runtime(run_tool, cache)))
        case DeviceKind.CUDA:
            kernels = build_kernels(run_tool, cache.parts, _architecture(gpu))
            descriptor = sealed_file(build_device_allocator(run_tool, cache.parts))
            if for_many:
                make_headers = functools.partial(make_or_await, run_tool, cache_folder())
                return DeviceBuilders(builder_of, descriptor, kernels, make_headers=make_headers)
            preparation = BackgroundPrecompile(run_tool, cache_folder()) if worth_trying(cache_folder()) else None
            return DeviceBuilders(builder_of, descriptor, kernels, preparation)


def builder(
    device: DeviceKind,
    gpu: Gpu | None,
    run_tool: RunTool,
    cache: BuildCache,
    build_timeout_s: float,
    spawn: Spawn,
    source: str,
) -> ExtensionBuilder:
    """Return the builder for a submission with the text `source`, independent of `device_builders`."""
    cache = cache.of_one_submission()
    match device:
        case DeviceKind.CPU:
            return CpuBuilder(run_tool, cache, source, build_timeout_s)
        case DeviceKind.EMULATED:
            read = functools.partial(read_for_emulator, spawn=spawn)
            return EmulatedBuilder(run_tool, cache, source, build_timeout_s, read)
        case DeviceKind.CUDA:
            rehearse = functools.partial(too_much_to_split, spawn=spawn)
            return CudaBuilder(run_tool, cache, source, build_timeout_s, rehearse, _architecture(gpu))


def _architecture(gpu: Gpu | None) -> str:
    if gpu is None:
        raise TypeError("cuda without a GPU")
    return nvcc.architecture(*gpu.capability)
