"""Patterns of wrong values: named only where every wrong value agrees."""

import pytest
import torch

from evaluator.findings.comparing import CONSTANT, DRIFT, EXTRA_CLAMP, NOT_WRITTEN, TRANSPOSED
from evaluator.judge.answer.wrong_pattern import wrong_pattern

EXACT = torch.randn(64, 48, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def found(change, exact=EXACT):
    actual = exact.float().clone()
    result = change(actual)
    actual = actual if result is None else result
    cause = wrong_pattern(actual, exact, ~((actual - exact).abs() <= 1e-4))
    return None if cause is None else cause.clause


def tail(actual):
    actual[:, 40:] = 7 + torch.rand(64, 8)


def rows(actual):
    actual[3] = 0


def sparse(actual):
    actual[::2, 44:] += torch.rand(32, 4)


def scattered(actual):
    actual[torch.rand(64, 48, generator=torch.Generator().manual_seed(1)) < 0.1] += 0.3


def transposed(actual):
    return actual.mT.reshape(64, 48)


def noisy(actual):
    actual += torch.rand(64, 48, generator=torch.Generator().manual_seed(1))


def drifting(actual):
    actual *= 1 + 2e-4 * (0.5 + torch.rand(64, 48, generator=torch.Generator().manual_seed(2)))


def drifting_apart(actual):
    sign = torch.randint(0, 2, (64, 48), generator=torch.Generator().manual_seed(2)) * 2 - 1
    actual *= 1 + 2e-4 * sign


def vanishing(actual):
    actual *= 1e-8 * torch.randn(64, 48, generator=torch.Generator().manual_seed(3))


def masked(actual):
    actual[actual < 0] = 0


CHANGES = [
    (lambda actual: actual * 0.5, "all values are 0.5 times the expected values", CONSTANT),
    (lambda actual: -actual, "all values are -1 times the expected values", CONSTANT),
    (lambda actual: actual + 0.25, "all values are the expected values plus 0.25", CONSTANT),
    (lambda actual: actual * 0, "all values are 0", NOT_WRITTEN),
    (transposed, "the output is transposed: its last two dimensions are exchanged", TRANSPOSED),
    (rows, "the wrong values are 0, at 3 of 64 along dimension 0", NOT_WRITTEN),
    (tail, "the wrong values are at 40 to 47 of 48 along dimension 1", None),
    (lambda actual: actual * 1e-8, "all values are 1e-08 times the expected values", CONSTANT),
    (masked, "the wrong values are 0, and the expected ones are negative", EXTRA_CLAMP),
    (sparse, "the wrong values are at 44 to 47 of 48 along dimension 1", None),
    *((change, None, None) for change in (noisy, vanishing, lambda actual: actual.half().float(), torch.clone)),
]


@pytest.mark.parametrize(("change", "clause", "step"), CHANGES)
def test_a_pattern_is_named_with_its_next_step(change, clause, step):
    actual = EXACT.float().clone()
    actual = actual if (result := change(actual)) is None else result
    cause = wrong_pattern(actual, EXACT, ~((actual - EXACT).abs() <= 1e-4))
    assert (cause or (None, None)) == (clause, step)


def test_a_common_offset_of_scattered_values_has_no_place():
    clause = found(scattered)
    assert clause.startswith("the wrong values are the expected values plus 0.")
    assert "along dimension" not in clause


def test_few_or_nonfinite_wrong_values_show_nothing():
    def few(actual):
        actual[0, :7] = 0

    def nonfinite(actual):
        actual[0] = 0
        actual[0, 0] = torch.nan

    assert found(few) is None
    assert found(nonfinite) is None


def test_vectors_and_numbers():
    vector = EXACT[0]
    assert found(lambda actual: actual * 3, vector) == "all values are 3 times the expected values"
    assert wrong_pattern(torch.tensor(2.0), torch.tensor(1.0, dtype=torch.float64), torch.tensor(data=True)) is None


def test_a_masked_output_is_not_transposed_by_chance():
    masked = EXACT[:48].masked_fill(torch.ones(48, 48).triu(1).bool(), -torch.inf)
    assert found(lambda actual: actual + torch.rand(48, 48), masked) is None


def test_errors_in_one_direction_are_named_with_their_size():
    """The size is that of 577,600 positive terms in one accumulator, as measured on an H200."""
    exact = EXACT.abs() + 1
    cause = wrong_pattern(_changed(drifting, exact), exact, torch.ones(64, 48, dtype=torch.bool))
    assert cause == ("all values are too far from 0, by about 2.0e-04 of themselves", DRIFT)
    assert wrong_pattern(_changed(drifting_apart, exact), exact, torch.ones(64, 48, dtype=torch.bool)) is None


def test_errors_toward_zero_are_named_so():
    exact = -EXACT.abs() - 1
    actual = (exact * (1 - 1e-4 - 1e-4 * torch.rand(64, 48, generator=torch.Generator().manual_seed(2)))).float()
    cause = wrong_pattern(actual, exact, torch.ones(64, 48, dtype=torch.bool))
    assert cause.clause.startswith("all values are too near 0, by about 1.")


@pytest.mark.parametrize("exact", [-EXACT.abs() - 1, EXACT])
def test_an_unwritten_tail_is_no_clamp(exact):
    def unwritten(actual):
        actual[28:32] = 0

    cause = wrong_pattern(_changed(unwritten, exact), exact, (exact * 0 + torch.arange(64)[:, None] // 4 == 7))
    assert cause == ("the wrong values are 0, at 28 to 31 of 64 along dimension 0", NOT_WRITTEN)


def test_all_zeros_are_no_clamp():
    exact = -EXACT.abs() - 1
    cause = wrong_pattern(torch.zeros(64, 48), exact, torch.ones(64, 48, dtype=torch.bool))
    assert cause == ("all values are 0", NOT_WRITTEN)


def test_zeros_in_place_of_some_negative_values_are_no_clamp():
    wrong = (EXACT < 0) & (torch.arange(48) % 3 > 0)
    actual = torch.where(wrong, 0.0, EXACT).float()
    assert wrong_pattern(actual, EXACT, wrong) == ("the wrong values are 0", NOT_WRITTEN)


def test_errors_of_a_tenth_are_no_drift():
    exact = EXACT.abs() + 1

    def far(actual):
        actual *= 1.1 + 0.1 * torch.rand(64, 48, generator=torch.Generator().manual_seed(2))

    assert wrong_pattern(_changed(far, exact), exact, torch.ones(64, 48, dtype=torch.bool)) is None


def _changed(change, exact):
    actual = exact.float().clone()
    change(actual)
    return actual
