"""What errors are relative to: rows and elements, columns with meanings of their own, few numbers, fill values."""

import math

import pytest
import torch

from evaluator.judge.compare.fill_values import fill_from
from evaluator.judge.compare.row_sizes import has_columns, is_vector_of_few
from evaluator.judge.compare.tensor_comparison import Sides, compare
from tests.unit.judge.compare.test_tensor_comparison import measured

FLOOR = 5e-5


def passes(exact, place, error, *, fill=math.inf):
    """Return whether an answer passes that is off by `error` at `place`."""
    actual = exact.clone()
    actual[place] += error
    return compare("output", Sides(actual, exact, exact), measured(torch.float64, floor=FLOOR)._replace(fill=fill)).ok


def boxes(*shape):
    """Return detections: four coordinates of 500, and probabilities of 0.25."""
    exact = torch.full(shape, 0.25, dtype=torch.float64)
    exact[..., :4] = 500
    return exact


@pytest.mark.parametrize(
    ("shape", "has"),
    [
        ((64, 85), True),
        ((8, 85), True),
        ((7, 85), False),
        ((4, 100, 85), True),
        ((64, 128), True),
        ((64, 129), False),
        ((64, 1), False),
        ((2, 3, 64, 64), False),
        ((64,), False),
    ],
)
def test_few_columns_of_many_rows_have_sizes_of_their_own(shape, has):
    assert has_columns(torch.Size(shape)) is has


@pytest.mark.parametrize(("shape", "limit"), [((64, 85), 16 * 0.25), ((4, 16, 85), 16 * 0.25), ((4, 85), None)])
def test_a_probability_beside_boxes_has_sixteen_times_the_size_of_its_column(shape, limit):
    """A row of 85 has the size 500 x sqrt(4 / 85) = 108; 16 times a column of 0.25 is 4."""
    exact = boxes(*shape)
    limit = limit or math.sqrt((4 * 500**2 + 81 * 0.25**2) / 85)
    last = (0,) * (len(shape) - 1) + (84,)
    for part, ok in ((0.9, True), (1.1, False)):
        assert passes(exact, last, part * FLOOR * limit) is ok
    first = (0,) * len(shape)
    for part, ok in ((0.9, True), (1.1, False)):
        assert passes(exact, first, part * FLOOR * 500) is ok


def test_a_column_does_not_raise_the_scale_of_its_row():
    """The last column is 100 in other rows; its element in the first row has the row's size, 1."""
    exact = torch.ones(64, 16, dtype=torch.float64)
    exact[1:, 15] = 100
    exact[0, 15] = 0.5
    size = math.sqrt((15 + 0.25) / 16)
    whole = math.sqrt((63 * 100**2 + 63 * 15 + 15.25) / 1024) / 16
    assert whole > size  # A row is at least a sixteenth of the tensor.
    for part, ok in ((0.9, True), (1.1, False)):
        assert passes(exact, (0, 15), part * FLOOR * whole) is ok


def test_a_column_whose_terms_cancel_has_the_scale_of_its_rows():
    """In a product of equal rows with signs, the column of as many plus as minus signs is 0 but for rounding."""
    exact = torch.full((64, 16), 8.0, dtype=torch.float64)
    exact[:, 3] = 0
    size = 8 * math.sqrt(15 / 16)
    assert passes(exact, (5, 3), 0.9 * FLOOR * size)
    assert not passes(exact, (5, 3), 1.1 * FLOOR * size)
    exact[:, 3] = 1e-4
    assert not passes(exact, (5, 3), 1.1 * FLOOR * 16e-4)


def test_two_losses_in_one_tensor_have_two_sizes():
    exact = torch.tensor([1000.0, 1e-3], dtype=torch.float64)
    for place, size in ((0, 1000.0), (1, 1e-3)):
        assert passes(exact, place, 0.9 * FLOOR * size)
        assert not passes(exact, place, 1.1 * FLOOR * size)


@pytest.mark.parametrize(("shape", "few"), [((), True), ((7,), True), ((2, 3), True), ((8,), False), ((2, 4), False)])
def test_fewer_than_eight_elements_are_no_row(shape, few):
    assert is_vector_of_few(torch.Size(shape)) is few


def test_eight_elements_are_a_row():
    exact = torch.tensor([1000.0, *[1e-3] * 7], dtype=torch.float64)
    size = 1000 / math.sqrt(8)
    assert passes(exact, 1, 0.9 * FLOOR * size)
    assert not passes(exact, 1, 1.1 * FLOOR * size)


LEAST = torch.finfo(torch.float32).min
FILLS = {
    "a masked half": ([0.5, -2.0, -1e9, -1e9], 5e8),
    "the least number": ([0.5, -2.0, LEAST, LEAST], -LEAST / 2),
    "beside infinity": ([0.5, -2.0, -1e9, -1e9, -math.inf, math.nan], 5e8),
    "one large number": ([0.5, -2.0, 1.0, -1e9], math.inf),
    "a mask added to scores": ([0.5, -2.0, -1e4 + 0.5, -1e4 - 2.0], 5001.0),
    "sums beside one that cancels": ([379.0, 384.0, 381.0, 1e-4], math.inf),
    "not far enough": ([1.0, 1.0, 1000.0, 1000.0], math.inf),
    "just far enough": ([1.0, 1.0, 1024.0, 1024.0], 512.0),
    "all alike": ([1e9, 1e9, 1e9], math.inf),
    "nothing beside zeros": ([0.0, 0.0, 1e9, 1e9], math.inf),
    "zeros": ([0.0, 0.0], math.inf),
    "nothing": ([], math.inf),
    "infinity alone": ([0.5, -math.inf, -math.inf], math.inf),
}


@pytest.mark.parametrize(("values", "size"), FILLS.values(), ids=FILLS)
def test_fill_values_are_several_and_far_larger_than_the_rest(values, size):
    assert fill_from(torch.tensor(values)) == size


def test_fill_values_are_an_element_in_1024_at_least():
    for masked, size in ((3, math.inf), (4, 5e8)):
        values = torch.rand(4096)
        values[:masked] = -1e9
        assert fill_from(values) == size
    assert fill_from(torch.tensor([1, 1, 10**6, 10**6])) == math.inf


def test_fill_values_do_not_set_the_size_of_their_row():
    exact = torch.ones(4, 64, dtype=torch.float64)
    exact[:, ::2] = -1e9
    for fill, ok in ((5e8, False), (math.inf, True)):
        assert passes(exact, (1, 3), 1e-3, fill=fill) is ok
    assert passes(exact, (1, 3), 0.9 * FLOOR, fill=5e8)
    assert not passes(exact, (1, 2), 1e6, fill=5e8)  # A fill value has its own size.
    assert passes(exact, (1, 2), 1e4, fill=5e8)


def test_a_row_of_fill_values_alone_is_right_only_with_them():
    exact = torch.ones(4, 64, dtype=torch.float64)
    exact[2] = -1e9
    assert passes(exact, (2, 3), 0.0, fill=5e8)
    assert not passes(exact, (2, 3), 1e9, fill=5e8)
