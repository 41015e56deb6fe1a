"""Build of one extension: cache lookup, or a sandboxed compile without any of the submission's Python code.

Failed builds are cached too: a submission requests the same build in every stage, and users resubmit the same file.
"""

import contextlib
import functools
import hashlib
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path, PurePath
from typing import ClassVar, Protocol

import msgspec
from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.build_memory import compilers_at_once
from evaluator.cuda_source.source_files import all_files, source_files
from evaluator.errors import JudgeFailed
from evaluator.findings import Code, finding
from evaluator.protocol.frames import BuildRequest
from evaluator.protocol.submission_files import HEADER_SUFFIXES, bad_path, clashing_path
from evaluator.records import BuildUnit, Diagnostic, Finding, Record
from evaluator.sandbox import Limits, ToolResult
from evaluator.sandbox.scratch_folders import entered
from evaluator.toolchain import host_compiler
from evaluator.toolchain.diagnostics import parse
from evaluator.toolchain.nvcc_flags import refused_compile_flags, refused_link_flags, words
from evaluator.version import __version__


class BuildResult(Record, frozen=True):
    """Result of a build request. `library` is None if `unit.ok` is false.

    `kernels` are the kernels defined by the sources, where the library itself has no kernel names (on `emulated`).
    """

    unit: BuildUnit
    library: bytes | None
    finding: Finding | None
    kernels: list[str] | None = None


_FINAL = frozenset({Code.COMPILE_FAILED.value, Code.NOT_EMULATED.value})
_NOT_THE_SOURCES = re.compile(
    r"no space left|out of memory|cannot allocate|memory exhausted|killed|resource temporarily unavailable"
    r"|too many open files|input/output error|internal compiler error|segmentation fault|disk quota",
    re.IGNORECASE,
)
"""Messages of a compiler that lacked resources or crashed. A retry may succeed."""


class FailedBuilds:
    """Failed builds of one submission. The persistent cache holds only failures caused by the submission itself."""

    def __init__(self, cache: BuildCache, submission: str) -> None:
        """Store failures in `cache`, next to the libraries. Keys include `submission`, whose lines messages name."""
        self._cache = cache.failures
        self._submission = submission
        self._failures: dict[str, BuildResult] = {}

    def get(self, key: str) -> BuildResult | None:
        """Return the failed build with the given key."""
        if (remembered := self._failures.get(key)) is not None:
            return remembered
        if (entry := self._cache.get(self._entry(key))) is None:
            return None
        try:
            built = msgspec.json.decode(entry.library, type=BuildResult)
        except msgspec.DecodeError:
            return None
        return replace(built, unit=replace(built.unit, cached=True, wall_s=0.0))

    def note(self, key: str, built: BuildResult) -> BuildResult:
        """Store a failed build; return any build unchanged."""
        if built.library is None:
            self._failures[key] = built
            if _is_final(built):
                content = msgspec.json.encode(built)
                self._cache.put(self._entry(key), content, log="", wall_s=built.unit.wall_s)
        return built

    def _entry(self, key: str) -> str:
        return hashlib.sha256(msgspec.json.encode([key, self._submission, __version__])).hexdigest()


def _is_final(built: BuildResult) -> bool:
    """Return whether only the sources caused the failure: the compiler reported errors and lacked no resource."""
    if built.finding is None or built.finding.code not in _FINAL or built.finding.details.get("killed"):
        return False
    errors = any(entry.severity == "error" for entry in built.unit.diagnostics)
    return errors and _NOT_THE_SOURCES.search(built.unit.log) is None


_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDERS = ("compile", "cuda_source", "emulator", "toolchain")


def builder_sources() -> list[Path]:
    """List the files of all builders, of their readers of C++, and of the emulator: Python, headers and scripts."""
    paths = (path for folder in _FOLDERS for path in (_PACKAGE / folder).rglob("*"))
    return sorted(path for path in paths if path.is_file() and path.suffix != ".pyc")


