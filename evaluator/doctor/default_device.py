"""Default device of a grade."""

from evaluator.devices.gpu import gpus
from evaluator.records import DeviceKind


def default_device() -> DeviceKind:
    """Return a real GPU if one exists and PyTorch can use it, else the emulator. Takes milliseconds."""
    return DeviceKind.CUDA if gpus() and not _is_for_cpu_only() else DeviceKind.EMULATED


def _is_for_cpu_only() -> bool:
    import importlib.metadata  # only where a GPU is: the import takes as long as a fifth of all others

    return importlib.metadata.version("torch").endswith("+cpu")
