"""Fork servers of runners, with the environment variables of the runners."""

from evaluator.devices.gpu import show_only
from evaluator.emulator.parsing import PARSER
from evaluator.records import DeviceKind, SandboxMode
from evaluator.sandbox import DEFAULT_PRELOAD, ForkServer

_LINT = "evaluator.lint.lint"


def fork_server_for(device: DeviceKind, gpu: str | None, sandbox: SandboxMode, threads: int) -> ForkServer:
    """Start a fork server for a device, and for the GPU with UUID `gpu`, without waiting until the server is ready.

    Both sides of a comparison get the same variables. Idle OpenMP threads sleep: with spinning threads, two busy cores
    slow a parallel loop by a factor of six (measured), and every call's time depends on the machine's load.
    """
    added = [_LINT, *([] if device is DeviceKind.CPU else [PARSER])]
    return ForkServer(mode=sandbox, environment=_environment(device, gpu, threads), preload=(*DEFAULT_PRELOAD, *added))


def light_fork_server_for(device: DeviceKind, sandbox: SandboxMode) -> ForkServer:
    """Start a fork server without PyTorch, without waiting until the server is ready.

    Compilers and the judge's own analysis of a submission's text run here. Start-up takes a fifth of the time.
    """
    return ForkServer(mode=sandbox, preload=(_LINT, *([] if device is DeviceKind.CPU else [PARSER])))


def _environment(device: DeviceKind, gpu: str | None, threads: int) -> dict[str, str]:
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        # A runner's user has no passwd entry, but torch.compile looks up the user name.
        "USER": "runner",
        "LOGNAME": "runner",
        **(_gpu_variables(gpu) if gpu is not None else {}),
        # On `emulated`, Triton's own interpreter runs Triton kernels; Triton reads the variable at import.
        **({"TRITON_INTERPRET": "1"} if device is DeviceKind.EMULATED else {}),
    }


def _gpu_variables(gpu: str) -> dict[str, str]:
    """Return the variables that show a runner its GPU, and have torch's import detect the GPU through NVML.

    Detection through CUDA would initialize the CUDA runtime in the fork server; no forked child could use CUDA then.
    """
    return {**show_only(gpu), "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
