"""Preparation of once-per-machine artefacts: all builds that a device's first grade would otherwise wait for."""

import functools
import importlib.metadata
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from evaluator.cache.build_cache import BuildCache, trouble
from evaluator.compile.builder import RunTool
from evaluator.compile.own_libraries import (
    PRECOMPILED,
    binding_support,
    build_allocator,
    build_device_allocator,
    build_kernels,
    build_runtime,
    precompilation,
    precompiled_headers,
)
from evaluator.compile.precompiled import precompile, precompiled, precompiled_folder, why_not_precompiled
from evaluator.devices.gpu import gpus
from evaluator.emulator import headers
from evaluator.emulator.frontend.build_ladder import StepName
from evaluator.errors import ExitCode, ToolchainMissing, WarpgradeError
from evaluator.progress import ProgressReceiver
from evaluator.records import DeviceKind, Record
from evaluator.sandbox import ForkServer, Limits, ToolResult, run_tool
from evaluator.toolchain import nvcc

_HEADERS_OF = {StepName.LIGHT: " with pybind11", StepName.FULL: " of all of PyTorch"}


class ArtefactState(StrEnum):
    """Result for one artefact."""

    MADE = "made"
    THERE = "there"
    FAILED = "failed"


class Artefact(NamedTuple):
    """Artefact for a device. `make` returns None on success, else the reason of the failure."""

    device: DeviceKind
    name: str
    make: Callable[[RunTool], str | None]


class ArtefactReport(Record, frozen=True):
    """Result for one artefact, with the reason of a failure."""

    device: DeviceKind
    name: str
    outcome: ArtefactState
    why: str
    wall_s: float


class Preparations(Record, frozen=True):
    """Results for all artefacts."""

    folder: str
    parts: list[ArtefactReport]

    @property
    def exit_code(self) -> ExitCode:
        """Exit code 0 if the next grade finds all artefacts."""
        failed = any(report.outcome is ArtefactState.FAILED for report in self.parts)
        return ExitCode.INFRASTRUCTURE if failed else ExitCode.CORRECT


def parts(devices: Sequence[DeviceKind], cache: Path) -> list[Artefact]:
    """List the artefacts for grades on `devices`, those of the GPU first: a batch waits for them longest.

    A machine with nvcc but without a GPU also gets the headers of split builds.
    """
    builds = BuildCache(cache)
    own = builds.parts
    needed = []
    if _builds_for_gpus():
        needed.append(Artefact(DeviceKind.CUDA, "headers of split builds", functools.partial(_split_headers, cache)))
    if DeviceKind.CUDA in devices:
        needed.append(_artefact(DeviceKind.CUDA, "allocator", lambda run: build_device_allocator(run, own)))
        for architecture in sorted({nvcc.architecture(*gpu.capability) for gpu in gpus()}):
            kernels = functools.partial(build_kernels, cache=own, architecture=architecture)
            needed.append(_artefact(DeviceKind.CUDA, f"judge's kernels for sm_{architecture}", kernels))
    if DeviceKind.CPU in devices:
        why = "it does not compile; outputs are copied instead"
        needed.append(_artefact(DeviceKind.CPU, "allocator", lambda run: build_allocator(run, own), why))
    if DeviceKind.EMULATED in devices:
        needed.append(_artefact(DeviceKind.EMULATED, "runtime", lambda run: build_runtime(run, builds)))
        why = "it does not compile; builds take longer"
        needed.append(
            _artefact(DeviceKind.EMULATED, "support of bindings", lambda run: binding_support(run, builds), why)
        )
        why = "the compiler cannot make it; each build reads the headers as text"
        for step in PRECOMPILED:
            if precompilation(step) is not None:
                name = f"precompiled header{_HEADERS_OF.get(step, '')}"
                header = functools.partial(precompiled_headers, cache=builds, step=step)
                needed.append(_artefact(DeviceKind.EMULATED, name, header, why))
    return needed


def is_there(artefact: Artefact) -> bool:
    """Return whether an artefact exists, without running programs or writing files."""
    try:
        return artefact.make(_run_nothing) is None
    except (_WouldRun, WarpgradeError):
        return False


def make_ahead(needed: Sequence[Artefact], cache: Path, progress: ProgressReceiver) -> Preparations:
    """Build the missing artefacts in the sandbox."""
    # Checked before building, because one build may produce two artefacts.
    built = [is_there(artefact) for artefact in needed]
    reports = []
    with ForkServer(preload=()) as fork_server:
        run = functools.partial(_run, fork_server, cache)
        for artefact, is_built in zip(needed, built, strict=True):
            if is_built:
                reports.append(_report(artefact, ArtefactState.THERE))
                continue
            progress.stage("prepare", f"{artefact.device.value}: {artefact.name}")
            started_s = time.monotonic()
            try:
                reason = artefact.make(run)
            except WarpgradeError as error:
                reason = error.message
            wall_s = time.monotonic() - started_s
            if reason is None and (cache_trouble := trouble(cache)) is not None:
                reason = f"it cannot be kept in {cache}: {cache_trouble.why}"
            if reason is None and not is_there(artefact):
                reason = f"it cannot be kept in {cache}: no room, or read-only"
            outcome = ArtefactState.MADE if reason is None else ArtefactState.FAILED
            reports.append(_report(artefact, outcome, reason or "", wall_s))
    return Preparations(folder=str(cache), parts=reports)


class _WouldRun(Exception):
    """The artefact is missing and would need a program run."""


def _run_nothing(*_: object, **__: object) -> ToolResult:
    raise _WouldRun


def _run(
    fork_server: ForkServer,
    cache: Path,
    argv: Sequence[str],
    *,
    work: Path,
    timeout_s: float,
    limits: Limits,
    readable: Sequence[Path] = (),
) -> ToolResult:
    cuda = [nvcc.cuda_home(), precompiled_folder(cache)] if _has_nvcc() else []
    readable_paths = [headers.INCLUDE, *readable, *cuda]
    return run_tool(fork_server, argv, work=work, limits=limits, timeout_s=timeout_s, readable=readable_paths)


def _report(artefact: Artefact, outcome: ArtefactState, reason: str = "", wall_s: float = 0.0) -> ArtefactReport:
    return ArtefactReport(device=artefact.device, name=artefact.name, outcome=outcome, why=reason, wall_s=wall_s)


def _builds_for_gpus() -> bool:
    """Return whether split builds are possible: with nvcc, and a PyTorch with CUDA headers."""
    return _has_nvcc() and not importlib.metadata.version("torch").endswith("+cpu")


def _has_nvcc() -> bool:
    try:
        nvcc.nvcc()
    except ToolchainMissing:
        return False
    return True


def _artefact(device: DeviceKind, name: str, build: Callable[[RunTool], object], why: str = "") -> Artefact:
    """Return the artefact of a build that raises, or returns None because of `why`."""
    return Artefact(device, name, lambda run: why if build(run) is None else None)


def _split_headers(cache: Path, run: RunTool) -> str | None:
    if precompiled(cache) is not None:
        return None
    if run is _run_nothing:
        raise _WouldRun
    return None if precompile(run, cache) is not None else why_not_precompiled(cache)
