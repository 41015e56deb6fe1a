"""Parameters that a submission lays out anew in a call: where their values go from then on."""

import pytest
import torch
from torch import nn

from evaluator.runner.correspondence import Counterpart
from evaluator.runner.parameters import ChangingParameters


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Linear(4, 4))

    def __getattr__(self, name):
        if name == "layers" and "fails" in self.__dict__:
            raise RuntimeError("a failure of the submission's own")
        return super().__getattr__(name)


@pytest.fixture
def model():
    return Nested()


def changing(model, **views):
    state = {**model.state_dict(), **views}
    names = ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"]
    return ChangingParameters(model, {name: Counterpart(name, state[name], is_proven=True) for name in names})


def channels_last(model):
    model.to(memory_format=torch.channels_last)


def data(model):
    model.layers[0].weight.data = model.layers[0].weight.data.clone()


def another_parameter(model):
    model.layers[0].weight = nn.Parameter(model.layers[0].weight.detach().clone())


def another_module(model):
    layer = nn.Conv2d(2, 3, 3)
    layer.weight.data.copy_(model.layers[0].weight.data)
    layer.bias = model.layers[0].bias
    model.layers = nn.Sequential(layer, model.layers[1])


@pytest.mark.parametrize("move", [channels_last, data, another_parameter, another_module])
def test_values_go_to_both_places_of_a_moved_parameter(model, move):
    weights = changing(model)
    assert weights.look() == []
    first = model.layers[0].weight.data
    move(model)
    assert weights.look() == weights.look() == ["layers.0.weight"]
    given = torch.randn(3, 2, 3, 3)
    version = model.layers[0].weight._version
    weights.follow({"layers.0.weight": given})
    assert torch.equal(model.layers[0].weight, given)
    assert torch.equal(first, given)
    assert model.layers[0].weight._version > version


def test_what_the_judge_writes_at_the_first_place_reaches_the_other(model):
    weights = changing(model)
    first = model.layers[0].weight.data
    data(model)
    weights.look()
    first.fill_(7.0)
    weights.follow({})
    assert (model.layers[0].weight == 7.0).all()


def test_a_parameter_that_comes_back_is_at_one_place_again(model):
    weights = changing(model)
    first = model.layers[0].weight.data
    data(model)
    elsewhere = model.layers[0].weight.data
    assert weights.look() == ["layers.0.weight"]
    model.layers[0].weight.data = first
    assert weights.look() == []
    weights.follow({"layers.0.weight": torch.ones(3, 2, 3, 3)})
    assert not (elsewhere == 1.0).any()


def test_a_plain_attribute_made_in_inference_mode_is_followed():
    model = nn.Module()
    model.weight = torch.randn(3)
    weights = ChangingParameters(model, {"weight": Counterpart("weight", model.weight, is_proven=True)})
    with torch.inference_mode():
        model.weight = model.weight.clone()
    assert model.weight.is_inference()
    assert weights.look() == ["weight"]
    weights.follow({"weight": torch.ones(3)})
    assert (model.weight == 1.0).all()


def test_lazily_conjugated_parameters_are_followed():
    model = nn.Module()
    model.weight = nn.Parameter(torch.randn(3, dtype=torch.complex64))
    weights = ChangingParameters(model, {"weight": Counterpart("weight", model.weight.detach(), is_proven=True)})
    model.weight.data = model.weight.data.conj().resolve_conj().conj()
    assert weights.look() == ["weight"]
    given = torch.randn(3, dtype=torch.complex64)
    weights.follow({"weight": given})
    assert torch.equal(model.weight.detach().resolve_conj(), given)


def half(model):
    model.half()


def meta(model):
    model.to("meta")


def gone(model):
    del model.layers


def other_shape(model):
    model.layers[0].weight.data = torch.randn(3, 2, 5, 5)


def broken(model):
    model.fails = True


@pytest.mark.parametrize("move", [half, meta, gone, other_shape, broken])
def test_what_is_no_such_parameter_any_more_stays_where_it_was(model, move):
    weights = changing(model)
    before = {name: view.data_ptr() for name, view in weights.views.items()}
    move(model)
    assert weights.look() == []
    assert {name: view.data_ptr() for name, view in weights.views.items()} == before


def test_a_parameter_in_another_order_than_the_references_is_not_followed(model):
    """A square matrix that is the transpose of the reference's has equal shapes in both orders."""
    weights = changing(model, **{"layers.1.weight": model.layers[1].weight.detach().t()})
    model.layers[1].weight.data = model.layers[1].weight.data.clone()
    assert weights.look() == []


def test_a_submission_without_parameters_has_nothing_to_follow():
    weights = ChangingParameters()
    assert (weights.views, weights.look()) == ({}, [])
    weights.follow({})
