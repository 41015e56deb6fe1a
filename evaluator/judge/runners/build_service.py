"""Build service of one runner: answers build requests, and records builds and failures.

All builds of one grade share a budget, across all runners of the submission. Two services build otherwise: with emptied
kernels, for a runner that measures how much an answer depends on the kernels, and with a report of each kernel's
resource usage, for a profiled runner.
"""

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.compile.binary_files import ImportedSymbols, imported_symbols, kernel_code, without
from evaluator.compile.binding_errors import explained
from evaluator.compile.builder import BuildResult
from evaluator.compile.device_builders import ExtensionBuilder
from evaluator.compile.disassembly import VERBOSE, kernel_resources
from evaluator.cuda_source.source_files import all_files
from evaluator.cuda_source.symbols import Kernels, kernels_in_library, plain_name
from evaluator.devices.memory import sealed_file
from evaluator.findings import Code, finding
from evaluator.protocol.frames import BuildReply, BuildRequest, SourceFile
from evaluator.protocol.frames.oversize import oversized_request, text_bytes
from evaluator.records import BuildUnit, Diagnostic, Finding, KernelResources
from evaluator.toolchain.diagnostics import missing_return

MOST_REQUESTS = 512
"""A submission may have 64 extensions, requested again by each runner: to load, check, time and profile."""
MOST_TEXT_BYTES = 64 << 20
"""A submission is limited to 1 MiB, sent by at most eight runners."""