@functools.cache
def builder_sha256() -> str:
    """Hash the names and contents of `builder_sources`."""
    digest = hashlib.sha256()
    for path in builder_sources():
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,220}\Z")
CPP_SUFFIXES = {".cpp", ".cc", ".cxx", ".c++"}
_MAX_SOURCE_BYTES = 4 << 20
_MAX_LIBRARY_BYTES = 1 << 30
MOST_BUILT_BYTES = 64 << 20
"""Limit for a submission's library. The judge holds two copies: the read file and the sealed memory for the runner."""
_MAX_LOG = 64 << 10
# Messages of g++, its linker driver and nvcc about a killed subprocess.
_KILLED = re.compile(r"Killed signal terminated|terminated with signal 9|died due to signal 9")

# Measured: compiling torch/extension.h takes 1.3 GiB, nvcc 3.1 GB. The limits apply to each compiler process.
LIMITS = Limits(
    memory_bytes=12 << 30, held_bytes=64 << 30, file_bytes=1 << 30, processes=256, kept_output_bytes=_MAX_LOG // 2
)
# A debug build of torch/extension.h writes 0.2 GiB of files. Builds of our own code may write more.
SUBMISSION_LIMITS = replace(LIMITS, file_bytes=512 << 20, work_bytes=1 << 30)
_FILE_TOO_LARGE = re.compile(r"File size limit exceeded|File too large|terminated with signal 25")


class RunTool(Protocol):
    """Runs a program in the sandbox, with `work` as its folder."""

    def __call__(
        self, argv: Sequence[str], *, work: Path, timeout_s: float, limits: Limits, readable: Sequence[Path] = ()
    ) -> ToolResult:
        """Run `argv` to completion or until `timeout_s`. The program can also read the folders `readable`."""


class Builder(ABC):
    """Builder of one submission's extensions: a refusal, a library or a failure of the caches, or else a compile."""

    suffixes: ClassVar[AbstractSet[str]]
    """Suffixes of the device's source files."""

    def __init__(self, run_tool: RunTool, cache: BuildCache, submission: str, timeout_s: float) -> None:
        """Compile through `run_tool`, store libraries in `cache`, and map messages to lines of `submission`."""
        self._run_tool = run_tool
        self._cache = cache
        self._submission = submission
        self._timeout_s = timeout_s
        self._failures = FailedBuilds(cache, submission)

    def build(self, request: BuildRequest) -> BuildResult:
        """Build a requested extension; a refused request results in a finding."""
        key = self.key(request)
        problem = _misnamed(request) or self._not_for_device(request) or _refusal(request, self.suffixes)
        return self._made(request, key) if problem is None else refused_build(request, key, problem)

    def key(self, request: BuildRequest) -> str:
        """Hash everything that determines the library's contents: the request, the tools, Warpgrade's builders."""
        files = [(file.name, file.text) for file in source_files(request)]
        inputs = [type(self).__name__, files, *self._inputs(request), builder_sha256()]
        return hashlib.sha256(msgspec.json.encode(inputs)).hexdigest()

    @abstractmethod
    def _inputs(self, request: BuildRequest) -> list[object]:
        """Return the request as far as the device uses it, and the versions of the tools."""

    def _not_for_device(self, request: BuildRequest) -> Finding | None:  # noqa: ARG002 - for subclasses
        return None

    @abstractmethod
    def _compile(self, request: BuildRequest, key: str) -> BuildResult:
        """Compile an extension that no cache has."""

    def _made(self, request: BuildRequest, key: str) -> BuildResult:
        if (entry := self._cache.get(key)) is not None:
            log = entry.manifest.log
            unit = _unit(request, key, self._parsed(request, log), log, ok=True, cached=True, wall_s=0.0)
            return BuildResult(unit=unit, library=entry.library, finding=None)
        return self._failures.get(key) or self._failures.note(key, self._compile(request, key))

    def _parsed(self, request: BuildRequest, log: str) -> list[Diagnostic]:
        return parse(log, {file.name: file.text for file in all_files(request)}, self._submission)

    def _built(
        self, request: BuildRequest, key: str, library: bytes, log: str, diagnostics: list[Diagnostic], wall_s: float
    ) -> BuildResult:
        """Store a library, and return the result."""
        self._cache.put(key, library, log=log, wall_s=wall_s)
        unit = _unit(request, key, diagnostics, log, ok=True, cached=False, wall_s=wall_s)
        return BuildResult(unit=unit, library=library, finding=None)

    def _failed(
        self,
        request: BuildRequest,
        key: str,
        result: ToolResult,
        log: str,
        diagnostics: list[Diagnostic],
        wall_s: float,
        explained: Finding | None = None,
    ) -> BuildResult:
        """Return a failure, `explained` or by its first error."""
        unit = _unit(request, key, diagnostics, log, ok=False, cached=False, wall_s=wall_s)
        failure = explained or compile_failure(request.name, result, unit, self._timeout_s)
        return BuildResult(unit=unit, library=None, finding=failure)


