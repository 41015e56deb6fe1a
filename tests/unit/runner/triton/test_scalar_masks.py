"""Scalar conditions in masks of Triton's interpreter."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest

from evaluator.runner.triton.launches import install_scalar_masks

interpreter = pytest.importorskip("triton.runtime.interpreter")
tl = importlib.import_module("triton.language")
BLOCK = tl.block_type(tl.int1, [4])


@pytest.fixture
def builder(monkeypatch):
    """A builder of the interpreter with the mended spread. Other tests have the interpreter's own."""
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_splat", interpreter.InterpreterBuilder.create_splat)
    install_scalar_masks(interpreter)
    return interpreter.InterpreterBuilder()


@pytest.mark.parametrize("rows", [3, 2])
def test_a_scalar_comparison_spreads_as_truth_values(builder, rows):
    row, limit = (interpreter.TensorHandle(np.array([value], dtype=np.int32), tl.int32) for value in (2, rows))
    mask = builder.create_splat(BLOCK, builder.create_icmpSLT(row, limit))
    assert (mask.data.dtype, mask.data.tolist()) == (np.bool_, [rows == 3] * 4)


def test_a_number_spreads_as_its_type(builder):
    one = interpreter.TensorHandle(np.array([1], dtype=np.int32), tl.int32)
    spread = builder.create_splat(tl.block_type(tl.int32, [4]), one)
    assert (spread.data.dtype, spread.data.tolist()) == (np.int32, [1] * 4)


def test_another_interpreter_stays_unchanged():
    class Builder:
        create_splat = "its own"

    for other in (SimpleNamespace(interpreter_builder=Builder()), SimpleNamespace(TensorHandle=None, tl=tl)):
        given = dict(vars(other))
        install_scalar_masks(other)
        assert vars(other) == given
    assert Builder.create_splat == "its own"
