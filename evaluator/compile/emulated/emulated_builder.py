"""Build of inline CUDA for the emulator: steps of the front end, each compiled by g++ in the sandbox."""

import hashlib
import re
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec
from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.emulated.emulator_libraries import binding_support, precompiled_headers
from evaluator.compile.emulated.nvcc_check import device_errors, nvcc_version
from evaluator.compile.emulated.original_words import in_original_words
from evaluator.compile.emulated.precompiled_headers import PRECOMPILED
from evaluator.compile.extension.build_result import BuildResult
from evaluator.compile.extension.builder import (
    CPP_SUFFIXES,
    MOST_BUILT_BYTES,
    SUBMISSION_LIMITS,
    RunTool,
    compile_failure,
    misnamed,
    read_library,
    refusal,
    refused_build,
    work_folder,
    write_files,
)
from evaluator.compile.extension.builder_sources import builder_sha256
from evaluator.compile.extension.failed_builds import FailedBuilds
from evaluator.cuda_source.source_files import all_files, source_files
from evaluator.emulator.frontend.build_ladder import SUPPORT, Step, StepName, build_steps, separate_units_may_help
from evaluator.emulator.frontend.front_end import FileMistake, FrontEnd
from evaluator.emulator.frontend.unsupported_features import lacking
from evaluator.emulator.headers import header_declaring
from evaluator.findings import Code, finding
from evaluator.protocol.frames import BuildRequest, SourceFile
from evaluator.records import BuildUnit, Diagnostic, Finding
from evaluator.sandbox import ToolResult
from evaluator.toolchain import host_compiler
from evaluator.toolchain.diagnostics import LineMap, parse

_MOST_FRONTS = 8
"""Remembered results of the front end, each limited like a frame."""
_SUFFIXES = CPP_SUFFIXES | {".cu", ".cuh", ".h", ".hpp", ".hh", ".inl", ".inc"}


class EmulatedBuilder:
    """Builder of one submission's extensions for the emulator: fast steps first, then increasingly faithful steps."""

    def __init__(
        self,
        run_tool: RunTool,
        cache: BuildCache,
        submission: str,
        timeout_s: float,
        read: Callable[[BuildRequest], FrontEnd | str],
    ) -> None:
        """Compile through `run_tool`, store libraries in `cache`, and map messages to lines of `submission`.

        `read` runs the front end in another process (see `rehearsal`), or returns why the sources are too complex.
        """
        self._run_tool = run_tool
        self._read = read
        self._cache = cache
        self._submission = submission
        self._timeout_s = timeout_s
        self._failures = FailedBuilds(cache, submission)
        self._fronts: dict[str, FrontEnd] = {}

    def build(self, request: BuildRequest) -> BuildResult:
        """Build a requested extension; an unsupported construct results in a finding."""
        files = source_files(request)
        key = _key(request, files)
        if (problem := misnamed(request) or refusal(request, files, _SUFFIXES)) is not None:
            return refused_build(request, key, problem)
        started = time.monotonic()
        files = all_files(request)
        front = self._front(request, key)
        if isinstance(front, str):
            refused = refused_build(request, key, finding(Code.NOT_EMULATED, front, construct="so much text"))
            return replace(refused, unit=replace(refused.unit, wall_s=time.monotonic() - started))
        if front.mistake is not None:
            return self._mistaken(request, key, front.mistake, files)
        if (problem := self._lacking(front, files)) is not None:
            return refused_build(request, key, problem)
        if (entry := self._cache.get(key)) is not None:
            unit = _unit(request, key, entry.manifest.log, [], ok=True, cached=True, wall_s=0.0)
            return BuildResult(unit=unit, library=entry.library, finding=None, kernels=front.kernels)
        if (failed := self._failures.get(key)) is not None:
            return failed
        with ThreadPoolExecutor(max_workers=1) as pool:
            flags = request.extra_cuda_cflags
            texts = {file.name: file.text for file in front.device}
            device = pool.submit(device_errors, files, texts, flags, self._run_tool, self._submission, self._timeout_s)
            return self._failures.note(key, self._climb(request, front, files, key, device))

    def _front(self, request: BuildRequest, key: str) -> FrontEnd | str:
        """Return the front end's result. Each runner of the submission repeats the requests; a few are remembered."""
        if (remembered := self._fronts.get(key)) is not None:
            return remembered
        front = self._read(request)
        if isinstance(front, FrontEnd) and len(self._fronts) < _MOST_FRONTS:
            self._fronts[key] = front
        return front

    def _climb(
        self,
        request: BuildRequest,
        front: FrontEnd,
        files: list[SourceFile],
        key: str,
        device: Future[list[Diagnostic]],
    ) -> BuildResult:
        """Run the steps in order. An error with light headers proves nothing; an error with full headers is final.

        `device` resolves to nvcc's errors about the kernels, empty without nvcc.
        """
        texts = {file.name: file.text for file in files}
        steps = build_steps(request, front)
        wall_s = 0.0
        for step in steps:
            if (compiled := self._compile(step, max(self._timeout_s - wall_s, 1.0))) is None:
                continue
            result, library = compiled
            wall_s += result.wall_s
            if library is not None:
                if errors := device.result():
                    unit = _unit(request, key, result.output, errors, ok=False, cached=False, wall_s=wall_s)
                    failure = compile_failure(request.name, result, unit, self._timeout_s)
                    return BuildResult(unit=unit, library=None, finding=failure)
                self._cache.put(key, library, log=result.output, wall_s=wall_s)
                unit = _unit(request, key, result.output, [], ok=True, cached=False, wall_s=wall_s)
                return BuildResult(unit=unit, library=library, finding=None, kernels=front.kernels)
            errors = [entry for entry in parse(result.output, texts, self._submission) if entry.severity == "error"]
            errors = [in_original_words(entry, texts.get(entry.file, "")) for entry in errors]
            if not (result.timed_out or result.over_disk) and _is_tried_again(step, errors, request):
                continue
            unit = _unit(request, key, result.output, errors, ok=False, cached=False, wall_s=wall_s)
            failure = (
                _missing_include(request, errors)
                or _missing_name(errors)
                or compile_failure(request.name, result, unit, self._timeout_s)
            )
            return BuildResult(unit=unit, library=None, finding=failure)
        raise AssertionError("the last step is always final")

    def _compile(self, step: Step, timeout_s: float) -> tuple[ToolResult, bytes | None] | None:
        """Run a step; None if the support of bindings does not compile."""
        linked: dict[str, Path] = {}
        if step.name is StepName.BOUND:
            if (support := binding_support(self._run_tool, self._cache)) is None:
                return None
            linked[SUPPORT] = support
        headers_of = StepName.FULL if step.name is StepName.SPLIT else step.name
        if (header := precompiled_headers(self._run_tool, self._cache, headers_of)) is not None:
            linked[PRECOMPILED[headers_of]] = header
        with work_folder() as work:
            write_files(work, step.files)
            for name, target in linked.items():
                (work / name).symlink_to(target)
            result = self._run_tool(
                step.argv,
                work=work,
                limits=SUBMISSION_LIMITS,
                timeout_s=timeout_s,
                readable=[target.parent for target in linked.values()],
            )
            return result, read_library(work / step.library, MOST_BUILT_BYTES) if result.ok else None

    def _mistaken(self, request: BuildRequest, key: str, mistake: FileMistake, files: list[SourceFile]) -> BuildResult:
        """Return the failure for a mistake that needs no compiler."""
        text = next((file.text for file in files if file.name == mistake.file), "")
        lines = LineMap(text, self._submission, mistake.file)
        error = Diagnostic(
            severity="error",
            message=mistake.message,
            file=mistake.file,
            line=mistake.line,
            column=0,
            submission_line=lines.submission_line(mistake.line),
            source_line=lines.source_line(mistake.line)[:500],
        )
        message = f"{request.name} does not compile: {mistake.message}"
        failure = finding(Code.COMPILE_FAILED, message, line=error.submission_line, next_step=mistake.next_step)
        refused = refused_build(request, key, failure)
        return replace(refused, unit=replace(refused.unit, diagnostics=[error] if mistake.file else []))

    def _lacking(self, front: FrontEnd, files: list[SourceFile]) -> Finding | None:
        if not front.lacking:
            return None
        first = front.lacking[0]
        text = next((file.text for file in files if file.name == first.file), "")
        line = LineMap(text, self._submission, first.file).submission_line(first.line)
        return finding(Code.NOT_EMULATED, f"the emulator lacks {first.construct}", line=line, construct=first.construct)


