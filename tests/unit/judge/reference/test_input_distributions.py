"""Value profiles: what is drawn in the place of an input, and what is left alone."""

import math

import pytest
import torch

from evaluator.judge.reference import input_distributions as profiles_module
from evaluator.judge.reference.input_distributions import PROFILES, change, rehearse
from evaluator.judge.tensors.number_formats import are_equal, elements, typical
from evaluator.protocol.pytree import mapped
from evaluator.records import ElementFormat, Layout, Profile

CPU = torch.device("cpu")
WITH_MORE_ZEROS = (Profile.ZEROS_AND_TIES, Profile.ZERO_ROWS)
ELEMENTS = [profile for profile in PROFILES if profile not in (Profile.OUTLIERS, Profile.LARGE, Profile.SMALL)]


def drawn(profile, value, *, seed=1, layouts=()):
    return change(profile, list(layouts), mapped(value, copied), seed, CPU)


def copied(tensor):
    """Copy a tensor that would be written into."""
    return tensor if 0 in tensor.stride() else tensor.clone()


def positive(*shape, dtype=torch.float32):
    return torch.rand(shape, generator=torch.Generator().manual_seed(3)).to(dtype) + 0.25


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64])
def test_a_profile_changes_values_and_nothing_else(profile, dtype):
    given = positive(16, 32, dtype=dtype)
    other = drawn(profile, given)
    assert (other.shape, other.dtype, other.stride()) == (given.shape, given.dtype, given.stride())
    assert torch.isfinite(torch.view_as_real(other) if other.is_complex() else other).all()
    assert not torch.equal(other, given)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("given", [(64, 96), (96, 64), (3, 5, 7), (513,)], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_large_tensor_is_changed_in_place_piece_by_piece(monkeypatch, profile, given, transposed):
    monkeypatch.setattr(profiles_module, "_PIECE_ELEMENTS", 100)
    given = positive(*given)
    given = given.mT if transposed and given.dim() > 1 else given
    given[given > 1.2] = 0.0
    other = given.clone()
    assert change(profile, [], other, 1, CPU) is other
    assert torch.equal(other == 0, given == 0) or profile in WITH_MORE_ZEROS
    assert not other[given == 0].any()
    if profile is Profile.CONSTANT_ROWS:
        rows = other.reshape(-1, other.shape[-1])
        assert all(row[row != 0].unique().numel() <= 1 for row in rows)
    elif profile is Profile.SIGNED_NORMAL:
        assert other.flatten()[:100].std() > 0.5
        assert not torch.equal(other.flatten()[:100], other.flatten()[100:200])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_nothing_but_a_zero_stays_what_it_is(dtype):
    given = positive(201, 199, dtype=dtype)
    odd = [0.0, -0.0, torch.nan, torch.inf, torch.finfo(dtype).smallest_normal / 4]
    given[100:, 100:130] = torch.tensor(odd * 6, dtype=torch.float64).to(dtype)
    other = drawn(Profile.SIGNED_NORMAL, given)
    assert torch.isfinite(other).all()
    # One in some thousand values is drawn as zero in half precision.
    assert (other[100:, 100:130] == 0).double().mean() == pytest.approx(2 / 5, abs=0.01)
    assert not other[given == 0].any()


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("pieces", [100, 1 << 24])
def test_a_rehearsal_changes_nothing(monkeypatch, profile, pieces):
    monkeypatch.setattr(profiles_module, "_PIECE_ELEMENTS", pieces)
    given = [positive(16, 32), positive(8, 8).to(torch.complex64), torch.arange(5), positive(4, 1).expand(4, 8)]
    kept = [each.clone() for each in given]
    rehearse(profile, given, 1, CPU)
    assert all(torch.equal(one, other) for one, other in zip(given, kept, strict=True))


@pytest.mark.parametrize("profile", PROFILES)
def test_a_seed_says_all(profile):
    given = positive(16, 32)
    assert torch.equal(drawn(profile, given), drawn(profile, given))
    if profile not in (Profile.LARGE, Profile.SMALL):
        assert not torch.equal(drawn(profile, given), drawn(profile, given, seed=2))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(
    "given",
    [
        torch.arange(12).reshape(3, 4),
        torch.rand(3, 4) > 0.5,
        torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]]),
        torch.zeros(3, 4).masked_fill(torch.ones(3, 4).triu(1) > 0, float("-inf")),
        torch.zeros(2, 3, 4),
        torch.tensor(0.7),
        torch.empty(0, 4),
    ],
    ids=["integers", "booleans", "labels", "an added mask", "zeros", "one number", "nothing"],
)
def test_what_has_a_meaning_is_left_alone(profile, given):
    assert torch.equal(drawn(profile, given), given)


