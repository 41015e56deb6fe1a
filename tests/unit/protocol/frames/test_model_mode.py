"""Mode of a model's modules, and its transfer to another model."""

import pytest
import torch

from evaluator.protocol.frames.model_mode import ModelMode, mode_of, set_mode


def model():
    return torch.nn.Sequential(torch.nn.Dropout(), torch.nn.BatchNorm1d(2))


def test_a_constructed_model_is_in_training():
    assert mode_of(model()) is ModelMode.TRAIN


def test_a_model_after_eval_is_in_evaluation():
    assert mode_of(model().eval()) is ModelMode.EVAL


def test_one_module_in_evaluation_is_a_mode_that_no_other_model_can_have():
    mixed = model()
    mixed[1].eval()
    assert mode_of(mixed) is ModelMode.AS_CONSTRUCTED


@pytest.mark.parametrize("mode", [ModelMode.TRAIN, ModelMode.EVAL])
@pytest.mark.parametrize("training", [True, False])
def test_all_modules_get_the_mode(mode, training):
    made = model().train(training)
    set_mode(made, mode)
    assert mode_of(made) is mode


def test_a_model_may_stay_as_constructed():
    mixed = model()
    mixed[0].eval()
    set_mode(mixed, ModelMode.AS_CONSTRUCTED)
    assert [each.training for each in mixed] == [False, True]