def _is_tried_again(step: Step, errors: list[Diagnostic], request: BuildRequest) -> bool:
    """Return whether a later step may compile what `step` does not."""
    if step.name is StepName.FULL:
        return any(separate_units_may_help(error, source_files(request)) for error in errors)
    return step.name is not StepName.SPLIT


def _missing_include(request: BuildRequest, errors: list[Diagnostic]) -> Finding | None:
    """Return a finding for a name of `at::cuda` without any header of PyTorch's CUDA half: nvcc lacks the name too."""
    if any(_CUDA_INCLUDE.search(file.text) for file in all_files(request)):
        return None
    for error in errors:
        used = _OF_CUDA.search(error.source_line) if lacking(error.message) is not None else None
        header = None if used is None else header_declaring(used["name"])
        if header is not None:
            message = f"{request.name} does not compile: {error.message}"
            step = f"Add to the CUDA source: #include <{header}>"
            return finding(Code.COMPILE_FAILED, message, line=error.submission_line, next_step=step)
    return None


_OF_CUDA = re.compile(r"\b(?:at|c10)::cuda::(?P<name>\w+)")
_CUDA_INCLUDE = re.compile(r"#\s*include\s*[<\"](?:ATen|c10|torch)/[\w/]*cuda")


def _missing_name(errors: list[Diagnostic]) -> Finding | None:
    """Return a finding for a CUDA name missing from the emulator's headers, which nvcc may well know."""
    for error in errors:
        if (name := lacking(error.message)) is not None:
            return finding(Code.NOT_EMULATED, f"the emulator lacks {name}", line=error.submission_line, construct=name)
    return None


def _unit(
    request: BuildRequest,
    key: str,
    log: str,
    diagnostics: list[Diagnostic],
    *,
    ok: bool,
    cached: bool,
    wall_s: float,
) -> BuildUnit:
    return BuildUnit(name=request.name, key=key, ok=ok, cached=cached, wall_s=wall_s, diagnostics=diagnostics, log=log)


def _key(request: BuildRequest, files: list[SourceFile]) -> str:
    """Hash everything that determines the library's contents: the request, the tools, the emulator."""
    inputs = ["emulated", [(file.name, file.text) for file in files], request, nvcc_version(), builder_sha256()]
    return hashlib.sha256(msgspec.json.encode([*inputs, sorted(host_compiler.fingerprint().items())])).hexdigest()
