"""Inputs that a submission wrote into."""

import pytest
import torch

from evaluator.findings import Code
from evaluator.judge.answer import output_checks
from evaluator.judge.answer.output_checks import changed_input
from evaluator.judge.tensors.pytree import LaidOut


class OnGpu(torch.Tensor):
    """A tensor that says that it is on a GPU, where comparisons are queued and read later."""

    is_cuda = True


@pytest.fixture(params=[torch.Tensor, OnGpu])
def kind(request):
    return request.param


def laid_out(kind, count, changed=()):
    """Return `count` inputs, of which a submission has `changed` some."""
    own = [torch.arange(12.0).as_subclass(kind) for _ in range(count)]
    shared = [each.clone() for each in own]
    for number in changed:
        shared[number][7] = -0.5
    pairs = [(f"input {number}", *sides) for number, sides in enumerate(zip(own, shared, strict=True))]
    return LaidOut([], pairs)


@pytest.mark.parametrize("count", [0, 1, 16, 33])
def test_inputs_that_stay_are_no_finding(kind, count):
    assert changed_input(laid_out(kind, count), frozenset()) is None


@pytest.mark.parametrize("number", range(0, 33, 4))
def test_the_first_changed_input_of_many_is_named(kind, number):
    found = changed_input(laid_out(kind, 33, (number, 32)), frozenset())
    assert (found.code, found.details["path"]) == (Code.INPUT_CHANGED.value, f"input {number}")


def test_the_sign_of_a_zero_and_another_nan_are_changes(kind):
    for before, after in ((0.0, -0.0), (torch.nan, -torch.nan)):
        own = torch.tensor([before, 1.0]).as_subclass(kind)
        shared = torch.tensor([after, 1.0]).as_subclass(kind)
        found = changed_input(LaidOut([], [("x", own, shared)]), frozenset())
        same = changed_input(LaidOut([], [("x", own, own.clone())]), frozenset())
        assert (found is not None, same) == (True, None)


def test_an_input_that_the_reference_writes_into_may_change(kind):
    assert changed_input(laid_out(kind, 3, (1,)), frozenset({1})) is None


def test_an_input_that_the_reference_writes_into_may_change_in_each_call_of_a_window(kind):
    one, other = laid_out(kind, 2, (1,)), laid_out(kind, 2, (1,))
    assert changed_input(LaidOut([], [*one.pairs, *other.pairs]), frozenset({1})) is None
    found = changed_input(LaidOut([], [*one.pairs, *laid_out(kind, 2, (0,)).pairs]), frozenset({1}))
    assert found.details["path"] == "input 0"


@pytest.mark.parametrize("start", [0, 5])
def test_an_empty_part_of_a_tensor_stays(start):
    """PyTorch gives it the address 0, wherever it starts."""
    own = torch.randn(10)[start:start]
    assert changed_input(LaidOut([], [("input 0", own, own.clone())]), frozenset()) is None


def test_a_change_in_any_piece_of_a_large_input_is_seen(kind, monkeypatch):
    monkeypatch.setattr(output_checks, "_PIECE", 2)
    assert changed_input(laid_out(kind, 1, (0,)), frozenset()) is not None


def test_a_gpu_is_waited_for_once_for_several_inputs(monkeypatch):
    waits = []
    monkeypatch.setattr(output_checks, "_all_true", lambda found: waits.append(len(found)) or True)
    assert changed_input(laid_out(OnGpu, 40), frozenset()) is None
    assert waits == [16, 16, 8]
