"""Kernels compiled inside a runner, as the judge asks for them."""

from types import SimpleNamespace

import pytest

from evaluator.cuda_source.symbols import Kernels
from evaluator.findings import Code, finding
from evaluator.judge.runners.jit_kernels import own_names, read_kernels
from evaluator.protocol.frames import CompiledKernels, LeftOut, ReadKernels
from evaluator.records import Fault, Status

DIED = Fault(Status.RUNTIME_ERROR, finding(Code.RUNNER_DIED, "gone"))


def session(answer):
    done = []
    return SimpleNamespace(
        done=done, let_go=lambda: done.append("let go"), ask=lambda frame, *_: done.append(frame) or answer
    )


def test_a_runner_is_let_go_before_it_is_asked():
    found = CompiledKernels(cache=b"x", kernels=[])
    runner = session(found)
    assert read_kernels(runner, "import triton") is found
    assert runner.done == ["let go", ReadKernels()]


def test_a_text_without_triton_needs_no_answer():
    runner = session(CompiledKernels(cache=b"x", kernels=[]))
    assert read_kernels(runner, "import torch") is None
    assert runner.done == []


@pytest.mark.parametrize("answer", [DIED, LeftOut()])
def test_a_runner_that_answers_something_else_has_no_kernels(answer):
    assert read_kernels(session(answer), "import triton") is None


def test_the_text_adds_its_kernels_to_those_of_libraries():
    service = SimpleNamespace(device_code=[Kernels(device_code=True, names=["built"])])
    found = own_names(service, "import triton\n@triton.jit\ndef jitted(x):\n    pass\n")
    assert found == Kernels(device_code=True, names=["built", "jitted"])
