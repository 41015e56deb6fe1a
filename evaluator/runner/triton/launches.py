"""Launches of Triton kernels: counted in the interpreter (`emulated`), left out for an ablation (all devices).

The interpreter gets bfloat16, fp8 and TF32 with the values of a GPU. NumPy lacks these formats, so the interpreter
stores their bits as integers. It cuts bits off where GPUs round to nearest, loses the carry of a rounded mantissa, and
adds and multiplies the bits of bfloat16 as integers (seen with Triton 3.9). An honest kernel in bfloat16 would be wrong
on `emulated`, and correct on a GPU. Here operands in bfloat16 become fp32, and each result is rounded to nearest, in
reductions and scans too. fp8 saturates, as in the conversions of GPUs. `tl.dot` of fp32 operands uses TF32 unless told
otherwise, which the interpreter ignores.
"""

import sys
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np


class _Narrow(NamedTuple):
    """A format: bits of the mantissa, and exponent of the smallest normal number.

    Formats with a `largest` value saturate. `nan` is the code of NaN, and `infinity` the number that the interpreter
    reads in the place of infinity.
    """

    mantissa: int
    smallest_exponent: int
    largest: float | None = None
    nan: int | None = None
    infinity: float | None = None


_FORMATS = {
    "bf16": _Narrow(7, -126),
    "fp16": _Narrow(10, -14),
    "tf32": _Narrow(10, -126),
    "fp8e4nv": _Narrow(3, -6, 448.0, 0x7F),
    "fp8e5": _Narrow(2, -14, 57344.0, 0x7F, 65536.0),
}
"""By Triton's names of types. Other formats of fp8 keep the interpreter's conversion."""
_BF16 = "bf16"
_WIDE = ("fp16", "bf16", "fp32", "fp64")
_FP8 = ("fp8e4nv", "fp8e5")
_OPERATIONS = ("binary_op", "unary_op", "ternary_op", "create_fma", "create_dot")
_NEEDED = ("_convert_float", "TensorHandle", "interpreter_builder", "ReduceOps", "ScanOps", "tl", "_ir")


def install_narrow_floats(interpreter: Any) -> None:
    """Mend the conversions and the bfloat16 arithmetic of Triton's interpreter. Other versions stay unchanged."""
    if any(not hasattr(interpreter, name) for name in _NEEDED):
        return
    builder = type(interpreter.interpreter_builder)
    if any(not hasattr(builder, name) for name in (*_OPERATIONS, "cast_impl")):
        return
    interpreter._convert_float = _converting(interpreter)  # noqa: SLF001 - looked up at every conversion
    for name in _OPERATIONS:
        setattr(builder, name, _in_fp32(interpreter, getattr(builder, name)))
    builder.cast_impl = _casting_through_fp32(interpreter, builder.cast_impl)
    builder.create_dot = _in_tf32(interpreter, builder.create_dot)
    for kind in (interpreter.ReduceOps, interpreter.ScanOps):
        kind.apply_impl = _reducing(interpreter, kind.apply_impl)


def nearest(values: "np.ndarray[Any, Any]", to: str) -> "np.ndarray[Any, Any]":
    """Return fp32 or fp64 `values` rounded to the nearest value of a format, ties to even, in their own dtype.

    >>> nearest(np.array([1.9999, 500.0, 2.0**-9 * 2.5]), "fp8e4nv").tolist()
    [2.0, 448.0, 0.00390625]
    """
    form = _FORMATS[to]
    _, exponents = np.frexp(values)  # values are 0.5 to 1 times two to the power of the exponent
    places = np.maximum(exponents - 1, form.smallest_exponent) - form.mantissa
    # In float64, scaled subnormal numbers of fp32 keep all bits.
    with np.errstate(invalid="ignore", over="ignore"):
        rounded = np.ldexp(np.rint(np.ldexp(values.astype(np.float64), -places)), places)
        if form.largest is not None:
            rounded = np.clip(rounded, -form.largest, form.largest)
        narrow: np.ndarray[Any, Any] = rounded.astype(values.dtype)
    return narrow


