import math

import pytest
import torch

from evaluator.judge.compare.fused_kernel import FusedComparison
from evaluator.judge.compare.row_sizes import as_rows, is_exact, may_exceed
from evaluator.judge.compare.tensor_comparison import Sides, compare
from evaluator.judge.compare.tolerance import Bounds, bounds
from evaluator.records import Mode, Precision, Problem, SizeName, ToleranceOverride, ToleranceRule, cases_of


def problem(**tolerance):
    return Problem(
        name="p",
        title="p",
        level=1,
        description="",
        origin="shipped",
        path="p",
        source="",
        sha256="0" * 64,
        cases=cases_of({SizeName.FULL: {}}),
        precision=Precision.FP32,
        mode=Mode.TRAIN,
        backward=False,
        tolerance=ToleranceOverride(**tolerance),
        split={},
    )


def measured(dtype=torch.float32, **tolerance) -> Bounds:
    return bounds(ToleranceRule.MEASURED, problem(**tolerance), dtype)


def sides(actual, exact, honest=None):
    exact = torch.as_tensor(exact, dtype=torch.float64)
    honest = exact.float() if honest is None else honest
    return Sides(torch.as_tensor(actual, dtype=honest.dtype), exact, honest)


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_honest_result_passes():
    exact = noise(64, 512)
    check = compare("output", sides(exact.float(), exact), measured())
    assert check.ok
    assert check.mismatches == 0
    assert check.first_mismatch is None
    assert check.error_ratio == check.honest_error_ratio


@pytest.mark.parametrize("relative", [1e-3, 3e-4])
def test_an_error_well_above_rounding_fails_at_its_place(relative):
    exact = noise(8, 100)
    wrong = exact.float()
    wrong[3, 7] += relative * float(exact[3].square().mean().sqrt())
    check = compare("output", sides(wrong, exact), measured())
    assert not check.ok
    assert check.mismatches == 1
    assert check.first_mismatch.index == [3, 7]
    assert check.error_ratio > 1
    assert float(check.first_mismatch.expected) == pytest.approx(float(exact[3, 7]))


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ((8, 3), (8, 3)),
        ((8, 3, 1, 1), (8, 3)),
        ((8, 1, 3), (8, 3)),
        ((8,), (1, 8)),
        ((8, 1), (1, 8)),
        ((8, 1, 1), (1, 8)),
        ((1, 8, 1), (1, 8)),
        ((1, 1), (1, 1)),
        ((1,), (1, 1)),
        ((), (1, 1)),
        ((0, 1), (1, 0)),
        ((8, 0, 1), (8, 0)),
        ((0, 8, 1), (0, 8)),
    ],
)
def test_a_row_is_the_last_dimension_of_more_than_one_element(shape, rows):
    assert as_rows(torch.zeros(shape)).shape == rows


@pytest.mark.parametrize("shape", [(256, 1), (256, 1, 1), (1, 256, 1)])
def test_an_element_is_no_row_of_its_own(shape):
    """One fp32 accumulator over 131,072 terms is off by 1e-2 where the terms cancel to 10 of 362, and honest."""
    exact = 362 * noise(256)
    exact[2] = -10.46
    near, far = exact.float(), exact.float()
    near[2] += 0.5 * measured().floor * 362
    far[2] += 2 * measured().floor * 362
    for answer, ok in ((near, True), (far, False)):
        checks = [compare("output", sides(answer.view(form), exact.view(form)), measured()) for form in (shape, (256,))]
        assert [check.ok for check in checks] == [ok, ok]
        assert checks[0].error_ratio == checks[1].error_ratio


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [32, 256])
def test_rounded_operands_fail_where_each_product_has_one_column(dtype, rows):
    a, b = noise(rows, 512), noise(512, 1, seed=1)
    exact = a.float().double() @ b.float().double()
    wrong = a.to(dtype).float() @ b.to(dtype).float()
    assert compare("output", sides(a.float() @ b.float(), exact), measured()).ok
    assert not compare("output", sides(wrong, exact), measured()).ok


