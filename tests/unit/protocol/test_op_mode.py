import subprocess
import sys

import pytest
import torch

from evaluator.judge.numerics.arithmetic_modes import Format, with_operands

PLAIN = """
import sys, torch
from evaluator.judge.numerics.arithmetic_modes import Format, with_operands
a = torch.full((2, 2), 1.001)
with with_operands(Format.BF16):
    assert (a @ a).tolist() == [[2.0, 2.0]] * 2
print("torch._dynamo" in sys.modules)
"""


@pytest.mark.process
def test_a_mode_does_not_bring_in_the_compiler():
    run = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True, check=False, timeout=300)
    assert run.stdout == "False\n", run.stderr


@pytest.mark.process
def test_nothing_of_a_mode_is_compiled_where_there_is_a_compiler():
    graphs = []

    def backend(module, inputs):
        graphs.append(inputs)
        return module.forward

    def model(a, b):
        return (a @ b).relu().sum(-1)

    a, b = torch.rand(8, 16), torch.rand(16, 8)
    compiled = torch.compile(model, backend=backend)
    assert torch.equal(compiled(a, b), model(a, b))
    made = len(graphs)
    assert made
    with with_operands(Format.BF16):
        under, eager = compiled(a, b), model(a, b)
    torch._dynamo.reset()
    assert torch.equal(under, eager)
    assert not torch.equal(under, model(a, b))
    assert len(graphs) == made