@pytest.mark.parametrize("profile", PROFILES)
def test_zeros_symmetry_and_order_stay(profile):
    triangle = positive(32, 32).triu()
    assert torch.equal(drawn(profile, triangle) == 0, triangle == 0) or profile in WITH_MORE_ZEROS
    assert not drawn(profile, triangle).tril(-1).any()
    half = positive(32, 32)
    symmetric = drawn(profile, half + half.T)
    assert torch.equal(symmetric, symmetric.T)
    ranks = drawn(profile, positive(4, 64).sort(-1).values)
    if profile is not Profile.OUTLIERS:
        assert bool((ranks[:, 1:] >= ranks[:, :-1]).all())


def scale_of(scaled, given):
    """Return the power of two that scaled values have as their factor."""
    (factor,) = (scaled / given).unique().tolist()
    return math.log2(factor)


def test_the_scale_of_large_and_small_values_is_drawn():
    given = positive(6, 8)
    for profile in (Profile.LARGE, Profile.SMALL):
        assert {abs(scale_of(drawn(profile, given, seed=seed), given)) for seed in range(60)} == set(range(5, 11))


def test_each_profile_is_what_it_is_called():
    given = positive(64, 256)
    of = {profile: drawn(profile, given) for profile in PROFILES}
    assert 0.4 < float((of[Profile.SIGNED_NORMAL] < 0).float().mean()) < 0.6
    sizes = of[Profile.MIXED_MAGNITUDES].abs()
    assert float(sizes.quantile(0.95) / sizes.quantile(0.05)) > 500
    ties = of[Profile.ZEROS_AND_TIES]
    assert len(ties.unique()) == 9
    assert 0.1 < float((ties == 0).float().mean()) < 0.3
    assert scale_of(of[Profile.LARGE], given) in range(5, 11)
    assert -scale_of(of[Profile.SMALL], given) in range(5, 11)
    assert (of[Profile.CONSTANT_ROWS].std(-1) == 0).all()
    assert of[Profile.CONSTANT_ROWS].std() > 0.3
    assert len(of[Profile.CONSTANT_ROWS].sign().unique()) == 1
    differs = of[Profile.OUTLIERS] != given
    assert int(differs.sum()) == 2
    assert sorted(torch.sign(of[Profile.OUTLIERS][differs]).tolist()) == [-1.0, 1.0]
    assert of[Profile.OUTLIERS].abs().max() > 50 * given.max()
    offset = of[Profile.ILL_CONDITIONED]
    assert 6 < float(offset.mean().abs() / offset.std()) < 10


DTYPES = {torch.float32: (5, 9), torch.float64: (5, 9), torch.float16: (2, 5), torch.bfloat16: (2, 5)}
"""Binary digits that related values have in common, at least and at most."""


@pytest.mark.parametrize("dtype", DTYPES)
def test_related_values_of_a_second_tensor_are_near_those_of_the_first(dtype):
    first, second = positive(16, 32, dtype=dtype), positive(16, 32, dtype=dtype).flip(0)
    least, most = DTYPES[dtype]
    parts = set()
    for seed in range(60):
        near, other = drawn(Profile.RELATED, [first, second], seed=seed)
        alone = drawn(Profile.RELATED, [first], seed=seed)[0]
        assert torch.equal(near, alone)
        part = ((other.double() - near.double()) / second.double()).median()
        parts.add(round(float(-part.log2())))
        wanted = near.double() + second.double() * 2.0 ** -round(float(-part.log2()))
        assert torch.allclose(other.double(), wanted, rtol=2 * torch.finfo(dtype).eps, atol=0.0)
    assert parts == set(range(least, most + 1))


def test_related_values_without_a_partner_are_near_the_row_before():
    given = positive(7, 16)
    other = drawn(Profile.RELATED, given)
    assert torch.equal(other[0::2], given[0::2])
    part = ((other[1::2] - given[0:6:2]) / given[1::2]).double()
    assert 2.0**-9.1 < float(part.min()) <= float(part.max()) < 2.0**-4.9
    assert torch.equal(drawn(Profile.RELATED, positive(9)), positive(9))


