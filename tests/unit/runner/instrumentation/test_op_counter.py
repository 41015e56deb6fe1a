"""Counts of a call: functions of extensions, their operators, and PyTorch's operations."""

import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from evaluator.protocol.frames import Count, Counted, LeaveOut, LeftOut
from evaluator.runner.instrumentation import OpCounter, OwnFunctions
from evaluator.runner.main import Runner


@pytest.fixture
def own_functions():
    return OwnFunctions()


@pytest.fixture
def op_counter(own_functions):
    own_functions.op_counter = OpCounter(lambda: (0, 0))
    return own_functions.op_counter


def counts(op_counter):
    counted = op_counter.counted()
    return counted.library_calls, counted.own_calls, counted.mixed_calls


def fail(x):
    raise ValueError(x + 1)


class Op:
    def run(self, x):
        return x + 1

    @staticmethod
    def empty(x):
        return torch.empty_like(x)


@pytest.fixture
def module(own_functions):
    """An extension, loaded with wrappers."""
    module = ModuleType("extension")
    module.double = lambda x: x * 2
    module.empty = torch.empty_like
    module.fail = fail
    module.both = lambda x: module.double(module.empty(x))
    module.profile = lambda x: sys.getprofile()
    module.Op = type("Op", (), dict(vars(Op)))
    own_functions.wrap(module, [])
    return module


def operators(dispatch_key):
    """Register operators as a library with `TORCH_LIBRARY` does."""
    library = torch.library.Library("warpgrade_counted", "DEF")
    for name, function in {"double": lambda x: x * 2, "same": lambda x: x.clone()}.items():
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, function, dispatch_key)
    return library


@pytest.fixture
def composite(own_functions):
    """Operators without a dispatch key of their own."""
    library = operators("CompositeImplicitAutograd")
    found = torch.ops.warpgrade_counted
    own_functions.wrap(None, [found.double, found.double.default, found.same])
    yield found
    library._destroy()


@pytest.fixture
def with_cpu_kernels(own_functions):
    library = operators("CPU")
    found = torch.ops.warpgrade_counted
    own_functions.wrap(None, [found.double, found.double.default, found.same, found.same.default])
    yield found
    library._destroy()


def test_an_operator_is_counted_once_and_is_mixed_where_pytorch_computes(op_counter, composite):
    with op_counter:
        composite.double(torch.ones(2))
        composite.double.default(torch.ones(2))
        composite.same(torch.ones(2))
    assert counts(op_counter) == (2, 3, 2)


def test_an_operator_with_a_kernel_for_the_cpu_is_counted_once(op_counter, with_cpu_kernels):
    """The dispatch mode sees the operator, and calls it again."""
    with op_counter:
        with_cpu_kernels.same(torch.ones(2))
        with_cpu_kernels.same.default(torch.ones(2))
    assert counts(op_counter) == (0, 2, 0)


def test_functions_count_under_every_name_and_for_every_caller(op_counter, module):
    kept, run, x = module.double, module.Op().run, torch.ones(2)
    with op_counter:
        kept(x)
        run(x)
        module.Op.empty(x)
        module.Op().empty(x)
        [*map(module.empty, [x, x])]
        x + 1
    assert counts(op_counter) == (3, 6, 2)


def test_a_call_that_fails_counts(op_counter, module):
    with op_counter:
        for _ in range(2):
            with pytest.raises(ValueError, match="tensor"):
                module.fail(torch.ones(2))
        module.empty(torch.ones(2))
    assert counts(op_counter) == (2, 3, 2)


def test_own_calls_inside_own_calls_are_a_part_of_these(op_counter, module):
    with op_counter:
        module.both(torch.ones(2))
    assert counts(op_counter) == (1, 1, 1)


def test_nothing_counts_outside_of_the_block_or_in_another_thread(op_counter, module):
    x = torch.ones(2)
    module.double(x)
    with op_counter:
        thread = threading.Thread(target=module.double, args=(x,))
        thread.start()
        thread.join()
    module.double(x)
    assert counts(op_counter) == (0, 0, 0)


def test_no_profile_function_is_installed_and_that_of_others_stays(op_counter, module):
    """Under a profile function, CPython 3.11 can enter a function of PyTorch's for ever."""
    seen = []
    with op_counter:
        seen.append(module.profile(torch.ones(2)))

    def own(*_):
        pass

    sys.setprofile(own)
    try:
        with op_counter:
            seen.append(module.profile(torch.ones(2)))
        seen.append(sys.getprofile())
    finally:
        sys.setprofile(None)
    assert seen == [None, own, own]


@pytest.fixture
def runner(monkeypatch):
    """A runner for the ablation of own kernels, before the submission is loaded. It leaves this process's streams."""
    monkeypatch.setattr("evaluator.runner.main.Printing", lambda: None)
    runner = Runner(None, Path("/nonexistent"))
    runner._memory = SimpleNamespace(emulation=None)
    assert runner._answer(LeaveOut("kernels", begin=False)) == LeftOut()
    return runner


def test_a_frame_begins_a_count_and_the_next_one_ends_it(runner):
    module, x = ModuleType("extension"), torch.ones(2)
    module.double = lambda x: x * 2
    runner._own_functions.wrap(module, [])
    for _ in range(2):
        assert runner._answer(Count()) == Counted(launches=0, library_calls=0, own_calls=0, mixed_calls=0)
        with runner._op_counter:
            module.double(x)
        ended = runner._answer(Count())
        assert ended == Counted(
            launches=0, library_calls=1, own_calls=1, mixed_calls=1, operations=["mul"], moved_bytes=16
        )
        assert runner._op_counter is runner._own_functions.op_counter is None


def test_a_call_with_own_kernels_left_out_is_not_counted(runner):
    runner._answer(Count())
    runner._answer(LeaveOut("kernels", begin=True))
    assert runner._op_counter is runner._own_functions.op_counter is None


def test_the_work_of_operations_is_counted_and_copies_are_none(op_counter):
    one, other = torch.ones(8, 16), torch.ones(16, 4)
    with op_counter:
        (one @ other).clone().t().contiguous()
    counted = op_counter.counted()
    assert (counted.flop, counted.moved_bytes) == (2 * 8 * 16 * 4, 4 * (128 + 64 + 32))


def test_tensors_that_become_arrays_or_lists_are_counted_inside_of_the_block(op_counter):
    methods = {name: getattr(torch.Tensor, name) for name in ("numpy", "tolist", "__dlpack__")}
    x = torch.ones(4)
    with op_counter:
        assert x.numpy().sum() == 4
        assert x.__array__().sum() == 4
        assert x[:1].tolist() == [1.0]
    x.numpy()
    assert op_counter.counted().exported_bytes == 16 + 16 + 4
    assert {name: getattr(torch.Tensor, name) for name in methods} == methods
    assert "numpy" not in vars(torch.Tensor)
