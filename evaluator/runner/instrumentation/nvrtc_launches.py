"""Launches of kernels compiled by `torch.cuda._compile_kernel`, left out for an ablation on `cuda`."""

from collections.abc import Collection
from typing import Any
from weakref import WeakKeyDictionary

from torch.cuda import _utils as torch_nvrtc

_names: "WeakKeyDictionary[Any, str]" = WeakKeyDictionary()
"""Mangled names of the loaded kernels."""


def name_kernels() -> None:
    """Store the names of kernels loaded from now on. PyTorch versions without the same functions stay unchanged."""
    load = getattr(torch_nvrtc, "_cuda_load_module", None)
    if load is None:
        return

    def loaded(ptx: Any, kernel_names: Any = None) -> Any:
        result = load(ptx, kernel_names)
        if isinstance(result, dict):
            _names.update({kernel: name for name, kernel in result.items()})
        return result

    torch_nvrtc._cuda_load_module = loaded  # noqa: SLF001 - looked up at each call


def leave_out_launches(kernels: Collection[str]) -> None:
    """Make launches do nothing from now on: of `kernels`, or of all kernels. Irreversible."""
    kind: Any = getattr(torch_nvrtc, "_CudaKernel", None)
    if kind is None:
        return
    launch = kind.__call__

    def launched(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        left_out = not kernels or any(_is_named(_names.get(kernel, ""), name) for name in kernels)
        return None if left_out else launch(kernel, *args, **kwargs)

    kind.__call__ = launched


def _is_named(mangled: str, name: str) -> bool:
    """Return whether a mangled name belongs to the function `name` (Itanium C++ ABI: the length comes first).

    >>> _is_named("_Z4reluIfEvPT_", "relu"), _is_named("relu", "relu"), _is_named("_Z5relu6v", "relu")
    (True, True, False)
    """
    return mangled == name or f"{len(name)}{name}" in mangled
