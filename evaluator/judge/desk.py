"""Answers the build requests of one runner, and remembers what was built and what was not."""

import fcntl
import os

from evaluator.build.builder import Builder
from evaluator.findings import Code
from evaluator.frames import BuildReply, BuildRequest
from evaluator.records import BuildUnit, Finding

_F_ADD_SEALS = 1033
_F_SEAL_ALL = 0x1 | 0x2 | 0x4 | 0x8
_MAX_REQUESTS = 64


class BuildDesk:
    """Serves a runner's build requests through a `Builder`."""

    def __init__(self, builder: Builder) -> None:
        """Start with nothing built."""
        self._builder = builder
        self.units: list[BuildUnit] = []
        self.failures: list[Finding] = []
        self.wall_s = 0.0

    def serve(self, request: BuildRequest) -> tuple[BuildReply, int | None]:
        """Build what was asked for; a library goes back as a descriptor, which the caller closes."""
        if len(self.units) >= _MAX_REQUESTS:
            return BuildReply(ok=False, log=f"more than {_MAX_REQUESTS} extensions"), None
        built = self._builder.build(request)
        self.units.append(built.unit)
        self.wall_s += built.unit.wall_s
        if built.library is None:
            if built.finding is not None:
                self.failures.append(built.finding)
            message = built.finding.message if built.finding is not None else ""
            return BuildReply(ok=False, log=f"{message}\n{built.unit.log}"), None
        return BuildReply(ok=True, log=built.unit.log), _sealed_copy(built.library)

    def failed_with(self, code: Code) -> Finding | None:
        """Find the first failure of that code."""
        return next((failure for failure in self.failures if failure.code == code.value), None)


def _sealed_copy(library: bytes) -> int:
    """Copy a library into memory that nobody can change: a descriptor of the cache's own file could be reopened."""
    descriptor = os.memfd_create("library", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(library)
    fcntl.fcntl(descriptor, _F_ADD_SEALS, _F_SEAL_ALL)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
