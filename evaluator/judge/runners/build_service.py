"""Build service of one runner: answers build requests, and records builds and failures."""

import contextlib
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from evaluator.compile.binaries.imported_symbols import ImportedSymbols, imported_symbols
from evaluator.compile.device_builders import ExtensionBuilder
from evaluator.compile.extension.binding_errors import explained
from evaluator.compile.extension.build_results import BuildResult
from evaluator.cuda_source.kernel_names import Kernels, kernels_in_library
from evaluator.cuda_source.source_files import all_files
from evaluator.devices.memory import sealed_file
from evaluator.findings import Code, finding
from evaluator.judge.runners.build_budget import BuildBudget
from evaluator.protocol.frames import BuildReply, BuildRequest, SourceFile
from evaluator.protocol.frames.oversize import oversized_request, text_bytes
from evaluator.records import BuildUnit, Diagnostic, Finding
from evaluator.toolchain.diagnostics import missing_return

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
        with self._waited_for():
            return self._serve(request)

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

    @contextlib.contextmanager
    def _waited_for(self) -> Iterator[None]:
        before_s = self._build_budget.waited_s
        try:
            with self._build_budget.serving():
                yield
        finally:
            self.waited_s += self._build_budget.waited_s - before_s

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
