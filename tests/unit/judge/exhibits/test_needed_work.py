"""Work that a reference needs in a call."""

import pytest

from evaluator.judge.exhibits.own_kernels import needed_work
from tests.unit.references import reference

X = 4 * 32 * 64


@pytest.mark.parametrize(
    ("output", "changes", "flop", "moved_bytes", "operations", "least_bytes"),
    [
        ("torch.relu(x)", {}, 0, 2 * X, 1, 2 * X),
        ("torch.relu(x * 2).t().contiguous()", {}, 0, 4 * X, 2, 2 * X),
        ("x.t().contiguous()", {}, 0, 0, 0, 2 * X),
        ("x @ x.t()", {}, 2 * 32 * 64 * 32, 2 * X + 4 * 32 * 32, 1, X + 4 * 32 * 32),
        # Forward, backward, the gradient of the output, and the gradient of the input.
        ("torch.relu(x)", {"backward": True}, 0, 5 * X, 2, 4 * X),
    ],
)
def test_the_work_of_a_reference(output, changes, flop, moved_bytes, operations, least_bytes):
    needed = needed_work(reference(output, **changes))
    assert needed.cost == (flop, moved_bytes, operations)
    assert needed.least_bytes == least_bytes


def test_the_operations_of_a_reference_have_names():
    assert needed_work(reference("torch.relu_(x + 1).t()")).operations == {"add", "relu"}
