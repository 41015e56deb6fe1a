"""A desk for a profiled runner: what it builds is built with the compiler's word for what each kernel takes."""

from msgspec.structs import replace

from evaluator.build.resources import VERBOSE, resources
from evaluator.frames import BuildReply, BuildRequest
from evaluator.judge.desk import BuildDesk
from evaluator.records import KernelResources


class ResourceDesk(BuildDesk):
    """Serves builds of CUDA with ptxas made to talk: the same machine code, under a key of its own in the cache."""

    def serve(self, request: BuildRequest) -> tuple[BuildReply, int | None]:
        """Build what was asked for, as `BuildDesk` does."""
        if request.with_cuda:
            request = replace(request, extra_cuda_cflags=[*request.extra_cuda_cflags, VERBOSE])
        return super().serve(request)

    @property
    def resources(self) -> list[KernelResources]:
        """Say what the kernels of all that was built take."""
        return [each for unit in self.units for each in resources(unit.log)]
