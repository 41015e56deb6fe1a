"""Outputs in formats of few bits: one step is honest, two steps are not, and few elements may be a step off."""

import re
from pathlib import Path

import pytest
import torch

from evaluator.admission.numeric_controls import ONE_IN, off_by
from evaluator.judge.compare.limits import limit_of, with_scales
from evaluator.judge.compare.steps import FEW_ONE_IN, Steps
from evaluator.judge.compare.tensor_comparison import Sides, compare
from evaluator.judge.compare.tolerance import Bounds
from evaluator.judge.reference.input_distributions import change
from evaluator.judge.tensors.number_formats import codes_at, dtype_of, elements, is_packed, nearest
from evaluator.records import ElementFormat, Formats, OutputFormat, Precision, Profile, ToleranceRule
from tests.unit.references import problem

F = ElementFormat
BLOCKS = {F.MXFP4: 32, F.NVFP4: 16}
ROWS, WIDTH = 16, 256
PAGE = (Path(__file__).parents[4] / "docs/formats.md").read_text(encoding="utf-8")
INT8_IN_BF16 = problem("x", formats=Formats(outputs={"output": OutputFormat(F.INT8)}), precision=Precision.BF16)


def drawn(form):
    """Draw codes of every place of a format."""
    most = {F.INT8: 127, F.FP8_E4M3: 126, F.FP8_E5M2: 123, F.E8M0: 127}.get(form, 7)
    least = 0 if form is F.E8M0 else -most
    generator = torch.Generator().manual_seed(1)
    return codes_at(torch.randint(least, most + 1, (ROWS, WIDTH), generator=generator), form)