def test_zeros_do_not_pass_for_small_outputs():
    exact = noise(4, 1000).abs() * 1e-6
    assert not compare("output", sides(torch.zeros(4, 1000), exact), measured()).ok


def test_zeros_do_not_pass_in_a_row_that_is_small_beside_the_others():
    exact = noise(4, 1000)
    exact[2] *= 1e-2
    wrong = exact.float()
    wrong[2] = 0
    check = compare("output", sides(wrong, exact), measured())
    assert not check.ok
    assert check.first_mismatch.index[0] == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_the_operands_of_a_product_to_half_precision_fails_in_fp32(dtype):
    left, right = noise(32, 256, seed=1), noise(256, 32, seed=2)
    exact = left.float().double() @ right.float().double()
    honest = left.float() @ right.float()
    rounded = left.to(dtype).float() @ right.to(dtype).float()
    assert compare("output", sides(honest, exact, honest), measured()).ok
    assert not compare("output", sides(rounded, exact, honest), measured()).ok


def test_another_order_of_summation_passes():
    rows = noise(16, 8192).float()
    exact = rows.double().sum(1, keepdim=True).expand(16, 4).clone()
    honest = rows.sum(1, keepdim=True).expand(16, 4).clone()
    naive = torch.zeros(16)
    for column in rows.unbind(1):
        naive += column
    assert compare("output", sides(naive.unsqueeze(1).expand(16, 4), exact, honest), measured()).ok


def flipped(values, elements, by=0.3):
    """Move some elements, as a function with steps does between float64 and fp32."""
    moved = values.clone()
    moved.view(-1)[elements] += by
    return moved


def test_one_element_that_flips_does_not_open_the_tolerance_of_all():
    exact = noise(64, 512)
    honest = flipped(exact.float(), 7)
    assert compare("output", Sides(honest, exact, honest), measured()).ok
    check = compare("output", Sides((exact * (1 + 1e-2)).float(), exact, honest), measured())
    assert not check.ok
    assert check.mismatches > 20_000
    assert 1 < check.error_ratio < 100
    assert check.first_mismatch.index == [0, 0]
    assert check.tolerance == pytest.approx(4 * check.honest_error_ratio * check.tolerance, rel=1e-3)
    assert check.tolerance > 0.9


@pytest.mark.parametrize(("count", "ok"), [(1, True), (36, True), (37, False), (2000, False)])
def test_other_elements_may_flip_and_hardly_more_of_them(count, ok):
    exact = noise(64, 512)
    honest = flipped(exact.float(), 7)
    actual = flipped(exact.float(), slice(100, 100 + count))
    check = compare("output", Sides(actual, exact, honest), measured())
    assert (check.ok, check.mismatches) == (ok, 0 if ok else count)


def test_where_the_reference_flips_often_a_submission_may_too():
    exact = noise(64, 512)
    honest = flipped(exact.float(), slice(0, 1000))
    assert compare("output", Sides(flipped(exact.float(), slice(1000, 4900)), exact, honest), measured()).ok
    assert not compare("output", Sides(flipped(exact.float(), slice(1000, 6000)), exact, honest), measured()).ok


def test_a_reference_that_is_inexact_everywhere_allows_as_much_as_ever():
    exact = noise(64, 512)
    honest = (exact * (1 + 1e-3 * noise(64, 512, seed=4))).float()
    assert compare("output", Sides((exact * (1 + 2e-3 * noise(64, 512, seed=5))).float(), exact, honest), measured()).ok


def test_an_inexact_reference_with_one_flip_allows_no_larger_errors_to_all():
    exact = noise(64, 512)
    honest = flipped((exact * (1 + 1e-3 * noise(64, 512, seed=4))).float(), 7)
    actual = (exact + 0.1 * noise(64, 512, seed=5)).float()
    assert not compare("output", Sides(actual, exact, honest), measured()).ok


