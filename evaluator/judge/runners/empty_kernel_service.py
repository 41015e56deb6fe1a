"""A desk that hands out libraries whose kernels end at once, for a runner that shows what an answer needs of them."""

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
    """Serves builds as they were made for the grade, with kernels left out of their bytes.

    `left_out` says whether any kernel was: device code may be compressed, and then nothing was tried.
    """

    def __init__(
        self, builder: ExtensionBuilder, build_budget: BuildBudget, kernels: Collection[str] | None = None
    ) -> None:
        """Leave out all kernels, or those whose plain names are in `kernels`."""
        super().__init__(builder, build_budget)
        self._kernels = kernels
        self.left_out = False

    def serve(self, request: BuildRequest) -> tuple[BuildReply, int | None]:
        """Build what was asked for, as `BuildService` does."""
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
        return self._kernels is None or plain_name(mangled) in self._kernels
