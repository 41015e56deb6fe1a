"""Build of inline CUDA for the emulator: steps of the front end, each compiled by g++ in the sandbox.

g++ compiles kernels as host functions, so a kernel could call any host function. `nvcc -ptx` on the kernels alone takes
half a second. An nvcc error counts only as a violation of a device rule. Any other error may result from the omitted
code, which includes everything that refers to PyTorch. Messages are told in the submission's words.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.binding_errors import undeclared
from evaluator.compile.builder import (
    CPP_SUFFIXES,
    MOST_BUILT_BYTES,
    SUBMISSION_LIMITS,
    Builder,
    BuildResult,
    RunTool,
    read_library,
    refused_build,
    work_folder,
    write_files,
)
from evaluator.compile.own_libraries import PRECOMPILED, binding_support, precompiled_headers
from evaluator.cuda_source.source_files import all_files, source_files
from evaluator.emulator.frontend.build_ladder import SUPPORT, Step, StepName, build_steps, separate_units_may_help
from evaluator.emulator.frontend.front_end import FileMistake, FrontEnd
from evaluator.emulator.frontend.rewriter import OWN_EMU
from evaluator.emulator.frontend.unsupported_features import lacking, suggestion
from evaluator.emulator.headers import header_declaring
from evaluator.errors import ToolchainMissing
from evaluator.findings import Code, finding
from evaluator.protocol.frames import BuildRequest, SourceFile
from evaluator.records import Diagnostic, Finding
from evaluator.sandbox import ToolResult
from evaluator.toolchain import host_compiler, nvcc
from evaluator.toolchain.diagnostics import LineMap, parse
from evaluator.toolchain.host_compiler import language_standard
from evaluator.toolchain.nvcc_flags import words

_ARCHITECTURE = "sm_90"
"""Architecture reported by the emulator."""
_TIMEOUT_S = 60.0
_DEVICE_RULE = re.compile(
    r"calling a (?:constexpr )?__host__ function|is undefined in device code|device code does not support"
    r"|a __global__ function (?:must have|cannot have|call must be)|annotation on lambda requires|extended lambda"
    r"|expression must have a constant value|thread_local specifier for variable declarations in device code"
)
_PRELUDE = "".join(
    f"#include <{name}>\n"
    for name in ("algorithm", "cfloat", "climits", "cmath", "cstdint", "cstdio", "limits", "type_traits", "utility")
)
"""Standard headers normally included by the omitted PyTorch headers."""
_OWN_FLAG = re.compile(r"-D.+|--?(?:expt-)?(?:extended-lambda|relaxed-constexpr)")


def nvcc_version() -> str | None:
    """Return nvcc's version; None without nvcc."""
    try:
        return nvcc.nvcc().version
    except ToolchainMissing:
        return None


def device_errors(
    files: Sequence[SourceFile],
    kernels: Mapping[str, str],
    flags: Sequence[str],
    run_tool: RunTool,
    submission: str,
    timeout_s: float = _TIMEOUT_S,
) -> list[Diagnostic]:
    """Return nvcc's errors about the kernels in `files`; empty without nvcc, or in doubtful cases.

    `kernels` maps file names to the device parts that compile without PyTorch (`cuda_source/edits.py`).
    `flags` are the submission's nvcc flags; only macros and language extensions are used. `timeout_s` limits each file.
    """
    texts = {file.name: file.text for file in files}
    if not kernels or nvcc_version() is None:
        return []
    kernel_errors: list[Diagnostic] = []
    for name, text in kernels.items():
        with work_folder() as work:
            host_files = {file_name: texts[file_name] for file_name in texts.keys() - kernels.keys()}
            write_files(work, {**host_files, name: f'{_PRELUDE}#line 1 "{name}"\n{text}'})
            argv = [nvcc.nvcc().path, *_flags(words(flags)), name, "-o", "kernels.ptx"]
            result = run_tool(argv, work=work, limits=SUBMISSION_LIMITS, timeout_s=min(timeout_s, _TIMEOUT_S))
        if result.exit_code is not None and not result.ok:
            errors = [entry for entry in parse(result.output, texts, submission) if entry.severity == "error"]
            # One error from omitted code makes all errors doubtful.
            if all(entry.file == name and _DEVICE_RULE.search(entry.message) for entry in errors):
                kernel_errors += errors
    return kernel_errors


def _flags(cuda_cflags: Sequence[str]) -> list[str]:
    return [
        "-ptx",
        f"-arch={_ARCHITECTURE}",
        f"-std={language_standard()}",
        *nvcc.PYTORCH_NVCC_FLAGS,
        *(flag for flag in cuda_cflags if _OWN_FLAG.fullmatch(flag)),
    ]


_QUOTED = r"(?<=[\u2018'])%s(?=[\u2019'])"
_LAUNCH = re.compile(r"(?P<first>[A-Za-z_]\w*)(?:::\w+|<[^<>;{}]{0,200}>)*\s*<<<")
_SUGGESTION = re.compile(r"; did you mean .*")
_MOST_LINES = 20
_CONFIG = re.compile(r"[\u2018']emu::Config::Config\((?P<types>.*)\)[\u2019']")
_NOT_CONSTANT = re.compile(r"constant[ -]expression|call to .shared<|array bound|variable[ -]")
_CONSTANT_EXTENT = (
    "the extent of a __shared__ array must be a constant; for a size given by the launch, write "
    "extern __shared__ float name[]; and pass the bytes as third argument of <<<>>>"
)
_DEVICE_NAMES = {"is_cpu": ("is_cuda",), "kCPU": ("kCUDA",), "CPU": ("CUDA",), "is_meta": ("is_cpu", "get_device")}
"""Words of rewritten code, and the words replaced by `emulator/frontend/rewriter.py`."""


