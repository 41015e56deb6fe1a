"""Kernels compiled inside a runner (Triton): their names by the text, their resources, and the compiler's cache."""

from evaluator.cuda_source.kernel_names import Kernels, joined
from evaluator.judge.runners.build_service import BuildService
from evaluator.judge.runners.runner_client import RunnerClient, Stage
from evaluator.protocol.frames import CompiledKernels, ReadKernels
from evaluator.records import KernelResources
from evaluator.submission.toolchains import triton_kernels

_SECONDS = 10.0


def read_kernels(session: RunnerClient) -> CompiledKernels | None:
    """Ask a runner for the kernels compiled in its process; None if the runner fails.

    The process of the submission reports all of it: resources are a claim, and the cache is for the submission alone.
    """
    session.let_go()  # A runner is stopped between calls.
    answer = session.ask(ReadKernels(), Stage.CALL, _SECONDS)
    return answer if isinstance(answer, CompiledKernels) else None


def own_names(build_service: BuildService, source: str) -> Kernels:
    """Return the submission's kernels: those of built libraries, and the Triton kernels that the text defines."""
    return joined([*build_service.device_code, Kernels(device_code=False, names=triton_kernels(source))])


def claimed_resources(found: CompiledKernels) -> list[KernelResources]:
    """Return the resources that a runner reports. Triton's local memory per thread holds stack and spills together."""
    return [
        KernelResources(each.name, each.registers, each.shared_bytes, each.local_bytes, 0, 0, claimed=True)
        for each in found.kernels
    ]
