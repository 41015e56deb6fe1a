"""A reference with state between its calls has no expected values: it is refused before any submission runs."""

import pytest

from evaluator.errors import ProblemError
from evaluator.judge.reference import row_blocks
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup import repeated_call
from evaluator.judge.setup.problem_setup import try_one_call
from evaluator.records import SizeName
from tests.unit.references import problem

STATES = {
    "a hidden state": "self.__dict__.update(h=torch.tanh(x + getattr(self, 'h', 0.5))) or self.h * 2",
    "a counter": "x * (self.__dict__.setdefault('n', []).append(0) or len(self.n))",
    "random numbers of NumPy": "x * float(__import__('numpy').random.rand() + 0.5)",
}
NONE = {
    "no state": "torch.relu(x)",
    "dropout": "torch.nn.functional.dropout(x, 0.5, True)",
    "rounding that differs": "x.sub(x) + 1e-6 * (self.__dict__.setdefault('n', []).append(0) or len(self.n))",
    "a cache of equal values": "self.__dict__.setdefault('kept', torch.ones(3)) + x.sum()",
    "in place": "x.mul_(2)",
    "4 bits": "x.to(torch.uint8).view(torch.float4_e2m1fn_x2)",
    "no finite number": "x * float('nan')",
}


def made(forward):
    return Reference(problem(forward, "torch.rand(8, 3)"), SizeName.SMALL, 1)


@pytest.mark.parametrize("forward", STATES.values(), ids=STATES)
def test_state_between_calls_is_refused(forward):
    with pytest.raises(ProblemError, match="two equal calls differ") as refused:
        try_one_call(made(forward), on_gpu=False)
    assert "reset in forward" in refused.value.hint


@pytest.mark.parametrize("forward", NONE.values(), ids=NONE)
def test_equal_answers_and_rounding_are_allowed(forward):
    assert try_one_call(made(forward), on_gpu=False)[0].output_bytes > 0


def test_row_blocks_need_no_second_call(monkeypatch):
    reference = Reference(problem("torch.relu(x)", "torch.rand(8, 3)", split={"x": 0}), SizeName.SMALL, 1)
    monkeypatch.setattr(row_blocks, "_BLOCK_BYTES", 50)
    calls = []
    monkeypatch.setattr(repeated_call, "tensors_of", lambda value: calls.append(value) or [])
    assert try_one_call(reference, on_gpu=False)[0].output_bytes > 0
    assert len(reference.blocks(reference.draw(1))) == 4
    assert calls == []
