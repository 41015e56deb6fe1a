"""NVRTC through `torch.cuda._compile_kernel`, a part of PyTorch. `runner/emulated/nvrtc.py` is the emulator's form."""

from evaluator.languages.installations import distribution
from evaluator.languages.language import Installation, Language, names
from evaluator.records import DeviceKind, Toolchain

NVRTC = Language(
    toolchain=Toolchain.NVRTC,
    title="NVRTC of PyTorch",
    is_in=names("torch.cuda._compile_kernel", "torch.cuda._utils._nvrtc_compile"),
    runs_on=frozenset((DeviceKind.CUDA, DeviceKind.EMULATED)),
    installation=Installation(
        distribution("torch", package="torch"), "install a GPU build of PyTorch and the CUDA toolkit, and set CUDA_HOME"
    ),
    code=("torch.cuda._utils._nvrtc_compile", "torch.cuda._utils._cuda_load_module", "torch.cuda._utils._CudaKernel"),
    compiler=("torch.cuda._utils._nvrtc_compile", "torch.cuda._utils._cuda_load_module"),
)
