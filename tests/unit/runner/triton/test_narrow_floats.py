"""bfloat16 and fp8 in Triton's interpreter: the values of a GPU, with PyTorch's conversions as the standard."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from evaluator.runner.triton.launches import install_narrow_floats, nearest

interpreter = pytest.importorskip("triton.runtime.interpreter")
tl = importlib.import_module("triton.language")
FORMATS = {
    "fp16": (tl.float16, torch.float16, torch.int16),
    "bf16": (tl.bfloat16, torch.bfloat16, torch.int16),
    "fp8e4nv": (tl.float8e4nv, torch.float8_e4m3fn, torch.int8),
    "fp8e5": (tl.float8e5, torch.float8_e5m2, torch.int8),
}
CHANGED = ("binary_op", "unary_op", "ternary_op", "create_fma", "create_dot", "cast_impl")


@pytest.fixture
def builder(monkeypatch):
    """A builder of the interpreter with the mended arithmetic. Other tests have the interpreter's own."""
    kind = interpreter.InterpreterBuilder
    for name in CHANGED:
        monkeypatch.setattr(kind, name, getattr(kind, name))
    for operation in (interpreter.ReduceOps, interpreter.ScanOps):
        monkeypatch.setattr(operation, "apply_impl", operation.apply_impl)
    monkeypatch.setattr(interpreter, "_convert_float", interpreter._convert_float)
    install_narrow_floats(interpreter)
    return kind()


def handle(tensor, kind):
    if kind is tl.bfloat16 or (tensor.itemsize == 1 and tensor.is_floating_point()):
        tensor = tensor.view(torch.int16 if kind is tl.bfloat16 else torch.uint8)
        return interpreter.TensorHandle(tensor.numpy().view(np.uint16 if kind is tl.bfloat16 else np.uint8), kind)
    return interpreter.TensorHandle(tensor.numpy(), kind)


def tensor(handled, dtype):
    """The tensor with a handle's bits."""
    return torch.from_numpy(np.ascontiguousarray(handled.data).copy()).view(dtype)


def narrowed(builder, values, kind):
    """A GPU's casts to fp8 have a rounding mode of their own, those to other formats round to nearest."""
    mode = interpreter._ir.ROUNDING_MODE.RTNE
    given = handle(values, tl.float32)
    eight = kind.primitive_bitwidth == 8
    return builder.create_fp_to_fp(given, kind, mode) if eight else builder.create_fp_trunc(given, kind)


@pytest.mark.parametrize("name", FORMATS)
def test_a_cast_rounds_to_nearest(builder, name):
    kind, dtype, _ = FORMATS[name]
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(4096, generator=generator) * torch.exp(4 * torch.randn(4096, generator=generator))
    values = values.clamp(-440, 440)
    ties = torch.arange(1, 64, dtype=torch.float32) / 32  # in fp8, every other one lies in the middle
    for each in (values, ties, torch.tensor([0.0, -0.0, 1e-30, 1.96875, 1.99999, -3.99])):
        assert torch.equal(tensor(narrowed(builder, each, kind), dtype).float(), each.to(dtype).float())


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_survives_the_way_to_fp32_and_back(builder, name):
    kind, dtype, integer = FORMATS[name]
    codes = torch.arange(1 << 8 * dtype.itemsize).to(integer).view(dtype)
    wide = builder.create_fp_to_fp(handle(codes, kind), tl.float32, None)
    if name == "fp16":
        wide = builder.create_fp_ext(handle(codes, kind), tl.float32)
    assert torch.equal(tensor(wide, torch.float32).nan_to_num(7.0), codes.float().nan_to_num(7.0))
    finite = codes.float()[codes.float().isfinite()]
    assert torch.equal(tensor(narrowed(builder, finite, kind), dtype).float(), finite)


