"""A reference with state between its calls has no expected values: it is refused before any submission runs."""

import pytest
import torch

from evaluator.errors import ProblemError
from evaluator.judge.reference import agreement
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.problem_setup import try_one_call
from evaluator.records import SizeName
from tests.unit.references import problem

STATES = {
    "a hidden state": "self.__dict__.update(h=torch.tanh(x + getattr(self, 'h', 0.5))) or self.h * 2",
    "a counter": "x * (self.__dict__.setdefault('n', []).append(0) or len(self.n))",
    "indices of NumPy's random numbers": "torch.from_numpy(__import__('numpy').random.randint(0, 99, (8, 3)))",
    "random numbers of NumPy": "x * torch.from_numpy(__import__('numpy').random.rand(8, 3)).float()",
}
NONE = {
    "no state": "torch.relu(x)",
    "dropout": "torch.nn.functional.dropout(x, 0.5, True)",
    "rounding that differs": "x.sub(x) + 1e-6 * (self.__dict__.setdefault('n', []).append(0) or len(self.n))",
    "a cache of equal values": "self.__dict__.setdefault('kept', torch.ones(3)) + x.sum()",
    "in place": "x.mul_(2)",
    "no finite number": "x * float('nan')",
}


def made(forward):
    return Reference(problem(forward, "torch.rand(8, 3)"), SizeName.SMALL, 1)


@pytest.mark.parametrize("forward", STATES.values(), ids=STATES)
def test_state_between_calls_is_refused(forward):
    with pytest.raises(ProblemError, match="two equal calls differ") as refused:
        try_one_call(made(forward), on_gpu=False)
    assert "reset tensors" in refused.value.hint


@pytest.mark.parametrize("forward", NONE.values(), ids=NONE)
def test_equal_answers_and_rounding_are_allowed(forward):
    assert try_one_call(made(forward), on_gpu=False)[0].output_bytes > 0


def test_a_row_block_is_not_compared(monkeypatch):
    reference = Reference(problem("torch.relu(x)", "torch.rand(8, 3)", split={"x": 0}), SizeName.SMALL, 1)
    monkeypatch.setattr(agreement, "_BLOCK_BYTES", 50)
    assert try_one_call(reference, on_gpu=False)[0].output_bytes > 0
    assert len(reference.blocks(reference.draw(1))) == 4


def test_the_second_call_is_the_one_that_settles_the_reference():
    counted = "x * 0 + (self.__dict__.setdefault('n', []).append(0) or 1)"
    reference = made(counted)
    inputs = reference.draw(1)
    outputs = reference.forward(inputs, 0)
    assert torch.equal(reference.settle(inputs, outputs), outputs)
    assert len(reference.model.n) == 2
