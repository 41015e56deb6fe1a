"""Secret rows among a call's own values: which rows, what is written, and what depends on them."""

import pytest
import torch

from evaluator.judge.reference.cancelling_rows import Rows, Slices, chosen_rows, slices_of, write_rows
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.records import RowSite

ROWS = RowSite(0, 0, {"output": 0})
COLUMNS = RowSite(1, 1, {"output": 1})
SIGNED = RowSite(0, 0, {"output": 0}, concentrated=False)
CONCENTRATED = RowSite(0, 0, {"output": 0}, signs=False)


def given(*shapes):
    return Arguments([torch.rand(shape, generator=torch.Generator().manual_seed(7)) + 1 for shape in shapes], {})


def test_rows_follow_from_the_seed_and_are_few():
    inputs = given((64, 9), (9, 1000))
    one, same, other = (chosen_rows([ROWS, COLUMNS], inputs, seed) for seed in (1, 1, 2))
    assert one == same != other
    assert [rows.site for rows in one] == [ROWS, COLUMNS]
    assert all(0 < len(rows.indices) <= 8 for rows in one)  # An index drawn twice counts once.
    assert all(0 <= index < 64 for index in one[0].indices)


@pytest.mark.parametrize(
    ("site", "extent", "most"),
    [
        *((SIGNED, extent, most) for extent, most in ((7, 1), (8, 1), (15, 1), (16, 2), (64, 8), (4096, 8))),
        *((CONCENTRATED, extent, most) for extent, most in ((7, 1), (64, 1), (128, 2), (512, 8), (4096, 8))),
    ],
)
def test_one_row_of_eight_has_signs_at_most_and_one_of_64_is_concentrated(site, extent, most):
    inputs = given((extent, 9))
    counts = {sum(len(each.indices) for each in chosen_rows([site], inputs, seed)) for seed in range(40)}
    assert max(counts) == most
    assert min(counts) >= 1


def test_a_single_row_is_the_whole_call_and_none_of_it():
    assert chosen_rows([ROWS], given((1, 9)), 5) == []


def test_each_call_draws_the_kind_of_its_rows_among_those_of_the_site():
    inputs = given((64, 9))
    kinds = [
        [chosen_rows([site], inputs, seed)[0].concentrated for seed in range(200)]
        for site in (ROWS, SIGNED, CONCENTRATED)
    ]
    assert 70 < sum(kinds[0]) < 130
    assert (sum(kinds[1]), sum(kinds[2])) == (0, 200)


def test_signs_of_fp8_change_and_magnitudes_stay():
    x = (torch.rand(16, 64, generator=torch.Generator().manual_seed(7)) + 1).to(torch.float8_e4m3fn)
    inputs, before = Arguments([x.clone()], {}), x.float()
    write_rows([Rows(ROWS, 16, [3, 8])], inputs, 5, keep=True)
    after = inputs.args[0].float()
    assert torch.equal(after.abs(), before)
    assert [row for row in range(16) if bool((after[row] < 0).any())] == [3, 8]
    assert 10 < int((after[3] < 0).sum()) < 54


def test_short_rows_are_left_out():
    assert chosen_rows([ROWS], given((64, 3)), 5) == []
    assert chosen_rows([ROWS], given((1 << 20,)), 5) == []


def test_a_tensor_without_rows_has_its_next_site():
    sites = [ROWS, RowSite(0, 1, {"output": 1})]
    assert [rows.site.dim for rows in chosen_rows(sites, given((1, 32, 9)), 5)] == [1]


def test_an_expanded_tensor_is_left_alone():
    assert chosen_rows([ROWS], Arguments([torch.rand(1, 64).expand(64, 64)], {}), 5) == []


def test_huge_rows_are_left_out():
    assert chosen_rows([ROWS], given((16, 1 << 23)), 5) == []


def test_sites_of_other_inputs_are_no_error():
    assert chosen_rows([RowSite(3, 0, {}), RowSite(0, 5, {})], given((64, 2)), 5) == []


