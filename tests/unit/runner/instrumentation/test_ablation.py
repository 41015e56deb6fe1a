"""One side of the work left out of a runner: PyTorch's operations, or the functions of an extension."""

import math
import subprocess
import sys
from types import ModuleType

import pytest
import torch

from evaluator.runner.instrumentation import LEFT_OUT, OwnFunctions

WITHOUT_LIBRARY = """
import torch
from evaluator.runner.instrumentation import leave_out_library
x, table = torch.randn(4, 4), torch.nn.Linear(4, 4)
leave_out_library("cpu")
torch.manual_seed(0)
kept = [
    lambda: torch.empty_like(x).copy_(x).view(16)[2:].contiguous(),
    lambda: torch.cat([x, torch.zeros(4, 4), torch.full((4, 4), 2.0)]).t().clone(),
    lambda: torch.randn(3).to(torch.float16).fill_(1.0).tolist(),
    lambda: torch.arange(4).expand(4, 4).reshape(-1).item if True else None,
    lambda: float(x[0, 0]),
]
gone = [
    lambda: torch.relu(x),
    lambda: x + 1,
    lambda: x @ x,
    lambda: table(x),
    lambda: x.sum(),
    lambda: torch.nn.functional.softmax(x, -1),
    lambda: torch.nn.functional.conv2d(x[None, None], x[None, None]),
    lambda: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
    lambda: x.max(),
    lambda: x.to_sparse(),
    lambda: x.to_mkldnn(),
    lambda: torch.quantize_per_tensor(x, 1.0, 0, torch.qint8),
    lambda: x.mul_(2),
]
for each in kept:
    each()
with torch.no_grad():
    for number, each in enumerate(gone):
        try:
            each()
        except RuntimeError as error:
            assert str(error).startswith("WORDS"), (number, error)
        else:
            raise AssertionError(f"operation {number} computed")
print("done")
"""


@pytest.mark.process
def test_without_the_library_tensors_are_made_and_moved_and_nothing_computes():
    text = WITHOUT_LIBRARY.replace("WORDS", LEFT_OUT)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "done", done.stderr


def in_place(x, out):
    out.copy_(x)
    return 7


class Op:
    def run(self, x):
        return x + 1

    @staticmethod
    def twice(x):
        return x * 2


@pytest.fixture
def module():
    module = ModuleType("extension")
    module.double = lambda x: x * 2
    module.in_place = in_place
    module.itself = lambda x: x.mul_(3)
    module.mean = lambda x: float(x.mean())
    module.flags = lambda x: (x > 0, x.long())
    module.address = lambda address: 1 / 0 if address else None
    module.Op = type("Op", (), dict(vars(Op)))
    module.number = 3
    return module


def test_until_then_functions_work(module):
    OwnFunctions().wrap_in(module)
    x = torch.arange(4.0)
    assert module.double(x).tolist() == [0, 2, 4, 6]
    assert module.Op().run(x).tolist() == [1, 2, 3, 4]
    assert module.Op().twice(x).tolist() == module.Op.twice(x).tolist() == [0, 2, 4, 6]
    assert module.number == 3


def test_a_function_has_no_effect_any_more_under_whatever_name_it_is_kept(module):
    own_functions = OwnFunctions()
    own_functions.wrap_in(module)
    kept, op = module.double, module.Op()
    own_functions.leave_out()
    x, out = torch.arange(4.0), torch.zeros(4)
    assert kept(x).isnan().all()
    assert op.run(x).isnan().all()
    assert op.twice(x).isnan().all()
    assert module.in_place(x, out) == -8
    assert module.itself(x) is x
    assert math.isnan(module.mean(x))
    right, (positive, whole) = (x > 0, x.long()), module.flags(x)
    assert not (positive == right[0]).any()
    assert not (whole == right[1]).any()
    assert (x.tolist(), out.tolist()) == ([0, 1, 2, 3], [0, 0, 0, 0])


def test_only_names_that_python_uses_are_no_functions_of_an_extensions():
    class Called:
        def __call__(self, x):
            return x + 1

    module = ModuleType("extension")
    module.__double, module.Called = (lambda x: x * 2), Called
    own_functions = OwnFunctions()
    own_functions.wrap_in(module)
    own_functions.leave_out()
    x = torch.arange(4.0)
    assert getattr(module, "__double")(x).isnan().all()
    assert module.Called()(x).isnan().all()


def test_functions_of_submodules_are_own_and_those_of_other_modules_are_not():
    """As `def_submodule` of pybind11 makes them."""
    extension, inner, other = ModuleType("extension"), ModuleType("extension.inner"), ModuleType("other")
    extension.inner, extension.other, inner.back = inner, other, extension
    inner.double = other.double = lambda x: x * 2
    own_functions = OwnFunctions()
    own_functions.wrap_in(extension)
    own_functions.leave_out()
    x = torch.arange(4.0)
    assert extension.inner.double(x).isnan().all()
    assert extension.other.double(x).tolist() == [0, 2, 4, 6]


def test_a_function_that_is_given_an_address_is_not_called(module):
    own_functions = OwnFunctions()
    own_functions.wrap_in(module)
    own_functions.leave_out()
    assert module.address(1) is None


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
@pytest.mark.parametrize("values", [[3, 0, 2, 1], [2, 2], [0], [5]])
def test_indices_that_are_left_out_stay_indices(values, dtype):
    module = ModuleType("extension")
    module.order = lambda like: torch.tensor(values, dtype=dtype)
    own_functions = OwnFunctions()
    own_functions.wrap_in(module)
    own_functions.leave_out()
    other = module.order(torch.zeros(1))
    assert other.tolist() != values
    assert 0 <= int(other.min()) <= int(other.max()) <= max(*values, 1)


@pytest.fixture
def operators():
    """Register operators as a library with `TORCH_LIBRARY` does, without a dispatch key of its own."""
    library = torch.library.Library("warpgrade_left_out", "DEF")
    for name, function in {"double": lambda x: x * 2, "same": lambda x: x.clone()}.items():
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, function, "CompositeImplicitAutograd")
    yield torch.ops.warpgrade_left_out
    library._destroy()


def test_an_operator_has_no_effect_any_more_by_whichever_way_it_is_called(operators):
    packet, overload = operators.double, operators.double.default
    own_functions = OwnFunctions()
    own_functions.wrap(None, [packet, overload])
    x = torch.arange(4.0)
    assert packet(x).tolist() == overload(x).tolist() == [0, 2, 4, 6]
    own_functions.leave_out()
    for each in (packet, overload, operators.double):
        assert each(x).isnan().all()
