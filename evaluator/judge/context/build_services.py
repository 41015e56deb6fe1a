"""Build services of a grade: for the submission's runners, and for runners of another source."""

import os
from collections.abc import Callable, Collection, Sequence

from evaluator.compile.device_builders import DeviceBuilders
from evaluator.judge.runners.build_budget import BuildBudget
from evaluator.judge.runners.build_service import BuildService
from evaluator.judge.runners.empty_kernel_service import EmptyKernelService
from evaluator.judge.runners.machine_code_reader import Disassemble, MachineCodeReader
from evaluator.judge.runners.resource_usage_service import ResourceUsageService
from evaluator.judge.runners.speculative_build import SpeculativeBuild
from evaluator.protocol.frames import BuildRequest
from evaluator.records import MachineCode


class BuildServices:
    """Factory of build services. Each service is for one runner."""

    def __init__(
        self,
        device_builders: DeviceBuilders,
        source: str,
        build_timeout_s: float,
        speculative_build: SpeculativeBuild | None,
        disassemble: Disassemble | None = None,
    ) -> None:
        """Build the submission `source` with `device_builders`, or take builds from `speculative_build`.

        `disassemble` reads the machine code of the submission's libraries, on devices with such code.
        """
        self._machine_code = None if disassemble is None else MachineCodeReader(disassemble)
        self._device_builders = device_builders
        self._build_timeout_s = build_timeout_s
        self._speculative_build = speculative_build
        self.turn_to(source)

    def turn_to(self, source: str) -> None:
        """Switch to a submission, whose builds share a new budget."""
        self._source = source
        self._build_budget = self._new_budget()
        builder = self._device_builders.builder_of(source)
        self._builder = builder if self._speculative_build is None else self._speculative_build.in_front_of(builder)
        if self._machine_code is not None:
            self._machine_code.turn_to_next()

    def for_submission(self) -> BuildService:
        """Return a build service with the budget of the submission."""
        on_library = None if self._machine_code is None else self._machine_code.begin
        return BuildService(self._builder, self._build_budget, self._source, on_library)

    def build_ahead(self, requests: Sequence[BuildRequest]) -> None:
        """Build `requests` into the cache, within a budget of their own.

        A result has an effect only if the submission requests exactly the same build later.
        """
        on_library = None if self._machine_code is None else self._machine_code.begin
        ahead = BuildService(self._builder, self._new_budget(), self._source, on_library)
        for request in requests:
            _, library = ahead.serve(request)
            if library is not None:
                os.close(library)

    def for_source(self, source: str) -> BuildService:
        """Return a build service for `source`, with a budget of its own."""
        return BuildService(self._device_builders.builder_of(source), self._new_budget(), source)

    def with_empty_kernels(self, kernels: Collection[str] | None = None) -> EmptyKernelService:
        """Return a build service for the submission's libraries with empty kernels: all kernels, or only the named."""
        return EmptyKernelService(self._builder, self._new_budget(), kernels)

    def with_resource_usage(self) -> ResourceUsageService:
        """Return a build service that compiles everything again and reports the resource usage of each kernel."""
        return ResourceUsageService(self._builder, self._new_budget())

    def machine_code(self) -> MachineCode | None:
        """Wait for the machine code of all libraries of the submission; None on devices without machine code."""
        return None if self._machine_code is None else self._machine_code.result()

    def close(self, kill: Callable[[], None]) -> None:
        """End the reading of machine code; `kill` ends all running tools."""
        if self._machine_code is not None:
            self._machine_code.close(kill)

    def end_speculative(self) -> None:
        """End speculative builds that no request asked for."""
        if self._speculative_build is not None:
            self._speculative_build.end()

    def _new_budget(self) -> BuildBudget:
        return BuildBudget(self._build_timeout_s)
