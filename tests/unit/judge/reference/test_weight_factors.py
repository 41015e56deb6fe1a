"""Groups of small weights: the same weights as one by one, of bounded size, in few operations."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from evaluator.judge.reference import changing_weights, weight_factors
from evaluator.judge.reference.changing_weights import ChangingWeights
from evaluator.judge.reference.weight_factors import ChangeKind, groups_of

PERIOD = 101


def many():
    """Return parameters of every kind, some longer than a period."""
    torch.manual_seed(0)
    made = []
    for size in range(1, 30):
        made += [
            torch.randn(size, 7),
            torch.rand(size) + 1,
            torch.zeros(size),
            torch.randn(size).bfloat16(),
            torch.randn(size, dtype=torch.complex64),
            torch.randn(size, dtype=torch.float64),
            torch.randn(3, size).t(),
        ]
    return nn.ParameterList([*map(nn.Parameter, made), nn.Parameter(torch.tensor(3.0))])


def weights_of(model):
    return [parameter.detach().clone() for parameter in model]


@pytest.fixture
def alone(monkeypatch):
    """Return weights of a seed, computed without groups."""

    def compute(seed, *, signs):
        with monkeypatch.context() as patch:
            patch.setattr(weight_factors, "_GROUPED", 0)
            model = many()
            weights = ChangingWeights(model)
            if not signs:
                weights.keep_signs()
            weights.put(seed, [model])
            assert weights._groups == []
        return weights_of(model)

    return compute


@pytest.mark.parametrize("signs", [True, False])
@pytest.mark.parametrize("period", [PERIOD, (1 << 17) - 1])
def test_a_group_has_the_same_weights_as_its_members_alone(alone, monkeypatch, period, signs):
    monkeypatch.setattr(changing_weights, "_SHORT", period)
    model, wide = many(), many().double()
    weights = ChangingWeights(model)
    weights.put(3, [model])  # with groups of both kinds of signs
    if not signs:
        weights.keep_signs()
    for seed in range(20):
        weights.put(seed, [model, wide])
        known = alone(seed, signs=signs)
        for one, other, double in zip(weights_of(model), known, wide, strict=True):
            assert torch.equal(one, other)
            assert torch.equal(double, one.to(double.dtype))
    assert sum(len(group.names) for group in weights._groups) > 150


class Sharing(nn.Module):
    """Parameters of which some are views of one large tensor, and of one small tensor."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        large, small = torch.randn(30, 40), torch.randn(40)
        self.rows = nn.Parameter(large[:2])
        self.other = nn.Parameter(torch.randn(7))
        self.whole = nn.Parameter(large)
        self.row = nn.Parameter(large[1])
        self.one_by_one = nn.Parameter(small[::2])
        self.all = nn.Parameter(small)
        self.last = nn.Parameter(torch.randn(9))


@pytest.mark.parametrize("grouped", [100, 1 << 18])
def test_of_parameters_with_common_elements_the_last_one_decides(monkeypatch, grouped):
    monkeypatch.setattr(weight_factors, "_GROUPED", grouped)
    model, known = Sharing(), Sharing()
    weights = ChangingWeights(model)
    weights.put(1, [model])
    assert [group.names for group in weights._groups] == [["other", "last"]]
    monkeypatch.setattr(weight_factors, "_GROUPED", 0)
    ChangingWeights(known).put(1, [known])
    for one, other in zip(model.parameters(), known.parameters(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(model.whole[1], model.row)


@pytest.mark.parametrize("parameters", [[], [torch.randn(0)]])
def test_a_model_without_weights_that_change_takes_any_seed(parameters):
    model = nn.ParameterList([nn.Parameter(each) for each in parameters])
    weights = ChangingWeights(model)
    for seed in (1, None):
        weights.put(seed, [model])
    assert weights.names == ()


def test_a_group_has_one_dtype_and_one_kind_and_a_limited_size(monkeypatch):
    monkeypatch.setattr(weight_factors, "_GROUP", 100)
    monkeypatch.setattr(weight_factors, "_GROUPED", 60)
    sizes = {"a": 60, "b": 40, "c": 60, "large": 61, "half": 40, "zeros": 5, "d": 1}
    parameters = {name: torch.ones(size) for name, size in sizes.items()}
    parameters["half"] = parameters["half"].half()
    changes = dict.fromkeys(sizes, ChangeKind.KEEPS_SIGNS) | {"zeros": ChangeKind.FROM_ZERO}
    groups = groups_of(parameters, changes, PERIOD)
    assert [group.names for group in groups] == [["a", "b"], ["c", "d"]]
    assert all(group.first.numel() <= 100 for group in groups)
    assert groups_of(parameters, changes, 39) == []  # alone: one parameter with fewer elements than the period


class Lookups(dict):
    """Counts the lookups of keys."""

    count = 0

    def __getitem__(self, key):
        self.count += 1
        return super().__getitem__(key)


def test_groups_of_many_parameters_take_no_quadratic_time():
    parameters = Lookups({str(number): torch.ones(1) for number in range(500)})
    (group,) = groups_of(parameters, dict.fromkeys(parameters, ChangeKind.KEEPS_SIGNS), PERIOD)
    assert len(group.names) == 500
    assert parameters.count <= 1000


class Counting(TorchDispatchMode):
    """Counts the operations of PyTorch, views aside."""

    def __init__(self):
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.operations += not operation.is_view
        return operation(*args, **(kwargs or {}))


def test_the_number_of_operations_does_not_grow_with_the_number_of_small_parameters():
    counts = []
    for number in (2, 200):
        model = nn.ParameterList([nn.Parameter(torch.linspace(-1, 1, 8)) for _ in range(number)])  # of one kind
        weights = ChangingWeights(model)
        weights.put(1, [model])
        with Counting() as counting:
            weights.put(2, [model])
        counts.append(counting.operations)
    assert counts[0] == counts[1] > 0


def test_the_host_copies_no_numbers_to_the_device(monkeypatch):
    """On a GPU such a copy waits for all queued work; `torch.tensor` of numbers is one."""
    model = many()
    weights = ChangingWeights(model)
    weights.put(1, [model])

    copied = []
    of_numbers = torch.tensor
    monkeypatch.setattr(
        torch, "tensor", lambda *given, **options: copied.append(given) or of_numbers(*given, **options)
    )
    weights.put(2, [model])
    assert copied == []
