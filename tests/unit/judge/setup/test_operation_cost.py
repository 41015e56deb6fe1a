"""The cost of a forward pass is counted: the same numbers on any machine."""

import torch

from evaluator.judge.setup.operation_cost import Cost, cost_of


def test_a_product_is_counted_with_the_bytes_that_it_moves():
    one, other = torch.ones(8, 16), torch.ones(16, 4)
    assert cost_of(lambda: one @ other) == Cost(flop=2 * 8 * 16 * 4, moved_bytes=4 * (128 + 64 + 32), operations=1)


def test_a_view_moves_nothing_and_counts_as_an_operation():
    one = torch.ones(8, 16)
    assert cost_of(one.t) == Cost(flop=0, moved_bytes=0, operations=1)


def test_each_operation_of_a_loop_counts():
    def forward():
        total = torch.zeros(1)
        for _ in range(100):
            total = total + 1
        return total

    assert cost_of(forward).operations == 101
    assert cost_of(forward).nominal_s("cpu") > 100 * 5e-6
