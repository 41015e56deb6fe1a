"""A desk for a profiled runner: what it builds is built with the compiler's word for what each kernel takes."""

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
    """A request as the runner made it, and what it got; `library` is None where the build failed."""

    request: BuildRequest
    reply: BuildReply
    library: bytes | None


class ResourceUsageService(BuildService):
    """Serves builds of CUDA with ptxas made to talk: the same machine code, under a key of its own in the cache.

    What it served is kept in `served`, for a process that has no desk.
    """

    def __init__(self, builder: ExtensionBuilder, build_budget: BuildBudget) -> None:
        """Start with nothing built; see `BuildService`."""
        super().__init__(builder, build_budget)
        self.served: list[Served] = []

    def serve(self, request: BuildRequest) -> tuple[BuildReply, int | None]:
        """Build what was asked for, as `BuildService` does."""
        loud = replace(request, extra_cuda_cflags=[*request.extra_cuda_cflags, VERBOSE])
        reply, descriptor = super().serve(loud if request.with_cuda else request)
        self.served.append(Served(request, reply, None if descriptor is None else _content(descriptor)))
        return reply, descriptor

    @property
    def resources(self) -> list[KernelResources]:
        """Say what the kernels of all that was built take."""
        return [each for unit in self.units for each in kernel_resources(unit.log)]


def _content(descriptor: int) -> bytes:
    """Read a sealed file from its beginning; the place from which others read it does not move."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
