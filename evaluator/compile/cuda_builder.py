"""Build of inline CUDA for the available GPU, in the sandbox: fast steps first, PyTorch's own build last.

*split* compiles kernels without PyTorch's headers, and the host code with a precompiled header. *light* compiles each
file with a few light headers instead of PyTorch's heaviest headers. *plain* is `load_inline`. After a failed step the
next step runs, until two steps agree on an error of the submission. All three steps produce the same machine code.

Include folders of header libraries (CUTLASS, ThunderKittens) are part of a build and of the build's key.
"""

import functools
import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.compile.binding_errors import undeclared
from evaluator.compile.builder import CPP_SUFFIXES, Builder, BuildResult, RunTool
from evaluator.compile.cuda_steps import CUDA_SUFFIXES, Attempt, CudaStep, steps
from evaluator.cuda_source.source_files import all_files
from evaluator.findings import Code, finding
from evaluator.languages.language import Language, Mentions, included_headers
from evaluator.languages.registry import HEADER_LIBRARIES, found_installation, install_command
from evaluator.paths import cache_folder
from evaluator.protocol.frames import BuildRequest
from evaluator.records import Diagnostic, Finding
from evaluator.toolchain import nvcc
from evaluator.toolchain.nvcc_flags import nvcc_flags

_NO_SUCH_FILE = re.compile(
    r"(?P<path>[\w./+-]{1,300}): No such file or directory|cannot open source file \"(?P<opened>[\w./+-]{1,300})\""
)


class KernelHeaders(NamedTuple):
    """Include folders of the header libraries in a request, and the state of the files in the folders."""

    folders: list[Path]
    states: list[str]


def kernel_headers(request: BuildRequest) -> KernelHeaders:
    """Return the installed header libraries in the sources of `request`."""
    libraries = [found_installation(language) for language in _libraries(_included(request))]
    folders = [folder for library in libraries if library is not None for folder in library.include_paths]
    return KernelHeaders(folders, [_state(folder) for folder in folders])


def missing_library(errors: Sequence[Diagnostic], request: BuildRequest) -> Finding | None:
    """Return the finding for a header of a missing library; None for any other errors.

    A header that the sources of `request` do not include, or with the name or folder of the submission's own headers,
    is the submission's error.
    """
    included = _included(request)
    for error in errors:
        match = _NO_SUCH_FILE.match(error.message) if error.severity == "error" else None
        path = None if match is None else match["path"] or match["opened"]
        if path not in included or _is_own_header(path, request):
            continue
        for language in _libraries(frozenset((path,))):
            if found_installation(language) is None:
                message = f"the header {path} of {language.title} is not installed: {install_command(language)}"
                package = language.toolchain.value
                return finding(Code.LANGUAGE_MISSING, message, line=error.submission_line, package=package)
    return None


def _included(request: BuildRequest) -> frozenset[str]:
    return frozenset().union(*(included_headers(file.text) for file in all_files(request)))


def _is_own_header(path: str, request: BuildRequest) -> bool:
    """Return whether the submission has a header of the same name, or a folder of the same name."""
    paths = [PurePosixPath(file.name) for file in all_files(request)]
    folders = {folder.name for file_path in paths for folder in file_path.parents}
    first, *below = PurePosixPath(path).parts
    return PurePosixPath(path).name in {file_path.name for file_path in paths} or (bool(below) and first in folders)


def _libraries(included: frozenset[str]) -> list[Language]:
    mentions = Mentions(frozenset(), included, has_kernel=True)
    return [language for language in HEADER_LIBRARIES if language.is_in(mentions)]


