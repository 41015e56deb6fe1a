"""NVIDIA GPUs and the state reported by their driver. Uses NVML; needs neither torch nor a context."""

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evaluator.devices.turns import FileLatch, Turn
from evaluator.errors import InfraError, UsageError
from evaluator.records import DeviceKind


def default_device() -> DeviceKind:
    """Return a real GPU if one exists and PyTorch can use it, else the emulator. Takes milliseconds."""
    return DeviceKind.CUDA if gpus() and not _is_for_cpu_only() else DeviceKind.EMULATED


def _is_for_cpu_only() -> bool:
    import importlib.metadata  # only where a GPU is: the import takes as long as a fifth of all others

    return importlib.metadata.version("torch").endswith("+cpu")


_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
_WITHOUT_GPU = 'run `warpgrade doctor`; without a GPU, use --device emulated (in Python device="emulated")'


class Gpu(NamedTuple):
    """A GPU. `number` is NVML's index; `nodes` are the device files needed to use this GPU and no other."""

    number: int
    uuid: str
    name: str
    capability: tuple[int, int]
    memory_bytes: int
    driver: str
    nodes: tuple[Path, ...]


class GpuState(NamedTuple):
    """State of a GPU at one moment. `throttled` lists NVML's reasons for reduced clocks, if any."""

    sm_mhz: int
    memory_mhz: int
    temperature_c: int
    throttled: tuple[str, ...]
    ecc_errors: int
    processes: tuple[int, ...]
    mig: bool


class ClockLook(NamedTuple):
    """Clock and temperature of a GPU at one moment. `throttled` lists NVML's reasons for reduced clocks, if any."""

    sm_mhz: int
    temperature_c: int
    throttled: tuple[str, ...]


def gpus() -> list[Gpu]:
    """Return the GPUs available to this process (`visible`); none without a driver."""
    try:
        with _nvml() as nvml:
            return _listed(nvml)
    except InfraError:
        return []


def choose(index_or_uuid: str | None) -> Gpu:
    """Return the GPU with the wanted index or UUID, by default the first. Raises UsageError or InfraError."""
    with _nvml() as nvml:
        listed = _listed(nvml)
    if not listed:
        variable = os.environ.get("CUDA_VISIBLE_DEVICES")
        reason = "" if variable is None else f": CUDA_VISIBLE_DEVICES is {variable!r}"
        raise InfraError(f"no NVIDIA GPU is visible{reason}", hint=_WITHOUT_GPU)
    if index_or_uuid is None:
        return listed[0]
    chosen = [gpu for gpu in listed if index_or_uuid in (str(gpu.number), gpu.uuid)]
    if not chosen:
        names = ", ".join(f"{gpu.number} ({gpu.name}, {gpu.uuid})" for gpu in listed)
        raise UsageError(f"no GPU {index_or_uuid!r}", hint=f"this machine has {names}")
    return chosen[0]


def visible(gpus: Sequence[Gpu], variable: str | None) -> list[Gpu]:
    """Filter and order GPUs by CUDA_VISIBLE_DEVICES, with which a scheduler assigns GPUs to a job.

    CUDA's rules apply: entries are indices or possibly shortened UUIDs. The list ends at an entry that matches no GPU
    or several. Indices are NVML's.

    >>> visible([], "0")
    []
    """
    if variable is None:
        return list(gpus)
    chosen: list[Gpu] = []
    for name in map(str.strip, variable.split(",")):
        is_uuid = name.startswith("GPU-")
        fitting = [gpu for gpu in gpus if name == str(gpu.number) or (is_uuid and gpu.uuid.startswith(name))]
        if len(fitting) != 1 or fitting[0] in chosen:
            break
        chosen += fitting
    return chosen