def _converting(interpreter: Any) -> Callable[..., Any]:
    """Return a conversion with the rounding of a GPU. Rounded values leave the interpreter no bits to cut off."""
    convert, language = interpreter._convert_float, interpreter.tl  # noqa: SLF001
    cut_off = interpreter._ir.ROUNDING_MODE.RTZ  # noqa: SLF001

    def converted(data: Any, source: Any, target: Any, mode: Any) -> Any:
        if source.name == _BF16 and target.name != _BF16:
            wide = (data.astype(np.uint32) << 16).view(np.float32)
            return wide.view(np.uint32) if target.name == "fp32" else converted(wide, language.float32, target, mode)
        if source.name in _FP8 and target.name in _WIDE:
            wide = convert(data, source, language.float32, mode).view(np.float32)
            wide = _with_infinity(wide, _FORMATS[source.name])
            return wide.view(np.uint32) if target.name == "fp32" else converted(wide, language.float32, target, mode)
        is_narrower = source.name in _WIDE and source.primitive_bitwidth > target.primitive_bitwidth
        if target.name not in _FORMATS or not is_narrower or mode == cut_off:
            return convert(data, source, target, mode)
        rounded = nearest(data.astype(np.float32) if source.name == "fp16" else data, target.name)
        if target.name == _BF16:
            return (rounded.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        codes = convert(rounded, language.float64 if rounded.itemsize == 8 else language.float32, target, None)
        nan = _FORMATS[target.name].nan
        return codes if nan is None else np.where(np.isnan(data), codes.dtype.type(nan), codes)

    return converted


def _with_infinity(wide: "np.ndarray[Any, Any]", form: _Narrow) -> "np.ndarray[Any, Any]":
    """Return values of fp8 with NaN, and in e5m2 infinity, in place of the numbers that the interpreter reads."""
    assert form.largest is not None  # noqa: S101 - for the type checker
    size = np.abs(wide)
    special = np.where(size == form.infinity, np.copysign(np.float32(np.inf), wide), np.float32(np.nan))
    return np.where(size > form.largest, special, wide)


def _in_fp32(interpreter: Any, operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation of the builder that computes bfloat16 in fp32 and rounds the result."""
    language = interpreter.tl

    def is_bf16(value: Any) -> bool:
        return isinstance(value, interpreter.TensorHandle) and value.dtype.scalar.name == _BF16

    def done(builder: Any, *args: Any, **kwargs: Any) -> Any:
        if not any(is_bf16(arg) for arg in args):
            return operation(builder, *args, **kwargs)
        wide = [builder.cast_impl(arg, language.float32) if is_bf16(arg) else arg for arg in args]
        result = operation(builder, *wide, **kwargs)
        # Comparisons have the operands' type in the interpreter, and booleans as data.
        is_fp32 = result.dtype.scalar.name == "fp32" and result.data.dtype == np.float32
        sums = args[2] if operation.__name__ in ("create_dot", "create_fma", "ternary_op") else args[0]
        return builder.cast_impl(result, language.bfloat16) if is_fp32 and is_bf16(sums) else result

    return done


def _in_tf32(interpreter: Any, dot: Callable[..., Any]) -> Callable[..., Any]:
    """Return a product that rounds fp32 operands to TF32 where `input_precision` says so: the default of `tl.dot`.

    Tensor cores may cut the bits off instead. Rounding has half the error, so no kernel that a GPU accepts is refused.
    """
    asked_for = interpreter._ir.INPUT_PRECISION.TF32  # noqa: SLF001

    def rounded(operand: Any) -> Any:
        return interpreter.TensorHandle(nearest(operand.data, "tf32"), operand.dtype)

    def done(builder: Any, left: Any, right: Any, sums: Any, precision: Any, *rest: Any) -> Any:
        in_fp32 = left.dtype.scalar.name == right.dtype.scalar.name == "fp32"
        operands = (rounded(left), rounded(right)) if in_fp32 and precision == asked_for else (left, right)
        return dot(builder, *operands, sums, precision, *rest)

    return done


def _casting_through_fp32(interpreter: Any, cast: Callable[..., Any]) -> Callable[..., Any]:
    """Return a cast that converts integers and fp64 to bfloat16 and back; the interpreter would copy the bits."""
    language = interpreter.tl

    def done(builder: Any, source: Any, target: Any) -> Any:
        names = {source.dtype.scalar.name, target.scalar.name}
        if _BF16 in names and len(names) == 2 and "fp32" not in names:
            return cast(builder, cast(builder, source, language.float32), target)
        return cast(builder, source, target)

    return done


def _reducing(interpreter: Any, reduce: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction or scan of bfloat16 that rounds each sum and product, as a GPU does.

    The largest and smallest values and their places are exact in fp32. Other functions combine elements by operations
    of the builder.
    """
    standard = interpreter.tl.standard
    exact = [standard._elementwise_max, standard._elementwise_min]  # noqa: SLF001 - as the interpreter compares them
    exact += [
        getattr(standard, f"_arg{end}_combine_tie_break_{tie}") for end in ("min", "max") for tie in ("left", "fast")
    ]
    combining = {standard._sum_combine: np.add, standard._prod_combine: np.multiply}  # noqa: SLF001 - as above

    def done(operation: Any, operands: Any) -> Any:
        narrow = [operand.dtype.name == _BF16 for operand in operands]
        combine = combining.get(operation.combine_fn)
        if not any(narrow) or (combine is None and operation.combine_fn not in exact):
            return reduce(operation, operands)
        wide = tuple(
            _cast(operation, value, "float32") if bf16 else value for value, bf16 in zip(operands, narrow, strict=True)
        )
        if combine is None:
            reduced = reduce(operation, wide)
        elif isinstance(operation, interpreter.ReduceOps):
            reduced = _reduced(operation, wide[0], combine)
        else:
            reduced = _scanned(operation, wide[0], combine)
        results = reduced if isinstance(reduced, list | tuple) else [reduced]
        return [
            _cast(operation, result, "bfloat16") if bf16 and result.dtype.name == "fp32" else result
            for result, bf16 in zip(results, narrow, strict=False)
        ]

    def _cast(operation: Any, value: Any, to: str) -> Any:
        target = getattr(interpreter.tl, to)
        return operation.to_tensor(interpreter.interpreter_builder.cast_impl(value.handle, target).data, target)

    return done


def _reduced(operation: Any, value: Any, combine: Callable[..., Any]) -> Any:
    """Combine both halves of the axis until one element is left: one of the orders that a GPU may take."""
    data, axis = value.handle.data, operation.axis
    rows = data.reshape(-1) if axis is None else np.moveaxis(data, axis, 0)
    while len(rows) > 1:
        half = len(rows) // 2
        rows = np.concatenate([nearest(combine(rows[:half], rows[half : 2 * half]), _BF16), rows[2 * half :]])
    last = rows[0]
    if operation.keep_dims:
        last = last.reshape((1,) * data.ndim) if axis is None else np.expand_dims(last, axis)
    return operation.to_tensor(last, value.dtype)


def _scanned(operation: Any, value: Any, combine: Callable[..., Any]) -> Any:
    """Combine each element with the one 1, 2, 4 … places before: the order of a warp's scan."""
    rows = np.moveaxis(value.handle.data, operation.axis, 0)
    rows = rows[::-1] if operation.reverse else rows
    step = 1
    while step < len(rows):
        rows = np.concatenate([rows[:step], nearest(combine(rows[:-step], rows[step:]), _BF16)])
        step *= 2
    rows = rows[::-1] if operation.reverse else rows
    return operation.to_tensor(np.ascontiguousarray(np.moveaxis(rows, 0, operation.axis)), value.dtype)


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