def test_related_values_need_a_partner_of_the_same_shape_and_dtype():
    given = positive(4, 16)
    alone = drawn(Profile.RELATED, [given.clone()], seed=4)[0]
    for other in (positive(4, 17), positive(4, 16, dtype=torch.float64), torch.ones(4, 16)):
        beside = drawn(Profile.RELATED, [other, given], seed=4)[1]
        assert torch.equal(beside[0::2], given[0::2])
    assert torch.equal(alone[0::2], given[0::2])


def test_zeros_of_a_related_tensor_stay_zero():
    first, second = positive(16, 32), positive(16, 32)
    second[:, ::3] = 0
    other = drawn(Profile.RELATED, [first, second])[1]
    assert torch.equal(other == 0, second == 0)


def test_zero_rows_are_one_of_eight_and_at_least_one():
    counts = []
    for seed in range(40):
        given = positive(4, 16, 8)
        other = drawn(Profile.ZERO_ROWS, given, seed=seed)
        cleared = (other == 0).all(-1)
        assert torch.equal(other[~cleared], given[~cleared])
        counts.append(int(cleared.sum()))
    assert 6 < sum(counts) / 40 < 10
    few = [int((drawn(Profile.ZERO_ROWS, positive(2, 8), seed=seed) == 0).all(-1).sum()) for seed in range(40)]
    assert min(few) == 1
    assert torch.equal(drawn(Profile.ZERO_ROWS, positive(64)), positive(64))


def test_values_near_one_have_a_standard_deviation_of_a_64th():
    other = drawn(Profile.NEAR_ONE, positive(64, 256)).double()
    assert float(other.mean()) == pytest.approx(1, abs=1e-3)
    assert float(other.std()) == pytest.approx(1 / 64, rel=0.05)


@pytest.mark.parametrize("profile", [Profile.RELATED, Profile.ZERO_ROWS])
def test_symmetric_and_sorted_tensors_have_no_rows_to_change(profile):
    half = positive(32, 32)
    for given in (half + half.T, half.sort(-1).values):
        assert torch.equal(drawn(profile, given), given)


@pytest.mark.parametrize("profile", [Profile.RELATED, Profile.ZERO_ROWS])
def test_rows_of_a_large_tensor_are_those_of_a_small_one(monkeypatch, profile):
    """No random number depends on the pieces."""
    whole = drawn(profile, [positive(12, 50), positive(12, 50).flip(1)])
    monkeypatch.setattr(profiles_module, "_PIECE_ELEMENTS", 100)
    assert all(map(torch.equal, drawn(profile, [positive(12, 50), positive(12, 50).flip(1)]), whole))


def test_structures_keep_their_form_and_arguments_their_own_draw():
    given = {"a": [positive(8, 8), 3, None], "b": (positive(8, 8), "text")}
    other = drawn(Profile.SIGNED_NORMAL, given)
    assert other["a"][1:] == [3, None]
    assert other["b"][1] == "text"
    assert not torch.equal(other["a"][0], other["b"][0])


def test_a_tensor_that_its_author_keeps_is_not_written_to():
    wide = positive(4, 1).expand(4, 8)
    assert drawn(Profile.SIGNED_NORMAL, wide).unique().numel() == 32
    assert wide.unique().numel() == 4


def test_layouts_are_drawn_where_a_problem_has_them():
    given = positive(6, 8)
    seen = set()
    for seed in range(40):
        other = drawn(Profile.LARGE, given, seed=seed, layouts=Layout)
        assert scale_of(other, given) in range(5, 11)
        seen.add((other.stride(), other.storage_offset()))
    assert seen == {((8, 1), 0), ((1, 6), 0), ((16, 2), 0), ((8, 1), 1)}


