"""NVRTC in a runner: on the emulator, and the text of errors.

Both are recognized by the frame that calls NVRTC, which also has the compiled text. The same process runs the
submission, and the judge trusts none of the reports: a failure with a forged reason is still a failure.

PyTorch's own code handles the arguments of a launch, as on a GPU. The compiler and the driver library are replaced: the
judge builds the kernel's text, and a launch calls the built library.
"""

import ctypes
import re
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from torch.cuda import _utils as torch_nvrtc

from evaluator.protocol.frames import RefusedKernel
from evaluator.protocol.frames.bounds import MOST_KERNEL_TEXT

_BEGINNING = "Kernel compilation failed:"
"""Beginning of PyTorch's message, in front of NVRTC's log."""
_FILE = ".cu"
"""Name of a nameless kernel's file in a log, as the judge looks it up."""
_OF_CUPY = "CompileException"
_MOST_SENT_NAME, _MOST_REASON = 1024, 8192


def refused_source(error: BaseException) -> RefusedKernel | None:
    """Return the kernel refused by NVRTC; None for any other exception."""
    try:
        return _refused(error)
    except Exception:  # noqa: BLE001 - an exception of the submission's own class may have any attributes
        return None


def _refused(error: BaseException) -> RefusedKernel | None:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not frames:
        return None
    message, values = str(error), frames[-1].f_locals
    if _is(frames[-1], "_nvrtc_compile", "/torch/cuda/_utils.py") and message.startswith(_BEGINNING):
        return _kernel(values.get("kernel_name"), message.removeprefix(_BEGINNING).strip(), values.get("kernel_source"))
    if _is(frames[-1], "_NVRTCProgram.compile", "/cupy/cuda/compiler.py") and type(error).__name__ == _OF_CUPY:
        program = values["self"]
        # CuPy names the file after a hash, in a temporary folder.
        return _kernel("", message.replace(program.name, _FILE) if program.name else message, program.src)
    return None


def _is(frame: FrameType, function: str, file: str) -> bool:
    return frame.f_code.co_qualname == function and frame.f_code.co_filename.endswith(file)


def _kernel(name: object, reason: str, text: object) -> RefusedKernel:
    return RefusedKernel(
        kernel=_sent(name, _MOST_SENT_NAME),
        reason=_sent(reason, _MOST_REASON),
        line=0,
        column=0,
        text=_sent(text, MOST_KERNEL_TEXT),
    )


def _sent(value: object, most: int) -> str:
    return str(value).encode(errors="replace").decode()[:most]


Build = Callable[[str, str, str, Sequence[str], Sequence[str]], str]
"""Build of a CUDA file, by the library's name, the file's name and text, flags, and include folders. Returns a path."""
_MESSAGE_BYTES = 1024
_MOST_NAME = 100
_SUCCESS = 0
_MAX_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""
_NEEDED = ("_nvrtc_compile", "_cuda_load_module", "_get_gpu_runtime_library", "_CudaKernel")
_LAUNCHER = """

extern "C" __attribute__((visibility("default"))) int warpgrade_launch(
    const unsigned* shape, unsigned long shared, unsigned long most_shared, void** args, char* said,
    unsigned long bytes) {
  try {
    if (most_shared != 0)
      cudaFuncSetAttribute(%(kernel)s, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)most_shared);
    const cudaError_t failure = cudaLaunchKernel(
        %(kernel)s, dim3(shape[0], shape[1], shape[2]), dim3(shape[3], shape[4], shape[5]), args, shared, nullptr);
    if (failure == cudaSuccess) return 0;
    __builtin_snprintf(said, bytes, "CUDA error: %%s", cudaGetErrorString(failure));
  } catch (const std::exception& failure) {
    __builtin_snprintf(said, bytes, "%%s", failure.what());
  }
  return 1;
}
"""


class NvrtcStandIn:
    """Compiler and driver library behind `torch.cuda._compile_kernel`."""

    def __init__(self, build: Build) -> None:
        """Build kernels with `build`."""
        self._driver = _Driver()
        self._build = build

    def install(self) -> None:
        """Replace PyTorch's compiler and driver library. PyTorch versions without the same functions stay unchanged."""
        if all(hasattr(torch_nvrtc, name) for name in _NEEDED):
            torch_nvrtc._nvrtc_compile = self._compile  # noqa: SLF001 - looked up at each call
            torch_nvrtc._get_gpu_runtime_library = lambda: self._driver  # type: ignore[assignment,return-value]  # noqa: SLF001

    def _compile(
        self,
        kernel_source: str,
        kernel_name: str,
        compute_capability: str | None = None,  # noqa: ARG002 - PyTorch's signature
        cuda_include_dirs: list[str] | None = None,
        nvcc_options: list[str] | None = None,
        auto_pch: bool = False,  # noqa: ARG002, FBT001, FBT002
    ) -> tuple[bytes, str]:
        """Build a kernel. The returned binary is a number for `_Driver`."""
        name = re.sub(r"\W", "_", kernel_name, flags=re.ASCII)[:_MOST_NAME]
        # The launcher follows the kernel's text, to preserve the lines of messages. A last backslash takes one newline.
        text = kernel_source + _LAUNCHER % {"kernel": kernel_name}
        options, folders = map(str, nvcc_options or ()), map(str, cuda_include_dirs or ())
        path = self._build(f"nvrtc_{name}", f"{name}.cu", text, [*options], [*folders])
        return self._driver.add(ctypes.CDLL(path)), kernel_name


class _Driver:
    """CUDA driver functions of compiled kernels, for PyTorch. A handle is a number, counted from 1."""

    def __init__(self) -> None:
        self._libraries: list[Any] = []
        self._most_shared: dict[int, int] = {}

    def add(self, library: ctypes.CDLL) -> bytes:
        """Store a library, and return a stand-in for the binary."""
        launch = library.warpgrade_launch
        launch.argtypes = [
            ctypes.POINTER(ctypes.c_uint),
            ctypes.c_ulong,
            ctypes.c_ulong,
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_ulong,
        ]
        self._libraries.append(launch)
        return str(len(self._libraries)).encode()

    def cuModuleLoadData(self, module: Any, binary: bytes) -> int:  # noqa: N802 - the driver's name
        """Set the module's handle."""
        module._obj.value = int(binary)  # noqa: SLF001 - the object behind ctypes.byref
        return _SUCCESS

    def cuModuleGetFunction(self, function: Any, module: ctypes.c_void_p, _: bytes) -> int:  # noqa: N802
        """Set the kernel's handle: a module has a single kernel."""
        function._obj.value = module.value  # noqa: SLF001
        return _SUCCESS

    def cuFuncSetAttribute(self, function: ctypes.c_void_p, attribute: int, value: int) -> int:  # noqa: N802
        """Store a kernel's largest dynamic shared memory."""
        if attribute == _MAX_DYNAMIC_SHARED:
            self._most_shared[function.value or 0] = value
        return _SUCCESS

    def cuLaunchKernel(self, function: ctypes.c_void_p, *config: Any) -> int:  # noqa: N802
        """Run a kernel to the end. Raises RuntimeError for a refused launch and for a fault in the kernel."""
        *shape, shared, _, args, _ = config
        handle = function.value or 0
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        launch, most_shared = self._libraries[handle - 1], self._most_shared.get(handle, 0)
        if launch((ctypes.c_uint * len(shape))(*shape), shared, most_shared, args, message, _MESSAGE_BYTES):
            raise RuntimeError(message.value.decode("utf-8", "replace"))
        return _SUCCESS