@pytest.mark.parametrize(("part", "ok"), [(0.9, True), (1.1, False)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_element_far_larger_than_its_row_has_the_tolerance_of_its_own_size(dtype, part, ok):
    """Below 1024 of a power of two, half a unit in the last place of fp32 is 2**-24 of it, and of bf16 2**-8."""
    exact = noise(100, 4096)
    exact[:, 0] = 1024
    half_unit, floor = {torch.float32: (2.0**-24, 5e-5), torch.bfloat16: (2.0**-8, 2.0**-10)}[dtype]
    # The row's size is 16: its tolerance alone is a 64th of this.
    honest = exact.to(dtype)
    actual = honest.double()
    actual[:, 0] += part * 1024 * (half_unit + floor)
    limits = measured(dtype)
    found = compare("output", Sides(actual, exact, honest.double()), limits)
    assert (found.ok, found.mismatches) == (ok, 0 if ok else 100)
    assert found.error_ratio == pytest.approx(part, rel=1e-3)


@pytest.mark.parametrize("units", [1.0, 10.0, 40.0])
def test_four_times_the_error_of_the_reference_in_an_element_passes(units):
    """The element's own tolerance makes up for the units excluded from the honest error."""
    exact = noise(8, 512)
    exact[:, 0] *= 100
    error = units * torch.finfo(torch.float32).eps * exact[3, 0]
    honest, actual = exact.float(), exact.float()
    honest[3, 0] = exact[3, 0] + error
    actual[3, 0] = exact[3, 0] + 3.9 * error
    assert compare("output", Sides(actual, exact, honest), measured()).ok


@pytest.mark.parametrize("shape", [(2, 0), (0, 2), (0,), (3, 0, 4)])
def test_an_output_without_elements_passes(shape):
    empty = torch.empty(*shape)
    check = compare("output", sides(empty, empty), measured())
    assert check.ok
    assert check.shape == list(shape)


def test_a_nan_never_matches_a_number():
    exact = noise(4, 4)
    wrong = exact.float()
    wrong[0, 0] = math.nan
    check = compare("output", sides(wrong, exact), measured())
    assert not check.ok
    assert check.nonfinite == 1
    assert check.error_ratio is None
    assert check.first_mismatch.actual == "nan"


@pytest.mark.parametrize(("given", "ok"), [(math.inf, True), (-math.inf, False), (math.nan, False), (1e30, False)])
def test_an_infinity_matches_only_itself(given, ok):
    exact = noise(4, 4)
    exact[1, 1] = math.inf
    actual = exact.float()
    actual[1, 1] = given
    assert compare("output", sides(actual, exact), measured()).ok is ok


def test_a_nan_of_the_reference_must_be_given():
    exact = noise(4, 4)
    exact[1, 1] = math.nan
    assert compare("output", sides(exact.float(), exact), measured()).ok
    assert not compare("output", sides(exact.nan_to_num(0.0).float(), exact), measured()).ok


def test_an_all_zero_output_allows_no_error():
    exact = torch.zeros(4, 4, dtype=torch.float64)
    assert compare("output", sides(torch.zeros(4, 4), exact), measured()).ok
    assert not compare("output", sides(torch.full((4, 4), 1e-7), exact), measured()).ok


def test_integers_are_compared_exactly_and_a_tie_may_break_either_way():
    honest, exact = torch.tensor([1, 2, 3]), torch.tensor([1, 5, 3])
    assert compare("output", Sides(torch.tensor([1, 5, 3]), exact, honest), None).ok
    check = compare("output", Sides(torch.tensor([1, 4, 3]), exact, honest), None)
    assert (check.ok, check.mismatches, check.first_mismatch.index) == (False, 1, [1])


def test_booleans_and_scalars():
    yes = torch.tensor([True, False])
    assert compare("output", Sides(yes, yes, yes), None).ok
    assert not compare("output", Sides(~yes, yes, yes), None).ok
    check = compare("output", sides(torch.tensor(2.0), torch.tensor(1.0)), measured())
    assert (check.ok, check.first_mismatch.index) == (False, [])


def test_a_mismatch_beyond_the_first_chunk_has_its_own_index(monkeypatch):
    monkeypatch.setattr("evaluator.judge.compare.tensor_comparison._CHUNK_ELEMENTS_ON_CPU", 64)
    exact = noise(10, 5, 16)
    wrong = exact.float()
    wrong[7, 2, 9] += 1
    check = compare("output", sides(wrong, exact), measured())
    assert check.first_mismatch.index == [7, 2, 9]
    assert check.mismatches == 1
    far = flipped(exact.float(), slice(500, 700))
    check = compare("output", Sides(far, exact, flipped(exact.float(), 3)), measured())
    assert (check.mismatches, check.first_mismatch.index) == (200, [6, 1, 4])


def test_chunks_do_not_change_the_verdict(monkeypatch):
    exact = noise(33, 65)
    actual = (exact + 2e-5 * noise(33, 65, seed=5)).float()
    whole = compare("output", sides(actual, exact), measured())
    monkeypatch.setattr("evaluator.judge.compare.tensor_comparison._CHUNK_ELEMENTS_ON_CPU", 100)
    assert compare("output", sides(actual, exact), measured()) == whole


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_an_infinite_row_leaves_the_rows_of_other_chunks_as_they_are(monkeypatch, value):
    exact = noise(33, 65)
    exact[20, 3] = value
    actual = (exact + 1e-6 * noise(33, 65, seed=5)).float()
    actual[7, 9] += 1
    whole = compare("output", sides(actual, exact), measured())
    assert (whole.mismatches, whole.first_mismatch.index) == (1, [7, 9])
    monkeypatch.setattr("evaluator.judge.compare.tensor_comparison._CHUNK_ELEMENTS_ON_CPU", 100)
    assert compare("output", sides(actual, exact), measured()) == whole


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_the_honest_value_counts_where_the_exact_value_is_not_finite(value):
    exact = noise(4, 65)
    honest = exact.float()
    exact[2, 3] = value
    assert compare("output", sides(honest, exact, honest), measured()).ok
    wrong = honest.clone()
    wrong[2, 3] += 1
    assert compare("output", sides(wrong, exact, honest), measured()).first_mismatch.index == [2, 3]


def test_kernelbench_rule_is_allclose_with_its_two_tolerances():
    rule = bounds(ToleranceRule.KERNELBENCH, problem(), torch.float32)
    honest = noise(50, 50).float()
    for scale in (0.9, 1.1):
        actual = honest + scale * (1e-4 + 1e-4 * honest.abs())
        check = compare("output", Sides(actual, honest.double(), honest), rule)
        assert check.ok is torch.allclose(actual.double(), honest.double(), rtol=1e-4, atol=1e-4)
        assert check.ok is (scale < 1)


def test_a_problem_may_set_its_own_numbers():
    exact = noise(8, 100)
    actual = (exact * (1 + 1e-3)).float()
    assert not compare("output", sides(actual, exact), measured()).ok
    assert compare("output", sides(actual, exact), measured(floor=1e-2)).ok


def test_complex_values_are_compared_by_their_parts():
    exact = torch.complex(noise(4, 4), noise(4, 4, seed=3))
    honest = exact.to(torch.complex64)
    assert compare("output", Sides(honest, exact, honest), measured()).ok
    assert not compare("output", Sides(honest.conj().resolve_conj(), exact, honest), measured()).ok


@pytest.mark.parametrize("shape", [(512,), (512, 1), (4, 128, 1)])
def test_a_complex_element_has_the_tolerance_of_its_row(shape):
    """A row of the two parts of one element would have no size but the element's own."""
    exact = torch.complex(noise(*shape), noise(*shape, seed=3))
    exact.view(-1)[130] *= 1e-4
    honest = exact.to(torch.complex64)
    off, far = honest.clone(), honest.clone()
    off.view(-1)[130] += 2e-5
    far.view(-1)[130] += 2e-3j
    assert compare("output", Sides(off, exact, honest), measured()).ok
    check = compare("output", Sides(far, exact, honest), measured())
    place = [int(each) for each in torch.unravel_index(torch.tensor(130), shape)]
    assert (check.dtype, check.shape, check.mismatches) == ("float32", [*shape, 2], 1)
    assert check.first_mismatch.index == [*place, 1]


@pytest.mark.parametrize(("answer", "ok"), [(0.0, True), (1.1e-38, True), (2e-38, False)])
def test_numbers_too_small_for_the_precision_may_be_zero(answer, ok):
    """A product of 256 factors underflows, and a compiler with -ftz=true makes each such number zero."""
    exact = torch.full((4, 8), 1e-45, dtype=torch.float64)
    check = compare("output", Sides(torch.full((4, 8), answer), exact, exact.float()), measured())
    assert check.ok is ok


EQUAL = noise(33, 65).float()


def with_value(tensor, value):
    changed = tensor.clone()
    changed[20, 3] = value
    return changed


@pytest.mark.parametrize("value", [0.0, math.inf, math.nan, 1e30, 1e-40])
@pytest.mark.parametrize("other", ["none", "actual", "exact", "honest"])
@pytest.mark.parametrize("rule", list(ToleranceRule))
def test_the_shortcut_for_exact_outputs_changes_no_record(monkeypatch, value, other, rule):
    monkeypatch.setattr("evaluator.judge.compare.tensor_comparison._CHUNK_ELEMENTS_ON_CPU", 100)
    given = Sides(*(with_value(side, value) for side in (EQUAL, EQUAL.double(), EQUAL)))
    if other != "none":
        given = given._replace(**{other: with_value(getattr(given, other), 0.5)})
    limits = bounds(rule, problem(), torch.float32)
    record = compare("output", given, limits)
    monkeypatch.setattr("evaluator.judge.compare.tensor_comparison.is_exact", lambda *_: False)
    closely = compare("output", given, limits)
    assert repr(record) == repr(closely)  # NaN is not equal to itself.


@pytest.mark.parametrize("value", [0.0, math.inf, math.nan])
@pytest.mark.parametrize("error", [0.0, 1e-7, 1e-5, 1e-3, 1.0])
@pytest.mark.parametrize("side", ["actual", "honest"])
def test_the_shortcut_for_small_errors_changes_no_record(monkeypatch, value, error, side):
    monkeypatch.setattr("evaluator.judge.compare.tensor_comparison._CHUNK_ELEMENTS_ON_CPU", 100)
    exact = with_value(noise(33, 65), value)
    off = flipped((exact + error * noise(33, 65, seed=5)).float(), slice(700, 740))
    given = sides(exact.float(), exact)._replace(**{side: off})
    record = compare("output", given, measured())
    monkeypatch.setattr("evaluator.judge.compare.tensor_comparison.may_exceed", lambda *_: True)
    assert repr(record) == repr(compare("output", given, measured()))


def test_only_errors_that_exceed_no_level_of_any_row_are_small():
    error, level = torch.tensor([[1.0, 2.0], [0.5, 0.25]]), torch.tensor([[2.0], [3.0]])
    assert not may_exceed(error, level)
    assert may_exceed(error, level - 0.5)
    assert may_exceed(torch.tensor([[math.nan, 0.0]]), level)
    assert may_exceed(error, torch.tensor([[math.nan], [3.0]]))


def test_only_equal_finite_values_are_exact():
    wide = EQUAL.double()
    assert is_exact(EQUAL, wide, EQUAL)
    assert is_exact(EQUAL, EQUAL, EQUAL)
    next_value = torch.nextafter(EQUAL, torch.tensor(math.inf))
    assert not is_exact(with_value(EQUAL, next_value[20, 3]), wide, EQUAL)
    assert not is_exact(EQUAL, wide, next_value)
    assert not is_exact(EQUAL, with_value(wide, math.nextafter(float(wide[20, 3]), math.inf)), EQUAL)
    for value in (math.inf, math.nan):
        given = with_value(EQUAL, value)
        assert not is_exact(given, given.double(), given)


@pytest.mark.parametrize("shape", [(0,), (0, 1), (4, 0, 2)])
def test_an_empty_output_needs_no_kernels(shape):
    """A launch without threads is an error of the driver."""
    empty = torch.zeros(shape)
    check = FusedComparison(b"").begin("output", Sides(empty, empty.double(), empty), measured())()
    assert (check.ok, check.shape) == (True, list(shape))
