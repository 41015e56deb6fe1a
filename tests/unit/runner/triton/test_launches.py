"""Counting the launches of Triton's interpreter, with a stand-in for it."""

import sys
from types import ModuleType

import pytest

from evaluator.runner.triton.launches import InterpretedLaunches

NAME = "triton.runtime.interpreter"


def interpreter():
    class GridExecutor:
        def __call__(self, x, *, y):
            return x + y

    module = ModuleType(NAME)
    module.GridExecutor = GridExecutor
    return module


def test_each_launch_counts_once_and_gives_its_result(monkeypatch):
    module = interpreter()
    monkeypatch.setitem(sys.modules, NAME, module)
    launches = InterpretedLaunches()
    launches.watch()
    launches.watch()
    assert [module.GridExecutor()(1, y=2), module.GridExecutor()(3, y=4)] == [3, 7]
    assert launches.count == 2


def test_a_launch_that_fails_counts_as_none_and_fails_again_while_left_out(monkeypatch):
    module = interpreter()
    monkeypatch.setitem(sys.modules, NAME, module)
    launches = InterpretedLaunches()
    launches.watch()
    good, bad = module.GridExecutor(), module.GridExecutor()
    good.fn, bad.fn = "good", "bad"
    with pytest.raises(TypeError):
        bad(1, y="2")
    assert launches.count == 0
    launches.left_out = True
    assert good(1, y=2) is None
    with pytest.raises(TypeError):
        bad(1, y=2)
    assert launches.count == 1


def test_triton_may_be_imported_later_or_be_another(monkeypatch):
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    launches = InterpretedLaunches()
    launches.watch()
    monkeypatch.setitem(sys.modules, NAME, ModuleType(NAME))
    launches.watch()
    assert launches.count == 0
