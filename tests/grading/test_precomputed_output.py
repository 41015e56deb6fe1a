"""Outputs that were made, or half made, before their inputs existed; and honest ones that look a little like it."""

import pytest

from evaluator.findings import Code
from evaluator.records import Status
from tests.grading.harness import module

PREPARED = module(
    "from evaluator.runner.main import Runner",
    "shapes, ready, prepare = [], [], Runner._prepare",
    "def prepared(self, frame):",
    "    answer = prepare(self, frame)",
    "    ready[:] = [torch.zeros(shape) for shape in shapes]",
    "    return answer",
    "Runner._prepare = prepared",
    forward=[
        "y = ready.pop() if ready else torch.zeros(x.shape)",
        "shapes[:] = [x.shape]",
        "positive = x > 0",
        "y[positive] = x[positive]",
        "return y",
    ],
)
HONEST = {
    "zeros that are written in the call": module(
        forward=["y = torch.zeros(x.shape)", "positive = x > 0", "y[positive] = x[positive]", "return y"]
    ),
    "an earlier call's result is let go of in the call": module(
        "kept = []",
        forward=[
            "old = kept.pop().data_ptr() if kept else 0",
            "y = torch.relu(x)",
            "if y.data_ptr() == old: raise RuntimeError('this memory is not new')",
            "kept.append(torch.relu(x))",
            "return y",
        ],
    ),
    "an output outside of the shared memory": module(
        "import numpy", forward=["return torch.from_numpy(numpy.maximum(x.numpy(), 0))"]
    ),
    "two buffers that are kept and written in turn": module(
        "ring = []",
        forward=[
            "if not ring: ring.extend(torch.empty_like(x) for _ in range(2))",
            "ring.reverse()",
            "return torch.clamp(x, min=0, out=ring[0])",
        ],
    ),
    "a part of something larger": module(
        forward=["y = torch.zeros(len(x) + 2, x.shape[1] + 3)[1:-1, 1:-2]", "return y.copy_(torch.relu(x))"]
    ),
    "behind a large workspace": module(
        forward=["work = torch.zeros(16 * x.numel())", "y = torch.relu(x)", "del work", "return y"]
    ),
}


def test_zeros_that_were_written_off_the_clock_are_seen(judged):
    outcome = judged(PREPARED)
    assert outcome.status is Status.WRONG_RESULT
    assert outcome.reason.code == Code.STOOD_BEFORE.value


@pytest.mark.parametrize("source", HONEST.values(), ids=HONEST)
def test_what_is_made_in_the_call_is_correct(judged, source):
    outcome = judged(source)
    assert outcome.status is Status.CORRECT, outcome.reason
