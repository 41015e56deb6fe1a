"""Kernels compiled inside a runner (Triton): names by the text, resources, and the compiler's cache."""

from evaluator.cuda_source.symbols import Kernels, joined
from evaluator.judge.runners.build_service import BuildService
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.judge.runners.runner_faults import Stage
from evaluator.languages.language import uses_triton
from evaluator.languages.registry import jit_kernels
from evaluator.protocol.frames import CompiledKernels, ReadKernels
from evaluator.records import KernelResources

_SECONDS = 10.0


def read_kernels(session: RunnerClient, source: str) -> CompiledKernels | None:
    """Ask a runner for the kernels compiled in the process; None if the runner fails, or `source` uses no Triton.

    The process of the submission reports all of it: resources are a claim, and the cache is for the submission alone.
    """
    if not uses_triton(source):
        return None
    session.let_go()  # A runner is stopped between calls.
    answer = session.ask(ReadKernels(), Stage.CALL, _SECONDS)
    return answer if isinstance(answer, CompiledKernels) else None


def own_names(build_service: BuildService, source: str) -> Kernels:
    """Return the submission's kernels: those of built libraries, and those of Triton and NVRTC in the text."""
    return joined([*build_service.device_code, Kernels(device_code=False, names=jit_kernels(source))])


def claimed_resources(compiled: CompiledKernels) -> list[KernelResources]:
    """Return the resources reported by a runner. Triton's local memory per thread holds stack and spills together."""
    return [
        KernelResources(kernel.name, kernel.registers, kernel.shared_bytes, kernel.local_bytes, 0, 0, claimed=True)
        for kernel in compiled.kernels
    ]
