"""Launches of Triton kernels: counted in Triton's interpreter (`emulated`), left out for an ablation (all devices)."""

import sys
from collections.abc import Collection
from typing import Any

import numpy as np

from evaluator.runner.triton.narrow_floats import install_narrow_floats


def install_scalar_masks(interpreter: Any) -> None:
    """Spread truth values as truth values in Triton's interpreter. Other versions stay unchanged."""
    builder: Any = type(getattr(interpreter, "interpreter_builder", None))
    if not hasattr(builder, "create_splat") or not hasattr(interpreter, "TensorHandle"):
        return
    spread, handle, of_one_bit = builder.create_splat, interpreter.TensorHandle, interpreter.tl.int1

    def create_splat(self: Any, to: Any, scalar: Any) -> Any:
        is_condition = isinstance(scalar.data, np.ndarray) and scalar.data.dtype == np.bool_
        return spread(self, to, handle(scalar.data, of_one_bit) if is_condition else scalar)

    builder.create_splat = create_splat


class InterpretedLaunches:
    """Counts launches in the interpreter once a submission has imported Triton; never imports Triton.

    A launch that raises an exception counts as none, and raises the same exception while launches are left out: a
    submission that falls back on PyTorch then falls back again.
    """

    def __init__(self) -> None:
        """Start at zero."""
        self.count = 0
        self.left_out = False
        self._counted: type | None = None
        self._failed: dict[Any, Exception] = {}

    def watch(self) -> None:
        """Count from now on if Triton is imported. Triton versions without `GridExecutor` are not counted."""
        interpreter = sys.modules.get("triton.runtime.interpreter")
        executor = getattr(interpreter, "GridExecutor", None)
        if executor is None or executor is self._counted:
            return
        self._counted = executor
        launch = executor.__call__

        def counted(grid: Any, *args: Any, **kwargs: Any) -> Any:
            kernel = getattr(grid, "fn", None)
            if self.left_out:
                if (failure := self._failed.get(kernel)) is not None:
                    raise failure
                self.count += 1
                return None
            try:
                result = launch(grid, *args, **kwargs)
            except Exception as error:
                self._failed[kernel] = error
                raise
            self.count += 1
            return result

        executor.__call__ = counted
        _choose_first_configuration()
        _accept_numbers_as_bounds(interpreter)
        install_narrow_floats(interpreter)
        install_scalar_masks(interpreter)


def _choose_first_configuration() -> None:
    """Give every configuration of an autotuner the same time: the interpreter has no GPU to measure with."""
    autotuner = getattr(sys.modules.get("triton.runtime.autotuner"), "Autotuner", None)
    if autotuner is not None:
        autotuner._bench = lambda *_, **__: [0.0, 0.0, 0.0]  # noqa: SLF001 - the least time wins, and the first of equal ones


def _accept_numbers_as_bounds(interpreter: Any) -> None:
    """Let a number in an array of one element be the bound of a loop.

    NumPy 2.4 refuses the conversion that Triton's interpreter uses (seen with Triton 3.6).
    """
    patch = getattr(interpreter, "_patch_lang_tensor", None)
    if patch is None:
        return

    def patched(tensor: Any, *scope: Any) -> None:
        patch(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patched  # noqa: SLF001 - looked up at every launch


def leave_out_compiled(kernels: Collection[str]) -> None:
    """Make launches of compiled kernels do nothing from now on: of all kernels, or of those named. Irreversible.

    A kernel is still compiled and loaded: a kernel that fails, fails as in the complete call.
    """
    function = getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None)
    compiled = getattr(sys.modules.get("triton.compiler.compiler"), "CompiledKernel", None)
    if function is None or compiled is None:
        return
    run, bound = function.run, compiled.__getitem__

    def ran(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kernels and getattr(self.fn, "__name__", "") not in kernels:
            return run(self, *args, **kwargs)
        kernel = run(self, *args, **{**kwargs, "warmup": True})
        getattr(kernel, "run", None)  # Loads the kernel; raises OutOfResources.
        return kernel

    def of_grid(self: Any, grid: Any) -> Any:
        return (lambda *_, **__: None) if not kernels or self.name in kernels else bound(self, grid)

    function.run, compiled.__getitem__ = ran, of_grid
