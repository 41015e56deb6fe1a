"""Which NVIDIA GPUs there are, and what their driver says of them. Asks NVML; needs neither torch nor a context."""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import filelock

from evaluator.errors import InfraError, UsageError

_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")


class Gpu(NamedTuple):
    """One GPU. `number` is NVML's; `nodes` are the device files that a process needs to use this GPU and no other."""

    number: int
    uuid: str
    name: str
    capability: tuple[int, int]
    memory_bytes: int
    driver: str
    nodes: tuple[Path, ...]


class GpuState(NamedTuple):
    """How a GPU is at one moment. `throttled` holds NVML's words for why its clocks are held back, if they are."""

    sm_mhz: int
    memory_mhz: int
    temperature_c: int
    throttled: tuple[str, ...]
    ecc_errors: int
    processes: tuple[int, ...]
    mig: bool


def gpus() -> list[Gpu]:
    """List the GPUs that this process may use (`visible`); none where there is no driver."""
    try:
        with _nvml() as nvml:
            return _listed(nvml)
    except InfraError:
        return []


def choose(wanted: str | None) -> Gpu:
    """Find the GPU with that index or UUID; without a wish the first one. Raises UsageError, or InfraError."""
    with _nvml() as nvml:
        found = _listed(nvml)
    if not found:
        variable = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = "" if variable is None else f": CUDA_VISIBLE_DEVICES is {variable!r}"
        raise InfraError(
            f"no NVIDIA GPU is visible{why}", hint="see `warpgrade doctor`; without a GPU: --device emulated"
        )
    if wanted is None:
        return found[0]
    chosen = [gpu for gpu in found if wanted in (str(gpu.number), gpu.uuid)]
    if not chosen:
        names = ", ".join(f"{gpu.number} ({gpu.name}, {gpu.uuid})" for gpu in found)
        raise UsageError(f"there is no GPU {wanted!r}", hint=f"this machine has {names}")
    return chosen[0]


def visible(found: Sequence[Gpu], variable: str | None) -> list[Gpu]:
    """Keep what CUDA_VISIBLE_DEVICES names, in its order: a scheduler gives a job its GPUs by it.

    As CUDA reads it: indices, or UUIDs that may be cut short; what follows a name that fits no GPU, or not just one, is
    not seen. Indices are NVML's.

    >>> visible([], "0")
    []
    """
    if variable is None:
        return list(found)
    kept: list[Gpu] = []
    for name in map(str.strip, variable.split(",")):
        named = name.startswith("GPU-")
        fitting = [gpu for gpu in found if name == str(gpu.number) or (named and gpu.uuid.startswith(name))]
        if len(fitting) != 1 or fitting[0] in kept:
            break
        kept += fitting
    return kept


def show_only(uuid: str) -> dict[str, str]:
    """Give the variables that leave CUDA only this GPU, as its device 0."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": uuid}


@contextlib.contextmanager
def leased(gpu: Gpu, wait_s: float) -> Iterator[None]:
    """Have a GPU to oneself among all grades of this machine, whoever runs them. Any thread may give it back.

    Raises InfraError where another grade still has it after `wait_s`.
    """
    path = _lock_file(gpu, "lock")
    lock = filelock.FileLock(path, mode=0o666, thread_local=False)
    try:
        with _waiting(gpu) if wait_s > 0 else contextlib.nullcontext():
            lock.acquire(timeout=wait_s)
    except filelock.Timeout:
        raise InfraError(
            f"GPU {gpu.number} ({gpu.name}) is busy with another grade", hint="wait for it, or choose another: --gpu"
        ) from None
    except OSError as error:
        raise InfraError(f"{path} cannot be locked: {error.strerror}", hint="make it writable, or remove it") from None
    try:
        yield
    finally:
        lock.release()


def is_awaited(gpu: Gpu) -> bool:
    """Say whether a grade waits for the GPU. Where that cannot be told, one may."""
    with _waiting_file(gpu) as descriptor:
        return descriptor is None or not _locked(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def _waiting(gpu: Gpu) -> Iterator[None]:
    """Let others see that this grade waits for the GPU."""
    with _waiting_file(gpu) as descriptor:
        if descriptor is not None:  # Else nobody sees it, and it waits all the same.
            _locked(descriptor, fcntl.LOCK_SH)
        yield


def _locked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _waiting_file(gpu: Gpu) -> Iterator[int | None]:
    """Open the file that waiting grades lock, all of them at once; None where it cannot be opened."""
    path, descriptor = _lock_file(gpu, "waiting"), None
    for flags in (os.O_RDONLY, os.O_RDONLY | os.O_CREAT):  # Nobody may create what somebody else has in /tmp.
        with contextlib.suppress(OSError):
            descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            break
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _lock_file(gpu: Gpu, kind: str) -> Path:
    # Not $TMPDIR: it is another for each user, and the GPU is the same.
    return Path("/tmp", f"warpgrade-{gpu.uuid}.{kind}")  # noqa: S108


def state(gpu: Gpu) -> GpuState:
    """Look at a GPU's clocks, its temperature, its errors and who else uses it."""
    with _nvml() as nvml:
        handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        return GpuState(
            sm_mhz=int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            memory_mhz=int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            temperature_c=int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            throttled=_throttled(nvml, handle),
            ecc_errors=_ecc_errors(nvml, handle),
            processes=_processes(nvml, handle),
            mig=_mig(nvml, handle),
        )


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    try:
        import pynvml
    except ImportError:
        raise InfraError("pynvml is not installed", hint="pip install nvidia-ml-py") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise InfraError(f"NVIDIA's driver does not answer: {error}", hint="see `warpgrade doctor`") from None
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _listed(nvml: Any) -> list[Gpu]:
    found = [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    return visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"))


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


# Being idle is no throttling, and neither are clocks that somebody set.
_THROTTLE_REASONS = {
    "nvmlClocksEventReasonSwPowerCap": "power cap",
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksEventReasonSwThermalSlowdown": "thermal slowdown",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "hardware thermal slowdown",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
}


def _throttled(nvml: Any, handle: Any) -> tuple[str, ...]:
    with contextlib.suppress(nvml.NVMLError, AttributeError):
        bits = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        return tuple(words for name, words in _THROTTLE_REASONS.items() if bits & int(getattr(nvml, name, 0)))
    return ()


def _ecc_errors(nvml: Any, handle: Any) -> int:
    """Count the memory errors that could not be corrected since the driver was loaded; 0 where there is no ECC."""
    with contextlib.suppress(nvml.NVMLError):
        return int(
            nvml.nvmlDeviceGetTotalEccErrors(handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
        )
    return 0


def _processes(nvml: Any, handle: Any) -> tuple[int, ...]:
    """List the processes, other than this one, that have a context on the GPU."""
    with contextlib.suppress(nvml.NVMLError):
        found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return tuple(sorted(int(entry.pid) for entry in found if int(entry.pid) != os.getpid()))
    return ()


def _mig(nvml: Any, handle: Any) -> bool:
    with contextlib.suppress(nvml.NVMLError):
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    return False
