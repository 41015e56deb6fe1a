"""Calls that the precision check keeps, and whether their errors are enough."""

import pytest
import torch

from evaluator.judge.compare.tensor_comparison import Sides
from evaluator.judge.numerics.precision_sampler import PrecisionWatch
from evaluator.judge.reference.cancelling_rows import Slices
from evaluator.records import Precision
from tests import cards


def watched(calls, *, rows, columns, secret, kinds=(False,)):
    """Show correct calls of an output in fp32, with `secret` secret rows of each of `kinds` in turn."""
    watch = PrecisionWatch(Precision.FP32)
    draw = torch.Generator().manual_seed(1)
    for number in range(calls):
        exact = torch.randn(rows, columns, dtype=torch.float64, generator=draw)
        slices = [Slices(0, rows, list(range(secret)), kinds[number % len(kinds)])] if secret else []
        watch.begin(1, {"output": slices})
        watch.add(0, "output", Sides(exact.float() * (1 + 2e-7), exact, exact.float()), in_float64=True)
        watch.draw_lots(number, cards.check())
    return watch


@pytest.mark.parametrize(
    ("calls", "rows", "columns", "secret", "kinds", "lacks"),
    [
        (8, 128, 1, 2, (False,), True),  # 16 errors of secret rows
        (16, 128, 1, 2, (False,), False),  # 32
        (16, 128, 1, 2, (False, True), True),  # 16 of each kind
        (32, 128, 1, 2, (False, True), False),
        (2, 64, 64, 4, (False, True), False),  # 256 of each
        (8, 128, 64, 0, (False,), False),  # no secret rows
        (8, 4, 4, 0, (False,), True),  # an output of 16 elements is tested over 20 calls
        (20, 4, 4, 0, (False,), False),
    ],
)
def test_a_test_over_several_calls_lacks_errors_until_it_has_enough(calls, rows, columns, secret, kinds, lacks):
    watch = watched(calls, rows=rows, columns=columns, secret=secret, kinds=kinds)
    assert watch.lacks_errors is lacks


def test_without_float64_no_call_is_kept_and_no_test_lacks_errors():
    watch = watched(3, rows=128, columns=1, secret=2)
    exact = torch.randn(128, 1, dtype=torch.float64)
    watch.begin(1, {})
    watch.add(0, "output", Sides(exact.float() * (1 + 2e-7), exact, exact.float()), in_float64=False)
    watch.draw_lots(9, cards.check())
    assert not watch.lacks_errors
