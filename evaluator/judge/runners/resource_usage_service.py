"""Build service for a profiled runner: the compiler also reports the resource usage of each kernel."""

import os
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.compile.binaries.kernel_resources import VERBOSE, kernel_resources
from evaluator.compile.device_builders import ExtensionBuilder
from evaluator.judge.runners.build_budget import BuildBudget
from evaluator.judge.runners.build_service import BuildService
from evaluator.protocol.frames import BuildReply, BuildRequest
from evaluator.records import KernelResources


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