def scales_of(form, value=1.0):
    shape = (ROWS, WIDTH // BLOCKS[form])
    if form is F.NVFP4:
        return torch.full(shape, value).to(torch.float8_e4m3fn)
    return torch.full(shape, 127 + round(torch.tensor(value).log2().item()), dtype=torch.uint8)


def limit(form, floor=5e-5):
    scales = scales_of(form) if form in BLOCKS else None
    floor = 0.0 if form in (F.INT8, F.INT4, F.E8M0) else floor
    return Steps(form, floor, 4.0, None if scales is None else Sides(scales, scales, scales))


def moved(codes, form, steps, one_in):
    """Move one of `one_in` elements by steps towards zero, or away where zero is too near."""
    places = elements(codes, form).places.clone()
    flat = places.view(-1)[::one_in]
    flat.copy_(torch.where(flat.abs() >= steps, flat - steps * flat.sign(), flat + steps))
    return codes_at(places, form)


def compared(form, actual, exact, honest=None, **changes):
    honest = exact if honest is None else honest
    return compare("output", Sides(actual, exact, honest), limit(form, **changes))


@pytest.mark.parametrize("form", F)
def test_a_step_in_a_few_elements_passes(form):
    codes = drawn(form)
    check = compared(form, moved(codes, form, 1, 128), codes)
    assert check.ok
    assert check.max_abs_error > 0


@pytest.mark.parametrize("form", F)
def test_two_steps_in_a_single_element_fail(form):
    codes = drawn(form)
    check = compared(form, moved(codes, form, 2, codes.numel() * 2), codes)
    assert (check.ok, check.mismatches, check.first_mismatch.index) == (False, 1, [0, 0])
    assert check.error_ratio > 1


@pytest.mark.parametrize("form", F)
def test_a_step_in_half_of_the_elements_fails(form):
    """As of a kernel that cuts off where the reference rounds."""
    codes = drawn(form)
    check = compared(form, moved(codes, form, 1, 2), codes)
    assert not check.ok
    assert check.mismatches > codes.numel() / 8
    assert check.first_mismatch.index == [0, 0]


@pytest.mark.parametrize(
    ("form", "values"), [(F.FP8_E4M3, [1.0]), (F.FP8_E4M3, [1.0] * 15), (F.E8M0, [1.0] * 4), (F.INT8, [3.0, 5.0, 7.0])]
)
def test_a_step_in_a_few_elements_of_a_small_output_fails(form, values):
    exact = nearest(torch.tensor(values), form)
    actual = codes_at(elements(exact, form).places + 1, form)
    one = exact.clone().view(torch.uint8)
    one[0] = actual.view(torch.uint8)[0]
    for wrong in (actual, one.view(exact.dtype)):
        check = compared(form, wrong, exact)
        assert (check.ok, check.error_ratio) == (False, None)
    assert compared(form, actual, exact, honest=actual).ok


@pytest.mark.parametrize("form", [F.INT8, F.INT4])
def test_the_controls_in_small_outputs(form):
    """A step in few elements is honest, two steps are not: of any number of elements."""
    declared = problem("x", formats=Formats(outputs={"output": OutputFormat(form)}))
    for count in (1, 2, 15, 16, 17, 63, 65, 127, 129, 257, 4097):
        codes = torch.zeros(count, dtype=dtype_of(form))
        few = off_by(declared, {"output": codes}, 1, ONE_IN, fewest=FEW_ONE_IN)
        two = off_by(declared, {"output": codes}, 2, ONE_IN)
        half = off_by(declared, {"output": codes}, 1, 2)
        assert (few is None) == (count < 16)
        assert few is None or compared(form, few["output"], codes).ok, count
        assert not compared(form, two["output"], codes).ok, count
        assert not compared(form, half["output"], codes).ok, count


def test_the_honest_references_own_steps_widen_the_number():
    exact = drawn(F.INT8)
    honest, actual = moved(exact, F.INT8, 1, 40), moved(exact, F.INT8, 1, 10)
    assert not compared(F.INT8, actual, exact).ok
    assert compared(F.INT8, actual, exact, honest).ok


def quantised(x):
    """Return the quotients of rows of bf16 by their scales, and int8 codes with bf16 arithmetic."""
    quotients = x / (x.abs().amax(-1, keepdim=True) / 127)
    return quotients, quotients.round().clamp(-127, 127).to(torch.int8)


def test_a_step_in_most_elements_fails_in_bf16_too():
    """The floor of bf16 is more than a step for such rows, and a fifth of the honest reference's own codes are off."""
    x = (torch.rand(128, 512, generator=torch.Generator().manual_seed(2)) * 2 - 1).bfloat16()
    (quotients, exact), (_, honest) = quantised(x.double()), quantised(x)
    assert (exact != honest).sum() > exact.numel() / 6
    whole = exact.short()
    wrong = {
        "one more": whole + 1,
        "one step towards zero": whole - whole.sign(),
        "floor": quotients.floor(),
        "cut off": quotients.trunc(),
    }
    used = limit_of(INT8_IN_BF16, "output", exact)
    for name, codes in wrong.items():
        actual = codes.clamp(-127, 127).to(torch.int8)
        assert not compare("output", Sides(actual, exact, honest), used).ok, name


@pytest.mark.parametrize("shape", [(64, 512), (5, 509), (1, 64)])
@pytest.mark.parametrize("profile", Profile)
def test_quantisers_in_fp32_pass_in_bf16(shape, profile):
    drawn = (torch.rand(shape, generator=torch.Generator().manual_seed(3)) * 2 - 1).bfloat16()
    x = change(profile, [], drawn, 4, torch.device("cpu"))
    (_, exact), (_, honest) = quantised(x.double()), quantised(x)
    wide = x.float()
    most = wide.abs().amax(-1, keepdim=True)
    for quotients in (wide * (127 / most), wide * (1 / (most / 127)), wide / most * 127, wide / (most / 127)):
        actual = quotients.round().clamp(-127, 127).to(torch.int8)
        assert compare("output", Sides(actual, exact, honest), limit_of(INT8_IN_BF16, "output", exact)).ok


@pytest.mark.parametrize(
    ("form", "values", "count", "passes"),
    [
        (F.INT8, [3.0, 3.0], 6, True),
        (F.FP8_E4M3, [3.0, 3.0], 6, True),
        (F.INT4, [3.0, 3.0], 6, True),
        (F.MXFP4, [3.0, 3.0], 6, True),
        (F.INT8, [3.0, 3.0], 7, False),  # More than a fifth of the rows, as of values cut off.
        (F.INT8, [3.0, 4.0], 6, False),
        (F.INT4, [3.0, 4.0], 6, False),
        (F.INT8, [0.0, 0.0], 2, False),  # Zero is never near a middle.
    ],
)
def test_rows_of_a_single_value_are_off_as_a_whole(form, values, count, passes):
    """As of inputs that are constant in rows: a rounding decides about a row."""
    exact = nearest(torch.tensor(values).repeat(32, WIDTH // 2), form)
    places = elements(exact, form).places
    places[:count] += 1
    scales = scales_of(form).repeat(2, 1) if form in BLOCKS else None
    used = limit(form)._replace(scales=scales if scales is None else Sides(scales, scales, scales))
    check = compare("output", Sides(codes_at(places, form), exact, exact), used)
    assert check.ok is passes
    assert check.mismatches == (0 if passes else count * exact.shape[1])


def test_another_order_of_two_roundings_passes_for_constant_rows():
    def cast(values):
        return values.clamp(-448, 448).to(torch.float8_e4m3fn)

    generator = torch.Generator().manual_seed(5)
    failures = 0
    for _ in range(100):
        x = torch.randn(5, 1, generator=generator).expand(5, 509).bfloat16()
        a, b = torch.randn(2, generator=generator).bfloat16()
        exact, honest = cast(x.double() * a.double() * b.double()), cast(x * a * b)
        failures += not compared(F.FP8_E4M3, cast(x * (a * b)), exact, honest, floor=2.0**-6).ok
    assert failures == 0


def test_the_step_of_a_large_fp8_value_is_large():
    exact = torch.full((1, 256), 256.0).to(torch.float8_e4m3fn)
    for value, passes in ((288.0, True), (320.0, False), (240.0, True), (224.0, False)):
        actual = exact.clone()
        actual[0, 7] = value
        check = compared(F.FP8_E4M3, actual, exact)
        assert check.ok is passes, value
        assert check.max_abs_error == abs(value - 256)


def test_near_zero_the_rounding_of_the_arithmetic_is_larger_than_a_step():
    exact = torch.full((1, 256), 1024.0)
    exact[0, 5] = 2.0**-16
    actual = exact.clone()
    actual[0, 5] = 2.0**-8
    actual, exact = actual.to(torch.float8_e5m2), exact.to(torch.float8_e5m2)
    assert compared(F.FP8_E5M2, actual, exact, floor=5e-5).ok
    assert not compared(F.FP8_E5M2, actual, exact, floor=0.0).ok


@pytest.mark.parametrize(("form", "value"), [(F.FP8_E4M3, "nan"), (F.FP8_E5M2, "nan"), (F.FP8_E5M2, "inf")])
def test_nan_and_infinity_pass_only_where_the_reference_has_them(form, value):
    codes = drawn(form)
    odd = codes.clone()
    odd[3, 9] = float(value)
    assert compared(form, odd, odd).ok
    for actual, exact in ((odd, codes), (codes, odd)):
        check = compared(form, actual, exact)
        assert (check.ok, check.mismatches, check.nonfinite, check.first_mismatch.index) == (False, 1, 1, [3, 9])


def test_the_place_in_a_packed_output_is_a_byte_and_the_values_are_its_elements():
    exact = torch.zeros(2, 8, dtype=torch.uint8)
    actual = exact.clone()
    actual[1, 3] = 0x5F  # -1 in the low bits, 5 in the high bits.
    check = compared(F.INT4, actual, exact)
    assert (check.shape, check.mismatches, check.first_mismatch.index) == ([2, 8], 1, [1, 3])
    assert (check.first_mismatch.expected, check.first_mismatch.actual) == ("0.0", "5.0")


@pytest.mark.parametrize("form", BLOCKS)
def test_blocks_are_compared_after_dequantisation(form):
    """Values of 1 and 3 with a scale of 2 are values of 2 and 6 with a scale of 1."""
    small, large = (codes_at(torch.tensor([[2, 5]]).repeat(ROWS, WIDTH // 2), form),
                    codes_at(torch.tensor([[4, 7]]).repeat(ROWS, WIDTH // 2), form))  # fmt: skip
    one, two = scales_of(form, 1.0), scales_of(form, 2.0)
    assert compare("output", Sides(small, large, large), Steps(form, 5e-5, 4.0, Sides(two, one, one))).ok
    assert not compare("output", Sides(small, large, large), Steps(form, 5e-5, 4.0, Sides(one, one, one))).ok
    assert not compare("output", Sides(large, large, large), Steps(form, 5e-5, 4.0, Sides(two, one, one))).ok


@pytest.mark.parametrize("form", BLOCKS)
@pytest.mark.parametrize("each", [2, 16])
def test_a_row_may_have_a_single_block(form, each):
    """Each row of codes has its own scale, also if a row is one block, or one byte of a block."""
    given = torch.arange(1, 9).repeat(ROWS, 2)[:, :each] % 8
    codes = codes_at(given, form)
    scales = scales_of(form)[:, :1].clone()
    scales[3] = scales_of(form, 4.0)[3, :1]
    limits = Steps(form, 5e-5, 4.0, Sides(scales, scales, scales))
    assert compare("output", Sides(codes, codes, codes), limits).ok
    other = scales_of(form)[:, :1]
    check = compare("output", Sides(codes, codes, codes), limits._replace(scales=Sides(scales, other, other)))
    assert (check.ok, check.first_mismatch.index[0]) == (False, 3)


def test_codes_with_a_trailing_dimension_of_one_are_a_row():
    """Two steps of a tiny code are below the tolerance of the whole row, and beyond that of a row of its own."""
    exact = torch.full((512, 1), 448.0)
    exact[7] = 2.0**-9
    actual = exact.clone()
    actual[7] = 3 * 2.0**-9
    codes, others = exact.to(torch.float8_e4m3fn), actual.to(torch.float8_e4m3fn)
    assert compared(F.FP8_E4M3, others.view(512), codes.view(512)).ok
    assert compared(F.FP8_E4M3, others, codes).ok


def test_a_scale_of_zero_allows_zeros_alone():
    codes = codes_at(torch.zeros(ROWS, WIDTH), F.NVFP4)
    other = codes_at(torch.ones(ROWS, WIDTH), F.NVFP4)
    zero, one = scales_of(F.NVFP4, 0.0), scales_of(F.NVFP4, 1.0)
    sides = Sides(one, zero, zero)
    assert compare("output", Sides(codes, codes, codes), Steps(F.NVFP4, 5e-5, 4.0, sides)).ok
    assert not compare("output", Sides(other, codes, codes), Steps(F.NVFP4, 5e-5, 4.0, sides)).ok


def test_scales_far_below_the_largest_of_a_row_are_no_zeros():
    """As of a row with an outlier. In bf16, a floor for the row would hide the scales of all other blocks."""
    outputs = {"output[0]": OutputFormat(F.NVFP4, "output[1]")}
    made = problem("x", formats=Formats(outputs=outputs), precision=Precision.BF16)
    exact = scales_of(F.NVFP4)
    exact[:, 0] = 448
    actual = exact.clone()
    actual[:, 1:] = 0
    sides = Sides(actual, exact, exact)
    assert compare("output[1]", sides, Steps(F.FP8_E4M3, 2.0**-6, 4.0)).ok
    assert not compare("output[1]", sides, limit_of(made, "output[1]", exact)).ok


def test_a_large_output_is_compared_in_pieces(monkeypatch):
    monkeypatch.setattr("evaluator.judge.compare.steps._CHUNK_ELEMENTS", 3 * WIDTH)
    codes = drawn(F.INT8)
    actual = codes.clone()
    actual[10, 4] = codes[10, 4] ^ 0x40
    check = compared(F.INT8, actual, codes)
    assert (check.mismatches, check.first_mismatch.index) == (1, [10, 4])
    assert not compared(F.INT8, moved(codes, F.INT8, 1, 2), codes).ok


def test_an_output_without_elements_passes():
    for form in (F.INT8, F.INT4):
        empty = codes_at(torch.empty(4, 0), form)
        assert compare("output", Sides(empty, empty, empty), Steps(form, 5e-5, 4.0)).ok


def test_the_limit_follows_from_the_declaration_and_from_the_dtype():
    codes = torch.zeros(4, dtype=torch.int8)
    outputs = {"output[0]": OutputFormat(F.MXFP4, "output[1]"), "output[2]": OutputFormat(F.INT8)}
    made = problem("x", formats=Formats(outputs=outputs), precision=Precision.BF16)
    assert limit_of(made, "output", codes) is None
    assert limit_of(made, "output[2]", codes) == Steps(F.INT8, 0.0, 2.0)
    assert limit_of(made, "output[1]", codes.view(torch.uint8)) == Steps(F.E8M0, 0.0, 2.0)
    assert limit_of(made, "output", codes.view(torch.float8_e5m2)).form is F.FP8_E5M2
    assert limit_of(made, "output", codes.view(torch.float8_e5m2)).floor == 2.0**-10
    assert isinstance(limit_of(made, "output", torch.zeros(1)), Bounds)
    assert limit_of(made, "output[2]", codes, rule=ToleranceRule.KERNELBENCH).floor == 1e-4
    sides = {"output[1]": Sides(codes, codes, codes)}
    assert with_scales(limit_of(made, "output[0]", codes), made, "output[0]", sides).scales is sides["output[1]"]
    assert is_packed(limit_of(made, "output[0]", codes).form)


def test_kernelbenchs_rule_compares_values_of_fp8():
    exact = drawn(F.FP8_E4M3)
    rule = limit_of(problem("x"), "output", exact, rule=ToleranceRule.KERNELBENCH)
    assert compare("output", Sides(exact, exact, exact), rule).ok
    assert not compare("output", Sides(moved(exact, F.FP8_E4M3, 1, 9999), exact, exact), rule).ok


@pytest.fixture(scope="module")
def normal():
    return torch.randn(256, 4096, generator=torch.Generator().manual_seed(6))


def on_the_page(sentence):
    """Return the share in per cent that a sentence of the page names."""
    return re.search(sentence.replace(" ", r"\s"), PAGE)[1]


def test_a_quantiser_of_values_rounded_to_bf16_fails(normal):
    to_127 = 127 / normal.abs().amax(-1, keepdim=True)
    exact, cut = (normal * to_127).round().to(torch.int8), (normal * to_127).trunc().to(torch.int8)
    early = (normal.bfloat16() * to_127).round().to(torch.int8)
    share = (early != exact).float().mean()
    assert f"{100 * share:.0f}" == on_the_page(r"first rounded to bf16, (\d+) % are a step off in int8")
    assert not compared(F.INT8, early, exact).ok
    assert float((cut != exact).float().mean()) == pytest.approx(0.5, abs=0.01)
    assert not compared(F.INT8, cut, exact).ok


def test_ties_rounded_away_from_even(normal):
    """A factor of 1 + 2**-20 moves ties past the middle, and no other value in bf16."""
    values = normal.bfloat16().float()
    away = 1 + 2.0**-20
    blocks = values.view(-1, BLOCKS[F.MXFP4])
    scaled = (blocks / 2.0 ** (blocks.abs().amax(-1, keepdim=True).log2().floor() - 2)).view(values.shape)
    exact, actual = nearest(scaled, F.MXFP4), nearest(scaled * away, F.MXFP4)
    share = (elements(exact, F.MXFP4).places != elements(actual, F.MXFP4).places).float().mean()
    assert f"{100 * share:.1f}" == on_the_page(r"in bf16, ([\d.]+) % are a step off in mxfp4")
    scales = torch.full((len(values), values.shape[1] // BLOCKS[F.MXFP4]), 127, dtype=torch.uint8)
    limit_of_ones = limit(F.MXFP4)._replace(scales=Sides(scales, scales, scales))
    assert compare("output", Sides(actual, exact, exact), limit_of_ones).ok
    int8 = values * 32
    share = ((int8 * away).round() != int8.round()).float().mean()
    assert f"{100 * share:.1f}" == on_the_page(r"differs from `round` in ([\d.]+) % of the int8 codes")
