"""Modes that a model is put into after its construction."""

import pytest
import torch

from evaluator.protocol.frames.model_mode import ModelMode, evaluates, set_mode


def model():
    return torch.nn.Sequential(torch.nn.Dropout(), torch.nn.BatchNorm1d(2))


@pytest.mark.parametrize(("mode", "training"), [(ModelMode.TRAIN, True), (ModelMode.EVAL, False)])
@pytest.mark.parametrize("before", [True, False])
def test_all_modules_get_the_mode(mode, training, before):
    made = model().train(before)
    set_mode(made, mode)
    assert [each.training for each in made.modules()] == [training] * 3


def test_a_model_may_stay_as_constructed():
    mixed = model()
    mixed[0].eval()
    set_mode(mixed, ModelMode.AS_CONSTRUCTED)
    assert [each.training for each in mixed] == [False, True]


def test_a_model_as_constructed_needs_no_train():
    """A submission's own `train` may raise, or be a training loop."""
    made = model()
    made.train = made.eval = None
    set_mode(made, ModelMode.AS_CONSTRUCTED)
    assert made.training


def test_one_module_in_evaluation_is_enough():
    mixed = model()
    assert not evaluates(mixed)
    mixed[1].eval()
    assert evaluates(mixed)
    assert evaluates(model().eval())
