"""Answers the build requests of one runner, and remembers what was built and what was not."""

import time

from evaluator.build.artefact import Kernels, kernels_in_library
from evaluator.build.equipment import ExtensionBuilder
from evaluator.build.sources import source_files
from evaluator.devices.memory import sealed_file
from evaluator.findings import Code, finding
from evaluator.frames import BuildReply, BuildRequest, SourceFile
from evaluator.records import BuildUnit, Finding


class BuildDesk:
    """Serves a runner's build requests through a device's builder."""

    def __init__(self, builder: ExtensionBuilder, limit_s: float) -> None:
        """Start with nothing built. `limit_s` is for all builds together; `texts` are the compiled files, by name.

        `built_from` are the files of what was built, `device_code` what the libraries hold for a GPU. `waited_s`
        is how long the runner waited for its builds: less than they took, where they were begun ahead.
        """
        self._builder = builder
        self._limit_s = limit_s
        self.units: list[BuildUnit] = []
        self.failures: list[Finding] = []
        self.texts: dict[str, str] = {}
        self.built_from: list[SourceFile] = []
        self.device_code: list[Kernels] = []
        self.waited_s = 0.0

    def serve(self, request: BuildRequest) -> tuple[BuildReply, int | None]:
        """Build what was asked for; a library goes back as a descriptor, which the caller closes."""
        if self.waited_s >= self._limit_s:
            message = f"{len(self.units)} extensions took {self.waited_s:.0f} s; no more are built"
            if self.failed_with(Code.COMPILER_TIMED_OUT) is None:
                self.failures.append(finding(Code.COMPILER_TIMED_OUT, message))
            return BuildReply(ok=False, log=message), None
        self.texts |= {file.name: file.text for file in source_files(request)}
        started = time.monotonic()
        built = self._builder.build(request)
        self.waited_s += time.monotonic() - started
        self.units.append(built.unit)
        if built.library is None:
            if built.finding is not None:
                self.failures.append(built.finding)
            message = built.finding.message if built.finding is not None else ""
            return BuildReply(ok=False, log=f"{message}\n{built.unit.log}"), None
        self.built_from += source_files(request)
        self.device_code.append(kernels_in_library(built.library))
        return BuildReply(ok=True, log=built.unit.log), sealed_file(built.library)

    def failed_with(self, code: Code) -> Finding | None:
        """Find the first failure of that code."""
        return next((failure for failure in self.failures if failure.code == code.value), None)
