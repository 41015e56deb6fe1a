"""Build service with emptied kernels, for a runner that measures how much an answer depends on the kernels."""

import os
from collections.abc import Collection

from evaluator.compile.binaries.cubin import kernel_code, without
from evaluator.compile.device_builders import ExtensionBuilder
from evaluator.cuda_source.kernel_names import plain_name
from evaluator.devices.memory import sealed_file
from evaluator.judge.runners.build_budget import BuildBudget
from evaluator.judge.runners.build_service import BuildService
from evaluator.protocol.frames import BuildReply, BuildRequest


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
        library = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        names = [code.name for code in kernel_code(library) if self._leaves_out(code.name)]
        changed = without(library, names)
        if changed is None:
            return reply, descriptor
        os.close(descriptor)
        self.left_out = True
        return reply, sealed_file(changed)

    def _leaves_out(self, mangled: str) -> bool:
        return self.kernels is None or plain_name(mangled) in self.kernels
