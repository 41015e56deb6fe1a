"""Build of inline CUDA for the available GPU, in the sandbox: fast steps first, PyTorch's own build last.

*split* compiles kernels without PyTorch's headers, and the host code with a precompiled header. *light* compiles each
file with a few light headers instead of PyTorch's heaviest headers. *plain* is `load_inline`. After a failed step the
next step runs, until two steps agree on an error of the submission. All three steps produce the same machine code.
"""

import functools
import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.cuda.build_steps import CUDA_SUFFIXES, Attempt, CudaStep, steps
from evaluator.compile.cuda.kernel_headers import KernelHeaders, kernel_headers, missing_library
from evaluator.compile.extension.build_result import BuildResult
from evaluator.compile.extension.builder import CPP_SUFFIXES, RunTool, compile_failure, misnamed, refusal, refused_build
from evaluator.compile.extension.builder_sources import builder_sha256
from evaluator.compile.extension.error_agreement import agreed, undeclared
from evaluator.compile.extension.failed_builds import FailedBuilds
from evaluator.cuda_source.source_files import all_files, source_files
from evaluator.findings import Code, finding
from evaluator.paths import cache_folder
from evaluator.protocol.frames import BuildRequest, SourceFile
from evaluator.records import BuildUnit, Diagnostic, Finding
from evaluator.toolchain import nvcc
from evaluator.toolchain.diagnostics import parse
from evaluator.toolchain.nvcc_flags import NvccFlags, nvcc_flags


class CudaBuilder:
    """Builder of one submission's extensions for one GPU architecture."""

    def __init__(
        self,
        run_tool: RunTool,
        cache: BuildCache,
        submission: str,
        timeout_s: float,
        too_much: Callable[[BuildRequest], str | None],
        architecture: str,
        *,
        cache_root: Path | None = None,
    ) -> None:
        """Compile through `run_tool` for `architecture` ("90a"), and store libraries in `cache`.

        Messages are mapped to lines of `submission`. `too_much` returns why a text is too complex to split (see
        `emulator/parsing/parse_in_sandbox.py`). `cache_root`, by default the user's cache, holds the files made by
        `prepare`; without them the split step is skipped.
        """
        self._run_tool = run_tool
        self._cache = cache
        self._submission = submission
        self._timeout_s = timeout_s
        self._too_much = too_much
        self._architecture = architecture
        self._cache_root = cache_root if cache_root is not None else cache_folder()
        self._failures = FailedBuilds(cache, submission)

    def build(self, request: BuildRequest) -> BuildResult:
        """Build a requested extension; a refused request results in a finding."""
        files = source_files(request)
        flags = nvcc_flags(request.extra_cuda_cflags)
        libraries = kernel_headers(request)
        key = _key(request, files, self._architecture, libraries)
        if (
            problem := misnamed(request) or refusal(request, files, CPP_SUFFIXES | CUDA_SUFFIXES) or _refused(flags)
        ) is not None:
            return refused_build(request, key, problem)
        if (entry := self._cache.get(key)) is not None:
            log = entry.manifest.log
            unit = _unit(request, key, self._parsed(log, all_files(request)), log, ok=True, cached=True, wall_s=0.0)
            return BuildResult(unit=unit, library=entry.library, finding=None)
        return self._failures.get(key) or self._failures.note(key, self._climb(request, key, libraries))

    def _climb(self, request: BuildRequest, key: str, libraries: KernelHeaders) -> BuildResult:
        """Run the steps in order. An error in two steps is the submission's own and final."""
        started = time.monotonic()
        run_tool = functools.partial(self._run_tool, readable=libraries.folders)
        # The submission's own include folders come first.
        include_paths = request.extra_include_paths
        request = replace(request, extra_include_paths=[*include_paths, *map(str, libraries.folders)])
        ladder = steps(request, self._architecture, self._cache_root, self._too_much)
        notes = [*_architecture_note(request, self._architecture), *ladder.notes]
        errors: list[Diagnostic] = []
        for step in ladder.steps:
            attempt = step.build(run_tool, self._timeout_s - (time.monotonic() - started))
            wall_s = time.monotonic() - started
            log = "\n".join([*notes, f"step: {step.name}", attempt.result.output])
            diagnostics = self._parsed(attempt.result.output, all_files(request))
            if attempt.library is not None:
                self._cache.put(key, attempt.library, log=log, wall_s=wall_s)
                unit = _unit(request, key, diagnostics, log, ok=True, cached=False, wall_s=wall_s)
                return BuildResult(unit=unit, library=attempt.library, finding=None)
            missing = missing_library(diagnostics, request)
            final = missing or agreed(errors, diagnostics) or undeclared(diagnostics, request)
            if attempt.result.timed_out or attempt.result.over_disk or step is ladder.steps[-1] or final:
                unit = _unit(request, key, diagnostics, log, ok=False, cached=False, wall_s=wall_s)
                failure = missing or compile_failure(request.name, attempt.result, unit, self._timeout_s)
                return BuildResult(unit=unit, library=None, finding=failure)
            notes.append(_failure_note(step, attempt, diagnostics))
            errors = diagnostics
        raise AssertionError("a build has at least one step")

    def _parsed(self, log: str, files: Sequence[SourceFile]) -> list[Diagnostic]:
        return parse(log, {file.name: file.text for file in files}, self._submission)


def _unit(
    request: BuildRequest,
    key: str,
    diagnostics: list[Diagnostic],
    log: str,
    *,
    ok: bool,
    cached: bool,
    wall_s: float,
) -> BuildUnit:
    return BuildUnit(name=request.name, key=key, ok=ok, cached=cached, wall_s=wall_s, diagnostics=diagnostics, log=log)


def _failure_note(step: CudaStep, attempt: Attempt, parsed: list[Diagnostic]) -> str:
    """Return one line on why a step was not the last."""
    first = next((f"{entry.file}:{entry.line}: {entry.message}" for entry in parsed if entry.severity == "error"), None)
    return f"note: {step.name} left: {attempt.why or first or 'the compiler says no'}"[:300]


def _architecture_note(request: BuildRequest, architecture: str) -> list[str]:
    dropped = nvcc_flags(request.extra_cuda_cflags).architectures
    return [f"note: {' '.join(dropped)[:200]} replaced by sm_{architecture}, the GPU at hand"] if dropped else []


def _refused(flags: NvccFlags) -> Finding | None:
    if not flags.refused:
        return None
    return finding(Code.FLAG_REFUSED, f"nvcc flags not allowed: {' '.join(flags.refused)[:300]}")


def _key(request: BuildRequest, files: list[SourceFile], architecture: str, libraries: KernelHeaders) -> str:
    """Hash everything that determines the library's contents: the request, the tools, the split procedure."""
    inputs = ["cuda", architecture, [(file.name, file.text) for file in files], request, *libraries.states]
    return hashlib.sha256(
        msgspec.json.encode([*inputs, sorted(nvcc.fingerprint().items()), builder_sha256()])
    ).hexdigest()