def in_original_words(error: Diagnostic, text: str) -> Diagnostic:
    """Return an error in the file `text`, without words that only the rewritten text has, and with the name meant."""
    message = error.message
    if (config := _CONFIG.search(message)) is not None:
        message = f"no launch <<<grid, block, bytes, stream>>> takes arguments of the types ({config['types']})"
    if re.search(_QUOTED % "emu", message) is not None:
        following = "\n".join(text.split("\n")[max(error.line - 1, 0) :][:_MOST_LINES])
        launch = _LAUNCH.search(following)
        message = re.sub(_QUOTED % "emu", "<<<" if launch is None else launch["first"], message)
    if "__shared__" in error.source_line and _NOT_CONSTANT.search(message) is not None:
        message = _CONSTANT_EXTENT
    for word, originals in _DEVICE_NAMES.items():
        original = next((candidate for candidate in originals if candidate in error.source_line), None)
        if original is not None and not re.search(rf"\b{word}\b", error.source_line):
            message = re.sub(_QUOTED % word, original, message)
    if (suggested := suggestion(message)) is not None:
        message = f"{_SUGGESTION.sub('', message)}; did you mean \u2018{suggested}\u2019?"
    message = message.replace(OWN_EMU, "emu")
    return error if message == error.message else replace(error, message=message)


_MOST_FRONTS = 8
"""Remembered results of the front end, each limited like a frame."""


class EmulatedBuilder(Builder):
    """Builder of inline CUDA for the emulator: fast steps first, then increasingly faithful steps."""

    suffixes = CPP_SUFFIXES | {".cu", ".cuh", ".h", ".hpp", ".hh", ".inl", ".inc"}

    def __init__(
        self,
        run_tool: RunTool,
        cache: BuildCache,
        submission: str,
        timeout_s: float,
        read: Callable[[BuildRequest], FrontEnd | str],
    ) -> None:
        """See `Builder`. `read` runs the front end in another process, or returns why the sources are too complex."""
        super().__init__(run_tool, cache, submission, timeout_s)
        self._read = read
        self._fronts: dict[str, FrontEnd] = {}

    def _inputs(self, request: BuildRequest) -> list[object]:
        return [request, nvcc_version(), sorted(host_compiler.fingerprint().items())]

    def _made(self, request: BuildRequest, key: str) -> BuildResult:
        """Read the sources first: an unsupported construct results in a finding, and the kernels' names are known."""
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
        made = super()._made(request, key)
        if made.library is None:
            return made
        return replace(made, unit=replace(made.unit, diagnostics=[]), kernels=front.kernels)

    def _front(self, request: BuildRequest, key: str) -> FrontEnd | str:
        """Return the front end's result. Each runner of the submission repeats the requests; a few are remembered."""
        if (remembered := self._fronts.get(key)) is not None:
            return remembered
        front = self._read(request)
        if isinstance(front, FrontEnd):
            if len(self._fronts) == _MOST_FRONTS:
                del self._fronts[next(iter(self._fronts))]
            self._fronts[key] = front
        return front

    def _compile(self, request: BuildRequest, key: str) -> BuildResult:
        """Run the steps in order. An error with full headers is final; see `_is_tried_again` for light headers.

        nvcc, if installed, looks for errors about the kernels meanwhile.
        """
        front, files = self._front(request, key), all_files(request)
        if isinstance(front, str):
            raise TypeError("sources that were read can be read again")
        with ThreadPoolExecutor(max_workers=1) as pool:
            flags, parts = request.extra_cuda_cflags, {file.name: file.text for file in front.device}
            device = pool.submit(device_errors, files, parts, flags, self._run_tool, self._submission, self._timeout_s)
            return self._climb(request, front, key, device)

    def _climb(self, request: BuildRequest, front: FrontEnd, key: str, device: Future[list[Diagnostic]]) -> BuildResult:
        texts = {file.name: file.text for file in all_files(request)}
        wall_s = 0.0
        for step in build_steps(request, front):
            if (compiled := self._run(step, max(self._timeout_s - wall_s, 1.0))) is None:
                continue
            result, library = compiled
            wall_s += result.wall_s
            if library is not None:
                if errors := device.result():
                    return self._failed(request, key, result, result.output, errors, wall_s)
                return self._built(request, key, library, result.output, [], wall_s)
            errors = [entry for entry in self._parsed(request, result.output) if entry.severity == "error"]
            errors = [in_original_words(entry, texts.get(entry.file, "")) for entry in errors]
            if not (result.timed_out or result.over_disk) and _is_tried_again(step, errors, request):
                continue
            explained = _missing_include(request, errors) or _missing_name(errors)
            return self._failed(request, key, result, result.output, errors, wall_s, explained)
        raise AssertionError("the last step is always final")

    def _run(self, step: Step, timeout_s: float) -> tuple[ToolResult, bytes | None] | None:
        """Run a step; None if the support of bindings does not compile."""
        linked: dict[str, Path] = {}
        if step.name is StepName.BOUND:
            if (support := binding_support(self._run_tool, self._cache)) is None:
                return None
            linked[SUPPORT] = support
        headers_of = StepName.FULL if step.name is StepName.SPLIT else step.name
        if step.uses_torch and (header := precompiled_headers(self._run_tool, self._cache, headers_of)) is not None:
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
    """Return whether a later step may compile what `step` does not.

    Full headers declare no function that the submission binds, and add nothing to a text without PyTorch.
    """
    if step.name is StepName.SPLIT or undeclared(errors, request):
        return False
    if step.name is StepName.FULL or not step.uses_torch:
        return any(separate_units_may_help(error, source_files(request)) for error in errors)
    return True


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