def _unit(
    request: BuildRequest, key: str, diagnostics: list[Diagnostic], log: str, *, ok: bool, cached: bool, wall_s: float
) -> BuildUnit:
    return BuildUnit(name=request.name, key=key, ok=ok, cached=cached, wall_s=wall_s, diagnostics=diagnostics, log=log)


class CpuBuilder(Builder):
    """Builder of C++ for the CPU."""

    suffixes = CPP_SUFFIXES

    def _inputs(self, request: BuildRequest) -> list[object]:
        return [replace(request, extra_cuda_cflags=[]), sorted(host_compiler.fingerprint().items())]

    def _not_for_device(self, request: BuildRequest) -> Finding | None:
        if not request.with_cuda and not request.cuda_sources:
            return None
        return finding(Code.NOT_ON_THIS_DEVICE, f"{request.name} is inline CUDA; --device cpu runs inline C++ only")

    def _compile(self, request: BuildRequest, key: str) -> BuildResult:
        with work_folder() as work:
            write_files(work, {file.name: file.text for file in all_files(request)})
            names = [file.name for file in source_files(request)]
            text = host_compiler.ninja_text(request.name, names, _compile_words(request), words(request.extra_ldflags))
            (work / "build.ninja").write_text(text, encoding="utf-8")
            argv = [host_compiler.ninja(), "-f", "build.ninja", "-j", str(compilers_at_once())]
            result = self._run_tool(argv, work=work, limits=SUBMISSION_LIMITS, timeout_s=self._timeout_s)
            is_whole = result.ok and not result.timed_out
            library = read_library(work / f"{request.name}.so", MOST_BUILT_BYTES) if is_whole else None
        diagnostics = self._parsed(request, result.output)
        if library is None:
            return self._failed(request, key, result, result.output, diagnostics, result.wall_s)
        return self._built(request, key, library, result.output, diagnostics, result.wall_s)


def compile_failure(name: str, result: ToolResult, unit: BuildUnit, timeout_s: float) -> Finding:
    """Explain a failed compile by the first error, with the submission's line if known."""
    if result.timed_out:
        return finding(
            Code.COMPILER_TIMED_OUT, f"the compiler of {name} was stopped: its limit is {timeout_s:g} s of CPU time"
        )
    if (too_large := _too_large(name, result)) is not None:
        return too_large
    errors = [entry for entry in unit.diagnostics if entry.severity == "error"]
    killed = result.signal == "SIGKILL" or _KILLED.search(result.output) is not None
    if not errors:
        tail = unit.log.strip().splitlines()[-1:] or [f"the compiler ended with {result.signal or result.exit_code}"]
        return finding(Code.COMPILE_FAILED, f"{name} does not compile: {tail[0][:300]}", killed=killed)
    first = errors[0]
    return finding(
        Code.COMPILE_FAILED,
        f"{name} does not compile: {first.message}",
        line=first.submission_line,
        errors=len(errors),
        killed=killed,
    )


