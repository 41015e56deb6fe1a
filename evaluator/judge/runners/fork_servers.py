"""The starter of runners, with what its runners find in their environment."""

from evaluator.devices.gpu import show_only
from evaluator.emulator.parsing.parse_in_sandbox import REHEARSING
from evaluator.records import DeviceKind, SandboxMode
from evaluator.sandbox import DEFAULT_PRELOAD, ForkServer

_LINT = "evaluator.lint.sandboxed_lint"


def fork_server_for(device: DeviceKind, gpu: str | None, sandbox: SandboxMode, threads: int) -> ForkServer:
    """Begin a starter, for the GPU of that UUID; it returns at once. Both sides of a comparison get the same variables.

    Waiting threads sleep: where they spin, two busy cores make a parallel loop six times slower (measured), and the
    time of every call depends on what else the machine does.
    """
    own = [_LINT, *([] if device is DeviceKind.CPU else [REHEARSING])]
    return ForkServer(mode=sandbox, environment=_environment(device, gpu, threads), preload=(*DEFAULT_PRELOAD, *own))


def light_fork_server_for(device: DeviceKind, sandbox: SandboxMode) -> ForkServer:
    """Begin a starter without PyTorch, for compilers and for our own code on a submission's text; it returns at once.

    It is ready in a fifth of the time.
    """
    return ForkServer(mode=sandbox, preload=(_LINT, *([] if device is DeviceKind.CPU else [REHEARSING])))


def _environment(device: DeviceKind, gpu: str | None, threads: int) -> dict[str, str]:
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        # A runner's user has no entry in the list of users; torch.compile asks for its name all the same.
        "USER": "runner",
        "LOGNAME": "runner",
        **(_gpu_variables(gpu) if gpu is not None else {}),
        # On `emulated`, Triton's own interpreter runs what is written in Triton; Triton reads this when it is imported.
        **({"TRITON_INTERPRET": "1"} if device is DeviceKind.EMULATED else {}),
    }


def _gpu_variables(gpu: str) -> dict[str, str]:
    """Show a runner its GPU. Torch's import asks whether there is one, and must ask NVML.

    Asking CUDA would leave the starter with a runtime that none of its children could use.
    """
    return {**show_only(gpu), "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