CODES = {
    ElementFormat.INT8: (torch.randn(64, 96) * 40).to(torch.int8),
    ElementFormat.INT4: torch.randint(0, 256, (64, 96)).to(torch.uint8),
    ElementFormat.MXFP4: torch.randint(0, 256, (64, 96)).to(torch.uint8),
    ElementFormat.FP8_E4M3: (torch.randn(64, 96) * 100).clamp(-448, 448).to(torch.float8_e4m3fn),
    ElementFormat.FP8_E5M2: torch.randn(64, 96).to(torch.float8_e5m2),
}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("form", CODES)
def test_codes_are_drawn_within_their_format(form, profile):
    given = CODES[form].clone()
    rehearse(profile, [given], 1, CPU, {0: form})
    assert are_equal(given, CODES[form])
    other = change(profile, [], given, 1, CPU, {0: form})
    assert other is given, "written in place"
    assert not are_equal(other, CODES[form])
    values = elements(other, form).values
    assert values.isfinite().all()
    assert values.unique().numel() > (1 if profile is Profile.NEAR_ONE else 2)
    if profile is not Profile.OUTLIERS and profile is not Profile.SMALL:
        assert values.abs().max() >= typical(form)


def test_integers_and_bytes_without_a_declaration_stay_and_fp8_needs_none():
    for form in (ElementFormat.INT8, ElementFormat.INT4):
        assert are_equal(drawn(Profile.SIGNED_NORMAL, CODES[form]), CODES[form])
    given = CODES[ElementFormat.FP8_E4M3]
    assert not are_equal(drawn(Profile.SIGNED_NORMAL, given), given)


def test_codes_are_told_by_the_number_of_their_tensor():
    bytes_, codes = (CODES[form].clone() for form in (ElementFormat.INT4, ElementFormat.INT8))
    found = change(Profile.SIGNED_NORMAL, [], [[bytes_, codes], {"n": 3}], 1, CPU, {1: ElementFormat.INT8})
    assert are_equal(found[0][0], CODES[ElementFormat.INT4])
    assert not are_equal(found[0][1], CODES[ElementFormat.INT8])


def test_expanded_codes_get_memory_of_their_own():
    given = torch.ones(1, 96, dtype=torch.int8).expand(64, 96)
    other = change(Profile.SIGNED_NORMAL, [], given, 1, CPU, {0: ElementFormat.INT8})
    assert other.unique(dim=0).shape[0] > 1
    assert (given == 1).all()


@pytest.mark.parametrize(("shape", "row_ends"), [((24, 16), 150), ((384,), 38)])
def test_outliers_are_at_an_end_in_three_of_four_calls(shape, row_ends):
    given = positive(*shape)
    places = {1: [], -1: []}
    for seed in range(200):
        found = change(Profile.OUTLIERS, [], given.clone(), seed, CPU).flatten()
        for place in (found != given.flatten()).nonzero().flatten().tolist():
            places[int(found[place].sign())].append(place)
    assert places[1].count(383) == pytest.approx(150, abs=25)
    assert sum(place % shape[-1] == shape[-1] - 1 for place in places[-1]) == pytest.approx(row_ends, abs=25)
    assert all(len(set(some)) > 20 for some in places.values())  # the others are anywhere
    rows = {place // shape[-1] for place in places[-1] if place % shape[-1] == shape[-1] - 1}
    assert len(rows) == math.prod(shape[:-1])  # every row, in 150 draws
    assert min(map(len, places.values())) >= 198


def test_an_end_without_a_value_has_no_outlier():
    given = positive(8, 8)
    given[:, -1] = 0
    for seed in range(20):
        found = change(Profile.OUTLIERS, [], given.clone(), seed, CPU)
        assert int((found != given).sum()) == 2
        assert not found[:, -1].any()


def test_a_symmetric_matrix_has_an_outlier_of_each_sign_on_its_diagonal():
    half = positive(24, 24)
    given = half + half.T
    found = [change(Profile.OUTLIERS, [], given.clone(), seed, CPU) for seed in range(60)]
    both = [bool((each < 0).any()) and int((each != given).sum()) == 2 for each in found]
    assert both.count(True) >= 54  # one place of 24 is taken
    assert all(torch.equal(each, each.T) for each in found)
    assert 35 <= sum(bool(each[-1, -1] != given[-1, -1]) for each in found) <= 55


def test_zeros_alone_have_no_outlier():
    given = torch.zeros(64, 64)
    given[0, 1] = 0.5  # a corner of zeros alone would be whole numbers
    changed = [int((change(Profile.OUTLIERS, [], given.clone(), seed, CPU) != given).sum()) for seed in range(20)]
    assert set(changed) <= {0, 1}
    assert 0 in changed