def show_only(uuid: str) -> dict[str, str]:
    """Return environment variables with which CUDA sees only this GPU, as device 0."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": uuid}


@contextlib.contextmanager
def leased(gpu: Gpu, wait_s: float) -> Iterator[None]:
    """Lease a GPU exclusively among all grades on this machine, of all users. Any thread may end the lease.

    Raises InfraError if another grade still holds the GPU after `wait_s`.
    """
    turn = Turn(_gate(gpu), FileLatch(_lock_file(gpu, "lock")))
    try:
        _begin(turn, gpu, wait_s)
        yield
    finally:
        turn.end()


def _begin(turn: Turn, gpu: Gpu, wait_s: float) -> None:
    try:
        has_begun = turn.begin(wait_s)
    except OSError as error:
        hint = "make the file readable, or remove it"
        path = error.filename or _lock_file(gpu, "lock")  # A file system without locks names no file.
        raise InfraError(f"cannot lock {path}: {error.strerror}", hint=hint) from None
    if not has_begun:
        raise InfraError(
            f"GPU {gpu.number} ({gpu.name}) is busy with another grade",
            hint="wait for the other grade, or choose another GPU with --gpu",
        )


def is_awaited(gpu: Gpu) -> bool:
    """Return whether a grade waits for the GPU; True if unknown."""
    try:
        return not _gate(gpu).is_free()
    except OSError:
        return True


def _gate(gpu: Gpu) -> FileLatch:
    return FileLatch(_lock_file(gpu, "waiting"))


def _lock_file(gpu: Gpu, kind: str) -> Path:
    # Not $TMPDIR, which differs between users of the same GPU.
    return Path("/tmp", f"warpgrade-{gpu.uuid}.{kind}")  # noqa: S108


def state(gpu: Gpu) -> GpuState:
    """Return a GPU's clocks, temperature, errors and other processes, by an open NVML.

    A grade asks several times, and each start of NVML looks at all GPUs of the machine. Raises InfraError without a
    driver.
    """
    nvml, handle = _open(gpu.uuid)
    return GpuState(
        sm_mhz=int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        memory_mhz=int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
        temperature_c=int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        throttled=_throttled(nvml, handle),
        ecc_errors=_ecc_errors(nvml, handle),
        processes=_processes(nvml, handle),
        mig=_mig(nvml, handle),
    )


def look_at_clock(gpu: Gpu) -> ClockLook | None:
    """Return a GPU's clock, by an NVML that stays open: cheap enough between two calls. None without an answer."""
    try:
        nvml, handle = _open(gpu.uuid)
        return ClockLook(
            sm_mhz=int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            temperature_c=int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            throttled=_throttled(nvml, handle),
        )
    except Exception:  # noqa: BLE001 - a driver without an answer must not end a grade; a look is evidence only
        return None


@functools.cache
def _open(uuid: str) -> tuple[Any, Any]:
    """Open NVML until the end of the process. Raises InfraError without a driver."""
    nvml = _started()
    return nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)


def _started() -> Any:
    """Start NVML. Raises InfraError without a driver."""
    try:
        import pynvml
    except ImportError:
        raise InfraError("pynvml is not installed", hint="pip install nvidia-ml-py") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise InfraError(f"NVIDIA's driver does not answer: {error}", hint=_WITHOUT_GPU) from None
    return pynvml


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    nvml = _started()
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _listed(nvml: Any) -> list[Gpu]:
    listed = [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    return visible(listed, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    node = Path(f"/dev/nvidia{nvml.nvmlDeviceGetMinorNumber(handle)}")
    return Gpu(
        number=index,
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        name=str(nvml.nvmlDeviceGetName(handle)),
        capability=tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        driver=str(nvml.nvmlSystemGetDriverVersion()),
        nodes=(*map(Path, _NODES), node),
    )


# Idle clocks and clocks set by an administrator are not throttling.
_THROTTLE_REASONS = {
    "nvmlClocksEventReasonSwPowerCap": "power cap",
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksEventReasonSwThermalSlowdown": "thermal slowdown",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "hardware thermal slowdown",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
}

FAULTS = frozenset(_THROTTLE_REASONS.values()) - {"power cap"}
"""Reasons that speak of a machine with a defect. The power cap limits long matrix products of every healthy GPU."""


def _throttled(nvml: Any, handle: Any) -> tuple[str, ...]:
    with contextlib.suppress(nvml.NVMLError, AttributeError):
        bits = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        return tuple(words for name, words in _THROTTLE_REASONS.items() if bits & int(getattr(nvml, name, 0)))
    return ()


def _ecc_errors(nvml: Any, handle: Any) -> int:
    """Return the number of uncorrectable memory errors since the driver was loaded; 0 without ECC."""
    with contextlib.suppress(nvml.NVMLError):
        return int(
            nvml.nvmlDeviceGetTotalEccErrors(handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
        )
    return 0


def _processes(nvml: Any, handle: Any) -> tuple[int, ...]:
    """Return the processes with a context on the GPU, without this process."""
    with contextlib.suppress(nvml.NVMLError):
        processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return tuple(sorted(int(entry.pid) for entry in processes if int(entry.pid) != os.getpid()))
    return ()


def _mig(nvml: Any, handle: Any) -> bool:
    with contextlib.suppress(nvml.NVMLError):
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    return False