def _state(folder: Path) -> str:
    """Hash the names, sizes and modification times below a folder: reading a thousand headers takes too long."""
    digest = hashlib.sha256(str(folder).encode())
    for path, names, files in os.walk(folder):
        names.sort()
        for name in sorted(files):
            facts = os.lstat(os.path.join(path, name))  # noqa: PTH118 - a thousand files in ten milliseconds
            digest.update(f"{path}\0{name}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()


class CudaBuilder(Builder):
    """Builder of inline CUDA for one GPU architecture."""

    suffixes = CPP_SUFFIXES | CUDA_SUFFIXES

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
        """Compile for `architecture` ("90a"); see `Builder` for the other arguments.

        `too_much` returns why a text is too complex to split (see `emulator/parsing/parse_in_sandbox.py`).
        `cache_root`, by default the user's cache, holds the files made by `prepare`; without them the split step is
        skipped.
        """
        super().__init__(run_tool, cache, submission, timeout_s)
        self._too_much = too_much
        self._architecture = architecture
        self._cache_root = cache_root if cache_root is not None else cache_folder()

    def _inputs(self, request: BuildRequest) -> list[object]:
        states = kernel_headers(request).states
        return [self._architecture, request, *states, sorted(nvcc.fingerprint().items())]

    def _not_for_device(self, request: BuildRequest) -> Finding | None:
        refused = nvcc_flags(request.extra_cuda_cflags).refused
        if not refused:
            return None
        return finding(Code.FLAG_REFUSED, f"nvcc flags not allowed: {' '.join(refused)[:300]}")

    def _compile(self, request: BuildRequest, key: str) -> BuildResult:
        """Run the steps in order. An error in two steps is the submission's own and final."""
        started = time.monotonic()
        libraries = kernel_headers(request)
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
            diagnostics = self._parsed(request, attempt.result.output)
            if attempt.library is not None:
                return self._built(request, key, attempt.library, log, diagnostics, wall_s)
            missing = missing_library(diagnostics, request)
            final = missing or agreed(errors, diagnostics) or undeclared(diagnostics, request)
            if attempt.result.timed_out or attempt.result.over_disk or step is ladder.steps[-1] or final:
                return self._failed(request, key, attempt.result, log, diagnostics, wall_s, missing)
            notes.append(_failure_note(step, attempt, diagnostics))
            errors = diagnostics
        raise AssertionError("a build has at least one step")


def _failure_note(step: CudaStep, attempt: Attempt, parsed: list[Diagnostic]) -> str:
    """Return one line on why a step was not the last."""
    first = next((f"{entry.file}:{entry.line}: {entry.message}" for entry in parsed if entry.severity == "error"), None)
    return f"note: {step.name} left: {attempt.why or first or 'the compiler says no'}"[:300]


def _architecture_note(request: BuildRequest, architecture: str) -> list[str]:
    dropped = nvcc_flags(request.extra_cuda_cflags).architectures
    return [f"note: {' '.join(dropped)[:200]} replaced by sm_{architecture}, the GPU at hand"] if dropped else []


_PYTORCH = re.compile(
    r"\b(?:torch|at|c10|pybind11|py|nn)\s*::|\b(?:TORCH|AT|C10|PYBIND11)_\w+|\bTensor|\bScalar|\b[Dd]ispatch"
)
_UNKNOWN = re.compile(
    r"undefined|not declared|undeclared|no member|not a member|does not name|not a (?:class|type)"
    r"|incomplete|no suitable|no instance|no matching|no operator|cannot open|No such file|namespace|ambiguous|redefin"
    r"|overload|convert|default argument|linkage|conflicting"
)
_SPLIT_ONLY = re.compile(r"warpgrade|__cudaPushCallConfiguration")


def agreed(earlier: Sequence[Diagnostic], later: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Return the errors of `later` that `earlier` reports for the same lines, and that no light header can cause.

    Both steps see fewer PyTorch headers than the last step. An unknown name that may belong to PyTorch therefore proves
    nothing. Kernels see all CUDA headers in every step, and nvcc repeats kernel errors in the same words.
    """
    by_line = {(entry.file, entry.line): entry for entry in earlier if _is_own(entry)}
    return [
        entry
        for entry in later
        if _is_own(entry) and (match := by_line.get((entry.file, entry.line))) is not None and _same(entry, match)
    ]


def _is_own(entry: Diagnostic) -> bool:
    return entry.severity == "error" and entry.submission_line is not None and not _SPLIT_ONLY.search(entry.message)


def _same(entry: Diagnostic, other: Diagnostic) -> bool:
    if _PYTORCH.search(entry.source_line) or _PYTORCH.search(entry.message):
        return False
    return _essence(entry) == _essence(other) or not _UNKNOWN.search(f"{entry.message} {other.message}")


def _essence(entry: Diagnostic) -> str:
    return re.sub("[\u2018\u2019'\"`]", "", entry.message)