def test_fp8_saturates_and_keeps_nan(builder):
    values = torch.tensor([1e6, -1e6, float("inf"), float("nan")])
    found = tensor(narrowed(builder, values, tl.float8e4nv), torch.float8_e4m3fn).float().tolist()
    assert found[:3] == [448.0, -448.0, 448.0]
    assert found[3] != found[3]


def test_rounding_towards_zero_stays_the_interpreters(builder):
    given = handle(torch.tensor([1.96]), tl.float32)
    cut = builder.create_fp_to_fp(given, tl.float8e4nv, interpreter._ir.ROUNDING_MODE.RTZ)
    assert tensor(cut, torch.float8_e4m3fn).float().item() == 1.875


def test_arithmetic_in_bfloat16_rounds_each_result(builder):
    one, other = (torch.randn(256, generator=torch.Generator().manual_seed(seed)).bfloat16() for seed in (1, 2))
    a, b = handle(one, tl.bfloat16), handle(other, tl.bfloat16)
    for operation, expected in (
        (builder.create_fadd, one + other),
        (builder.create_fmul, one * other),
        (builder.create_fdiv, one / other),
        (builder.create_maximumf, torch.maximum(one, other)),
    ):
        result = operation(a, b)
        assert result.dtype is tl.bfloat16
        assert torch.equal(tensor(result, torch.bfloat16), expected)
    assert torch.equal(tensor(builder.create_fneg(a), torch.bfloat16), -one)
    assert builder.create_fcmpOLT(a, b).data.tolist() == (one < other).tolist()
    chosen = interpreter.TensorHandle((one < other).numpy(), tl.int1)
    assert torch.equal(tensor(builder.create_select(chosen, a, b), torch.bfloat16), torch.minimum(one, other))


def test_a_product_of_bfloat16_matrices_is_summed_in_fp32(builder):
    one, other = (torch.randn(16, 16, generator=torch.Generator().manual_seed(seed)).bfloat16() for seed in (1, 2))
    zeros = handle(torch.zeros(16, 16), tl.float32)
    found = builder.create_dot(handle(one, tl.bfloat16), handle(other, tl.bfloat16), zeros, None, 0)
    assert found.dtype is tl.float32
    torch.testing.assert_close(tensor(found, torch.float32), one.float() @ other.float())


@pytest.mark.parametrize(("precision", "bits"), [("TF32", 10), ("IEEE", 23), ("TF32x3", 23)])
def test_a_product_of_fp32_matrices_has_the_precision_asked_for(builder, precision, bits):
    """Values of TF32 near 1 are 2^-10 apart."""
    given = torch.eye(16) * (1 + 2.0**-12)
    given[1, 1] = 1 + 3 * 2.0**-12
    other = torch.eye(16)
    zeros = handle(torch.zeros(16, 16), tl.float32)
    asked_for = getattr(interpreter._ir.INPUT_PRECISION, precision)
    found = builder.create_dot(handle(given, tl.float32), handle(other, tl.float32), zeros, asked_for, 0)
    diagonal = tensor(found, torch.float32).diagonal()
    assert diagonal[:2].tolist() == ([1.0, 1 + 2.0**-10] if bits == 10 else [1 + 2.0**-12, 1 + 3 * 2.0**-12])


def test_half_precision_operands_stay_as_they_are(builder):
    given = torch.full((16, 16), 2.0**-24, dtype=torch.float16)
    zeros = handle(torch.zeros(16, 16), tl.float32)
    tf32 = interpreter._ir.INPUT_PRECISION.TF32
    found = builder.create_dot(handle(given, tl.float16), handle(torch.eye(16).half(), tl.float16), zeros, tf32, 0)
    assert torch.equal(tensor(found, torch.float32), given.float())


def test_integers_become_the_nearest_bfloat16(builder):
    whole = torch.arange(-400, 400, dtype=torch.int32)
    found = builder.create_si_to_fp(handle(whole, tl.int32), tl.bfloat16)
    assert torch.equal(tensor(found, torch.bfloat16), whole.to(torch.bfloat16))


