"""One call of a model: its outputs, and the gradients by name."""

import pytest
import torch

from evaluator.protocol.model_call import forward, forward_backward


class Affine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([2.0, 3.0]))
        self.frozen = torch.nn.Parameter(torch.tensor(1.0), requires_grad=False)
        self.unused = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, x, *, scale=None):
        y = x * self.weight * self.frozen
        return y if scale is None else y * scale


def ones(*shape):
    return torch.ones(*shape)


def grads(model, *args, gradients=None, **kwargs):
    return forward_backward(model, args, kwargs, [ones(2)] if gradients is None else gradients).gradients


def test_a_forward_records_no_gradients():
    result = forward(Affine(), [ones(2)], {"scale": ones(2)})
    assert result.outputs.tolist() == [2, 3]
    assert not result.outputs.requires_grad
    assert result.gradients is None


def test_gradients_have_names_and_the_right_values():
    x, scale = torch.tensor([5.0, 7.0]), torch.tensor([10.0, 100.0])
    found = grads(Affine(), x, scale=scale, gradients=[torch.tensor([1.0, -1.0])])
    assert {name: None if value is None else value.tolist() for name, value in found.items()} == {
        "input 0": [20, -300],
        "input scale": [10, -21],
        "parameter weight": [50, -700],
        "parameter unused": None,
    }


def test_a_second_call_does_not_add_to_the_first():
    model, x = Affine(), ones(2)
    first = grads(model, x)
    second = grads(model, x)
    assert second["parameter weight"].tolist() == first["parameter weight"].tolist() == [1, 1]
    assert second["input 0"].tolist() == [2, 3]
    assert second["parameter weight"] is not first["parameter weight"]


def test_only_floating_inputs_have_gradients_and_nested_ones_have_places():
    def model(pair, index, mask, *, table):
        return pair[0] * 2 + pair[1][0] * 3 + table["b"] * 4

    found = grads(
        model,
        [ones(2), (ones(2), torch.arange(2))],
        torch.arange(2),
        torch.tensor([True, False]),
        table={"a": "text", "b": ones(2)},
    )
    assert {name: value.tolist() for name, value in found.items()} == {
        "input 0.0": [2, 2],
        "input 0.1": [3, 3],
        "input table.0": [4, 4],
    }


def test_each_floating_output_takes_its_own_gradient():
    def model(x):
        return {"first": x * 2, "index": x.argmax(), "rest": (x.detach(), [x * 10])}

    gradients = [torch.tensor([1.0, 0.0]), torch.tensor([9.0, 9.0]), torch.tensor([0.0, 1.0])]
    assert grads(model, ones(2), gradients=gradients)["input 0"].tolist() == [2, 10]


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x.detach() * 2,
        lambda x: x.argmax(),
        lambda x: "text",
        lambda x: None,
        lambda x: (),
        lambda x: x[:1] * 2,  # of another shape than the gradient: nothing is broadcast
    ],
)
def test_an_output_without_a_gradient_gives_none(model):
    result = forward_backward(model, [ones(2)], {}, [ones(2)])
    assert result.gradients == {"input 0": None}


def test_an_input_that_is_the_output_has_the_outputs_gradient():
    gradient = torch.tensor([4.0, 5.0])
    assert grads(lambda x: x, ones(2), gradients=[gradient])["input 0"].tolist() == [4, 5]


def test_what_a_model_raises_is_passed_on():
    def model(x):
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        grads(model, ones(2))


def test_the_gradients_of_a_dicts_outputs_are_those_of_their_keys():
    def model(x, *, reverse):
        outputs = {"b": x * 2, "a": [x * 3, x.argmax()]}
        return dict(reversed(outputs.items())) if reverse else outputs

    gradients = [torch.full((2,), 5.0), torch.full((2,), 7.0)]
    for reverse in (False, True):
        found = forward_backward(model, [ones(2)], {"reverse": reverse}, gradients).gradients
        assert found["input 0"].tolist() == [29.0, 29.0]