class BuildBudget:
    """Counts build requests, the size of their sources, and the time to serve them, compilation included.

    `waited_s` is the submission's waiting time, less than the build time if builds were started speculatively.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing used. `limit_s` limits the sum over all requests."""
        self._limit_s = limit_s
        self._clock = clock
        self._requests = 0
        self._text_bytes = 0
        self.waited_s = 0.0

    def admit(self, text_bytes: int) -> Finding | None:
        """Count a request. Return None to admit the request, else the reason for refusing."""
        self._requests += 1
        self._text_bytes += text_bytes
        if self._requests > MOST_REQUESTS:
            return finding(
                Code.TOO_MANY_BUILDS, f"the submission asked for more than {MOST_REQUESTS} builds in one grade"
            )
        if self._text_bytes > MOST_TEXT_BYTES:
            message = f"the submission sent more than {MOST_TEXT_BYTES >> 20} MiB of sources in one grade"
            return finding(Code.TOO_MANY_BUILDS, message)
        if self.waited_s >= self._limit_s:
            message = f"the builds of this grade took {self.waited_s:.0f} s; the judge refuses further builds"
            return finding(Code.COMPILER_TIMED_OUT, message)
        return None

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Add the duration of a block to `waited_s`."""
        started = self._clock()
        try:
            yield
        finally:
            self.waited_s += self._clock() - started


_MOST_KEPT_BYTES = 16 << 20
"""Limit on the sources kept for line numbers in messages. A submission has 1 MiB."""
_MOST_LOG = 2 << 20
_MOST_DIAGNOSTICS = 400
"""Limits of a card for all builds. Beyond the limits, only the beginning of each log and diagnostic list is kept."""
_SHORT_LOG, _FEW_DIAGNOSTICS = 2000, 3


class BuildService:
    """Serves a runner's build requests with a device's builder. Refused requests leave no record but the failure."""

    def __init__(
        self,
        builder: ExtensionBuilder,
        build_budget: BuildBudget,
        submission: str = "",
        on_library: Callable[[bytes], None] | None = None,
    ) -> None:
        """Start with nothing built. `build_budget` is shared by all builds of the grade.

        Records: `texts` maps file names to compiled sources, `built_from` lists the source files, `device_code` the
        kernels and `imports` the imported functions of each library, `missing_return` the compiler's first warning
        about a function that may end without its value. `waited_s` is the runner's waiting time. Failures
        name lines of `submission`. `on_library` receives each library.
        """
        self._builder = builder
        self._build_budget = build_budget
        self._submission = submission
        self._on_library = on_library
        self._log_left = _MOST_LOG
        self._diagnostics_left = _MOST_DIAGNOSTICS
        self._kept_bytes = 0
        self.units: list[BuildUnit] = []
        self.failures: list[Finding] = []
        self.texts: dict[str, str] = {}
        self.built_from: list[SourceFile] = []
        self.device_code: list[Kernels] = []
        self.imports: list[ImportedSymbols] = []
        self.missing_return: Diagnostic | None = None
        self.waited_s = 0.0

    def serve(self, request: BuildRequest) -> tuple[BuildReply, int | None]:
        """Build an extension. Return the reply and a descriptor of the library, to be closed by the caller."""
        if (refusal := self._build_budget.admit(text_bytes(request))) is not None:
            if refusal.code not in {failure.code for failure in self.failures}:
                self.failures.append(refusal)
            return BuildReply(ok=False, log=refusal.message), None
        if (beyond := oversized_request(request)) is not None:
            refused = finding(Code.BUILD_REQUEST_REFUSED, f"{request.name[:200]}: {beyond}")
            self.failures.append(refused)
            return BuildReply(ok=False, log=refused.message), None
        before_s = self._build_budget.waited_s
        try:
            with self._build_budget.serving():
                return self._serve(request)
        finally:
            self.waited_s += self._build_budget.waited_s - before_s

    def _serve(self, request: BuildRequest) -> tuple[BuildReply, int | None]:
        built = self._builder.build(request)
        self.units.append(self._shortened(built.unit))
        if built.library is None:
            message = ""
            if built.finding is not None:
                failure = explained(built.finding, request, built.unit.diagnostics, self._submission)
                self.failures.append(failure)
                message = failure.message
            return BuildReply(ok=False, log=f"{message}\n{built.unit.log}"), None
        self._keep(all_files(request))
        self.missing_return = self.missing_return or missing_return(built.unit.log, self.texts, self._submission)
        self.device_code.append(_kernels(built, built.library))
        self.imports.append(imported_symbols(built.library))
        if self._on_library is not None:
            self._on_library(built.library)
        return BuildReply(ok=True, log=built.unit.log), sealed_file(built.library)

    def _keep(self, files: list[SourceFile]) -> None:
        """Record sources up to the size limit. Messages about an unrecorded file name no line."""
        self._kept_bytes += sum(len(file.text.encode()) for file in files)
        if self._kept_bytes <= _MOST_KEPT_BYTES:
            self.texts |= {file.name: file.text for file in files}
            self.built_from += files

    def _shortened(self, unit: BuildUnit) -> BuildUnit:
        """Return a build record cut to the remaining space of the card."""
        if len(unit.log) > self._log_left:
            unit = replace(unit, log=f"{unit.log[:_SHORT_LOG]}\n[{len(unit.log) - _SHORT_LOG} more characters]")
        if len(unit.diagnostics) > self._diagnostics_left:
            unit = replace(unit, diagnostics=unit.diagnostics[:_FEW_DIAGNOSTICS])
        self._log_left = max(self._log_left - len(unit.log), 0)
        self._diagnostics_left = max(self._diagnostics_left - len(unit.diagnostics), 0)
        return unit


def _kernels(built: BuildResult, library: bytes) -> Kernels:
    """Return the kernels of a library. On `emulated`, a binary does not distinguish kernels from other functions."""
    if built.kernels is None:
        return kernels_in_library(library)
    return Kernels(device_code=bool(built.kernels), names=built.kernels)


class EmptyKernelService(BuildService):
    """Serves the same builds as in the grade, with kernels patched to exit immediately.

    `left_out` is True once a kernel was emptied. Compressed device code stays unchanged, and then tests nothing.
    """

    def __init__(
        self, builder: ExtensionBuilder, build_budget: BuildBudget, kernels: Collection[str] | None = None
    ) -> None:
        """Empty all kernels, or those with a plain name in `kernels`."""
        super().__init__(builder, build_budget)
        self.kernels = kernels
        self.left_out = False

    def serve(self, request: BuildRequest) -> tuple[BuildReply, int | None]:
        """Build the requested extension like `BuildService`, then empty the kernels of the library."""
        reply, descriptor = super().serve(request)
        if descriptor is None:
            return reply, None
        library = _content(descriptor)
        names = [
            code.name for code in kernel_code(library) if self.kernels is None or plain_name(code.name) in self.kernels
        ]
        changed = without(library, names)
        if changed is None:
            return reply, descriptor
        os.close(descriptor)
        self.left_out = True
        return reply, sealed_file(changed)


class Served(NamedTuple):
    """A build request as sent by the runner, and its answer; `library` is None after a failed build."""

    request: BuildRequest
    reply: BuildReply
    library: bytes | None


class ResourceUsageService(BuildService):
    """Serves CUDA builds with verbose ptxas: the same machine code, under a separate cache key.

    `served` records all answers, for a process without access to a build service.
    """

    def __init__(self, builder: ExtensionBuilder, build_budget: BuildBudget) -> None:
        """Start with nothing built; see `BuildService`."""
        super().__init__(builder, build_budget)
        self.served: list[Served] = []

    def serve(self, request: BuildRequest) -> tuple[BuildReply, int | None]:
        """Build the requested extension like `BuildService`, with verbose ptxas for CUDA."""
        loud = replace(request, extra_cuda_cflags=[*request.extra_cuda_cflags, VERBOSE])
        reply, descriptor = super().serve(loud if request.with_cuda else request)
        self.served.append(Served(request, reply, None if descriptor is None else _content(descriptor)))
        return reply, descriptor

    @property
    def resources(self) -> list[KernelResources]:
        """Resource usage of all built kernels."""
        return [kernel for unit in self.units for kernel in kernel_resources(unit.log)]


def _content(descriptor: int) -> bytes:
    """Return the content of a sealed file without moving the shared file offset."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