def test_a_tie_takes_the_even_neighbour():
    assert nearest(np.array([1.0625, 1.1875], dtype=np.float32), "fp8e4nv").tolist() == [1.0, 1.25]


def block(values):
    return tl.core.tensor(handle(values.bfloat16(), tl.bfloat16), tl.block_type(tl.bfloat16, list(values.shape)))


@pytest.mark.parametrize("axis", [0, None])
def test_each_sum_of_a_reduction_is_rounded(builder, axis):
    """257 lies between 256 and 258: computed in fp32 and rounded once, the sum would be 260."""
    given = block(torch.tensor([256.0, 1.0, 1.0, 1.0]))
    (total,) = interpreter.ReduceOps(axis, tl.standard._sum_combine, keep_dims=False).apply((given,))
    assert total.dtype is tl.bfloat16
    assert tensor(total.handle, torch.bfloat16).item() == 258.0


@pytest.mark.parametrize(("axis", "keep_dims"), [(1, False), (1, True), (0, True), (None, True)])
def test_a_reduction_keeps_the_other_axes(builder, axis, keep_dims):
    given = torch.arange(16.0).reshape(2, 4, 2)
    (total,) = interpreter.ReduceOps(axis, tl.standard._sum_combine, keep_dims=keep_dims).apply((block(given),))
    assert torch.equal(tensor(total.handle, torch.bfloat16).float(), given.sum(axis, keepdim=keep_dims))


@pytest.mark.parametrize(
    ("combine", "reverse", "given", "running"),
    [
        ("_sum_combine", False, [256.0, 1.0, 1.0, 1.0], [256.0, 256.0, 258.0, 258.0]),
        ("_sum_combine", True, [1.0, 1.0, 1.0, 256.0], [258.0, 258.0, 256.0, 256.0]),
        ("_prod_combine", False, [2.0, 3.0, 0.5, 4.0], [2.0, 6.0, 3.0, 12.0]),
    ],
)
def test_each_step_of_a_scan_is_rounded(builder, combine, reverse, given, running):
    scan = interpreter.ScanOps(0, getattr(tl.standard, combine), reverse=reverse)
    (found,) = scan.apply((block(torch.tensor(given)),))
    assert tensor(found.handle, torch.bfloat16).tolist() == running


def test_the_largest_value_and_its_place_are_exact(builder):
    given = torch.randn(64, generator=torch.Generator().manual_seed(1)).bfloat16()
    places = tl.core.tensor(handle(torch.arange(64, dtype=torch.int32), tl.int32), tl.block_type(tl.int32, [64]))
    find = interpreter.ReduceOps(0, tl.standard._argmax_combine_tie_break_left, keep_dims=False)
    largest, place = find.apply((block(given), places))
    assert tensor(largest.handle, torch.bfloat16).item() == given.max().item()
    assert place.handle.data.item() == given.argmax().item()


def stand_in(*, lacks):
    """An interpreter with all that the mended arithmetic needs, apart from a name of its module or of its builder."""
    names = {"_convert_float", "TensorHandle", "ReduceOps", "ScanOps", "tl", "_ir", "interpreter_builder"}
    kind = type("Builder", (), {name: id for name in CHANGED if name != lacks})
    module = SimpleNamespace(**{name: SimpleNamespace() for name in names if name != lacks})
    if lacks != "interpreter_builder":
        module.interpreter_builder = kind()
    return module, kind


@pytest.mark.parametrize("lacks", ["_convert_float", "interpreter_builder", "_ir", *CHANGED])
def test_other_versions_of_the_interpreter_stay_unchanged(lacks):
    module, kind = stand_in(lacks=lacks)
    before = dict(vars(module)), dict(vars(kind))
    install_narrow_floats(module)
    assert (vars(module), dict(vars(kind))) == before