def test_rows_keep_their_magnitudes_and_have_random_signs():
    inputs = given((64, 4096))
    before = inputs.args[0].clone()
    write_rows([Rows(ROWS, 64, [3, 40])], inputs, 11, keep=True)
    after = inputs.args[0]
    assert (after != before).any(1).nonzero().flatten().tolist() == [3, 40]
    assert torch.equal(after.abs(), before)
    for row in (3, 40):
        assert 0.45 < float((after[row] < 0).double().mean()) < 0.55
    assert not torch.equal(after[3] < 0, after[40] < 0)


def test_zeros_stay_and_nothing_is_kept_where_only_time_counts():
    inputs = given((64, 64))
    inputs.args[0][3, ::2] = 0
    before = inputs.args[0].clone()
    write_rows([Rows(ROWS, 64, [3])], inputs, 11, keep=False)
    assert torch.equal(inputs.args[0], before)
    write_rows([Rows(ROWS, 64, [3])], inputs, 11, keep=True)
    assert (inputs.args[0][3, ::2] == 0).all()
    assert (inputs.args[0][3, 1::2] != before[3, 1::2]).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("concentrated", [False, True])
def test_other_formats_keep_their_dtype(dtype, concentrated):
    inputs = Arguments([torch.rand(64, 64).to(dtype)], {})
    before = inputs.args[0].clone()
    write_rows([Rows(ROWS, 64, [5], concentrated)], inputs, 3, keep=True)
    assert inputs.args[0].dtype is dtype
    assert (inputs.args[0] != before).any(1).nonzero().flatten().tolist() == [5]


def test_a_concentrated_row_keeps_a_few_elements_and_the_rest_a_4096th():
    inputs = given((16, 4096))
    before = inputs.args[0].clone()
    kept = []
    for row in range(16):
        write_rows([Rows(ROWS, 16, [row], concentrated=True)], inputs, row, keep=True)
        ratio = inputs.args[0][row] / before[row]
        assert set(ratio.tolist()) <= {1.0, 2.0**-12}
        kept.append(int((ratio == 1).sum()))
    # Four on average: the number of 4096 draws with a chance of 1/1024.
    assert 2.5 < sum(kept) / 16 < 5.5
    assert len(set(kept)) > 2


@pytest.mark.parametrize("elements", [64, 1 << 17])
def test_the_rest_of_a_concentrated_row_adds_up_to_one_element_at_most(elements):
    inputs = Arguments([torch.ones(2, elements)], {})
    write_rows([Rows(ROWS, 2, [1], concentrated=True)], inputs, 3, keep=True)
    row = inputs.args[0][1].double()
    assert 0 < row[row < 1].sum() <= 1


def test_the_size_of_a_concentrated_row_is_that_of_a_few_elements():
    inputs = given((8, 4096))
    write_rows([Rows(ROWS, 8, list(range(8)), concentrated=True)], inputs, 3, keep=True)
    squares = inputs.args[0].double().square()
    assert (squares.topk(16, 1).values.sum(1) > 0.999 * squares.sum(1)).sum() >= 7


def test_concentrated_rows_of_fp8_and_of_a_rehearsal_stay_as_they_are():
    x = (torch.rand(16, 64) + 1).to(torch.float8_e4m3fn)
    inputs = Arguments([x.clone()], {})
    write_rows([Rows(ROWS, 16, [3], concentrated=True)], inputs, 5, keep=True)
    assert torch.equal(inputs.args[0].float(), x.float())
    inputs = given((16, 64))
    before = inputs.args[0].clone()
    write_rows([Rows(ROWS, 16, [3], concentrated=True)], inputs, 5, keep=False)
    assert torch.equal(inputs.args[0], before)


def test_slices_by_output():
    rows = [Rows(RowSite(0, 0, {"output": 0, "output[1]": 1}), 64, [3]), Rows(COLUMNS, 9, [8, 4])]
    wanted = {"output": [Slices(0, 64, [3]), Slices(1, 9, [8, 4])], "output[1]": [Slices(1, 64, [3])]}
    assert slices_of(rows) == wanted


def test_slices_fit_an_output_with_their_dimension():
    assert Slices(1, 9, [3]).fit((64, 9))
    assert not Slices(1, 9, [3]).fit((64, 8))
    assert not Slices(1, 9, [3]).fit((9,))