def _too_large(name: str, result: ToolResult) -> Finding | None:
    """Return a finding if the compile exceeded its limits on written files."""
    if result.over_disk or _FILE_TOO_LARGE.search(result.output) is not None:
        limits = SUBMISSION_LIMITS
        most = f"{limits.work_bytes >> 20} MiB in total, {limits.file_bytes >> 20} MiB for one file"
        return finding(Code.BUILD_TOO_LARGE, f"the compiler of {name} exceeded the disk limit ({most})")
    return None


def _misnamed(request: BuildRequest) -> Finding | None:
    """Refuse an extension name unusable as a file and module name."""
    if _NAME.match(request.name):
        return None
    return finding(Code.BUILD_REQUEST_REFUSED, f"the extension's name {request.name[:100]!r} is not a C identifier")


def _refusal(request: BuildRequest, suffixes: AbstractSet[str]) -> Finding | None:
    """Return why a request is refused before compiling. `suffixes` are the device's source file suffixes."""
    flags = refused_compile_flags(_compile_words(request)) + refused_link_flags(words(request.extra_ldflags))
    if flags:
        return finding(Code.FLAG_REFUSED, f"{request.name}: flags not allowed: {' '.join(flags)[:300]}")
    names = [file.name for file in source_files(request)]
    every = [*names, *(header.name for header in request.headers)]
    wrong = [name for name in names if PurePath(name).suffix not in suffixes]
    wrong += [header.name for header in request.headers if PurePath(header.name).suffix not in HEADER_SUFFIXES]
    wrong += [name for name in every if bad_path(name) is not None]
    if wrong or clashing_path(every) is not None or not names:
        return finding(
            Code.BUILD_REQUEST_REFUSED, f"{request.name}: unsupported source files: {str(wrong or names)[:300]}"
        )
    if sum(len(file.text.encode()) for file in [*source_files(request), *request.headers]) > _MAX_SOURCE_BYTES:
        return finding(Code.BUILD_REQUEST_REFUSED, f"{request.name}: the sources exceed {_MAX_SOURCE_BYTES >> 20} MiB")
    return None


def _compile_words(request: BuildRequest) -> list[str]:
    return [*words(request.extra_cflags), *(f"-I{path}" for path in request.extra_include_paths if path)]


def write_files(work: Path, texts: Mapping[str, str]) -> None:
    """Write files by path below a compiler's folder."""
    for name, text in texts.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def refused_build(request: BuildRequest, key: str, problem: Finding) -> BuildResult:
    """Record a refused request."""
    unit = BuildUnit(
        name=request.name[:200], key=key, ok=False, cached=False, wall_s=0.0, diagnostics=[], log=problem.message
    )
    return BuildResult(unit=unit, library=None, finding=problem)


@contextlib.contextmanager
def work_folder() -> Iterator[Path]:
    """Create a compiler's folder. The sandbox user may traverse the parent folder but not list it.

    Raises JudgeFailed if the folder cannot be created or written: a full disk is not the submission's fault.
    """
    try:
        with contextlib.ExitStack() as stack:
            folder = entered("build", stack)
            folder.path.chmod(0o711)
            work = folder.path / "work"
            work.mkdir()
            yield work
    except OSError as error:
        raise JudgeFailed(f"cannot create a folder for the compiler: {error}", hint="free space in $TMPDIR") from error


def read_library(path: Path, most_bytes: int = _MAX_LIBRARY_BYTES) -> bytes | None:
    """Read the linker's output, up to `most_bytes`.

    The sandbox controls the folder, so links and special files are refused.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > most_bytes:
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read()
