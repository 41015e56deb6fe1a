"""CUDA driver functions needed by judge and runner, but missing in PyTorch.

Shared memory between processes (`cuMemCreate`, exported as a file descriptor), host memory words for stream writes and
waits, and kernels from a cubin. All functions use the current context, which is PyTorch's. Struct layouts and numbers
are those of cuda.h, CUDA 12 and 13. The package cuda-bindings has the same functions, but each process would import it
for 0.10 s of CPU time, against 0.01 s for this module (2 cores, cuda-bindings 13.5).
"""

import ctypes
import functools
from collections.abc import Sequence
from typing import NamedTuple

_POSIX_DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
_ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_MINIMUM = 0  # CU_MEM_ALLOC_GRANULARITY_MINIMUM
_WAIT_AT_LEAST = 0  # CU_STREAM_WAIT_VALUE_GEQ
_MAPPED = 2  # CU_MEMHOSTREGISTER_DEVICEMAP


Argument = ctypes.c_uint64 | ctypes.c_int64 | ctypes.c_int | ctypes.c_double | ctypes.Structure
"""An argument of a kernel; structures are passed by value."""


class DriverError(Exception):
    """An error of the CUDA driver. `name` is CUDA's name, such as CUDA_ERROR_OUT_OF_MEMORY."""

    def __init__(self, function: str, name: str, text: str) -> None:
        """Store the failed `function`, and CUDA's `name` and `text` for the error."""
        super().__init__(f"{function}: {name}: {text}")
        self.name = name


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _AllocationProperties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_uint8 * 8),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class Mapping(NamedTuple):
    """Device memory mapped in this process: `address` for kernels, `handle` for export."""

    address: int
    size_bytes: int
    handle: int


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _call(function: str, *arguments: object) -> None:
    status = getattr(_library(), function)(*arguments)
    if status == 0:
        return
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    _library().cuGetErrorName(status, ctypes.byref(name))
    _library().cuGetErrorString(status, ctypes.byref(text))
    raise DriverError(function, (name.value or b"unknown").decode(), (text.value or b"").decode())


def make_context() -> None:
    """Create this process's primary context on the first visible device, for PyTorch's later use.

    Creation takes a fifth of a second, during which other Python threads run. Raises OSError without a driver.
    """
    _call("cuInit", 0)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _call("cuDeviceGet", ctypes.byref(device), 0)
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)


def create_memory(device: int, size_bytes: int) -> Mapping:
    """Allocate exportable device memory as a separate allocation; the size is rounded up to the granularity."""
    properties = _AllocationProperties(_PINNED, _POSIX_DESCRIPTOR, _Location(_ON_DEVICE, device))
    granularity = ctypes.c_size_t()
    _call("cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(properties), _MINIMUM)
    size_bytes = -(-max(size_bytes, 1) // granularity.value) * granularity.value
    handle = ctypes.c_uint64()
    _call(
        "cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size_bytes), ctypes.byref(properties), ctypes.c_uint64(0)
    )
    try:
        return _mapped(device, size_bytes, handle.value)
    except DriverError:
        _call("cuMemRelease", handle)
        raise


def export_memory(memory: Mapping) -> int:
    """Return a file descriptor with which another process can map `memory`."""
    descriptor = ctypes.c_int()
    _call(
        "cuMemExportToShareableHandle",
        ctypes.byref(descriptor),
        ctypes.c_uint64(memory.handle),
        _POSIX_DESCRIPTOR,
        ctypes.c_uint64(0),
    )
    return descriptor.value


def import_memory(device: int, descriptor: int, size_bytes: int) -> Mapping:
    """Map memory exported by another process. `size_bytes` is the full size of the allocation."""
    handle = ctypes.c_uint64()
    _call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor), _POSIX_DESCRIPTOR)
    return _mapped(device, size_bytes, handle.value)


def free_memory(memory: Mapping) -> None:
    """Unmap `memory` in this process; the allocation is freed when no process maps it."""
    _call("cuMemUnmap", ctypes.c_uint64(memory.address), ctypes.c_size_t(memory.size_bytes))
    _call("cuMemAddressFree", ctypes.c_uint64(memory.address), ctypes.c_size_t(memory.size_bytes))
    _call("cuMemRelease", ctypes.c_uint64(memory.handle))


def _mapped(device: int, size_bytes: int, handle: int) -> Mapping:
    address, size = ctypes.c_uint64(), ctypes.c_size_t(size_bytes)
    zero = ctypes.c_uint64(0)
    _call("cuMemAddressReserve", ctypes.byref(address), size, ctypes.c_size_t(0), zero, zero)
    try:
        _call("cuMemMap", address, size, ctypes.c_size_t(0), ctypes.c_uint64(handle), zero)
        access = _Access(_Location(_ON_DEVICE, device), _READ_WRITE)
        _call("cuMemSetAccess", address, size, ctypes.byref(access), ctypes.c_size_t(1))
    except DriverError:
        _call("cuMemAddressFree", address, size)
        raise
    return Mapping(address.value, size_bytes, handle)


def register_host(address: int, size_bytes: int) -> int:
    """Pin host memory of this process and return its device address."""
    _call("cuMemHostRegister_v2", ctypes.c_void_p(address), ctypes.c_size_t(size_bytes), _MAPPED)
    device_address = ctypes.c_uint64()
    _call("cuMemHostGetDevicePointer_v2", ctypes.byref(device_address), ctypes.c_void_p(address), 0)
    return device_address.value


def unregister_host(address: int) -> None:
    """Undo `register_host`."""
    _call("cuMemHostUnregister", ctypes.c_void_p(address))


def stream_write(stream: int, address: int, value: int) -> None:
    """Enqueue on `stream` the store of a 32-bit `value` at `address`, after all earlier work."""
    _call("cuStreamWriteValue32_v2", ctypes.c_void_p(stream), ctypes.c_uint64(address), ctypes.c_uint32(value), 0)


def stream_wait(stream: int, address: int, at_least: int) -> None:
    """Block `stream` until the 32-bit word at `address` is `at_least` (in the cyclic sense of cuda.h)."""
    _call(
        "cuStreamWaitValue32_v2",
        ctypes.c_void_p(stream),
        ctypes.c_uint64(address),
        ctypes.c_uint32(at_least),
        _WAIT_AT_LEAST,
    )


def load_module(image: bytes) -> int:
    """Load a cubin into the current context."""
    module = ctypes.c_void_p()
    _call("cuModuleLoadData", ctypes.byref(module), image)
    return module.value or 0


def kernel(module: int, name: str) -> int:
    """Return a module's kernel by its unmangled name."""
    function = ctypes.c_void_p()
    _call("cuModuleGetFunction", ctypes.byref(function), ctypes.c_void_p(module), name.encode())
    return function.value or 0


def launch(function: int, *, blocks: int, threads: int, stream: int, arguments: Sequence[Argument]) -> None:
    """Launch a kernel on a one-dimensional grid. The driver copies the arguments before the return."""
    # Addresses without a reference to the arguments, which this function holds: `ctypes.cast` takes 5 us each.
    pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
    _call(
        "cuLaunchKernel",
        ctypes.c_void_p(function),
        *(ctypes.c_uint(number) for number in (blocks, 1, 1, threads, 1, 1, 0)),
        ctypes.c_void_p(stream),
        pointers,
        None,
    )


def reset_persisting_l2() -> None:
    """Reset all persisting L2 lines, which an access-policy window keeps in cache, to normal."""
    _call("cuCtxResetPersistingL2Cache")
