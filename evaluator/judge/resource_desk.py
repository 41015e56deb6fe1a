"""A desk for a profiled runner: what it builds is built with the compiler's word for what each kernel takes."""

import os
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.build.equipment import ExtensionBuilder
from evaluator.build.resources import VERBOSE, resources
from evaluator.judge.desk import BuildDesk
from evaluator.judge.ledger import BuildLedger
from evaluator.protocol.frames import BuildReply, BuildRequest
from evaluator.records import KernelResources


class Served(NamedTuple):
    """A request as the runner made it, and what it got; `library` is None where the build failed."""

    request: BuildRequest
    reply: BuildReply
    library: bytes | None


class ResourceDesk(BuildDesk):
    """Serves builds of CUDA with ptxas made to talk: the same machine code, under a key of its own in the cache.

    What it served is kept in `served`, for a process that has no desk.
    """

    def __init__(self, builder: ExtensionBuilder, ledger: BuildLedger) -> None:
        """Start with nothing built; see `BuildDesk`."""
        super().__init__(builder, ledger)
        self.served: list[Served] = []

    def serve(self, request: BuildRequest) -> tuple[BuildReply, int | None]:
        """Build what was asked for, as `BuildDesk` does."""
        loud = replace(request, extra_cuda_cflags=[*request.extra_cuda_cflags, VERBOSE])
        reply, descriptor = super().serve(loud if request.with_cuda else request)
        self.served.append(Served(request, reply, None if descriptor is None else _content(descriptor)))
        return reply, descriptor

    @property
    def resources(self) -> list[KernelResources]:
        """Say what the kernels of all that was built take."""
        return [each for unit in self.units for each in resources(unit.log)]


def _content(descriptor: int) -> bytes:
    """Read a sealed file from its beginning; the place from which others read it does not move."""
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
