"""Weights that change from call to call: which values they have, and where a runner has them."""

import math

import pytest
import torch
from torch import nn

from evaluator.devices.memory import HostRegion
from evaluator.judge.reference import changing_weights
from evaluator.judge.reference.changing_weights import NO_SITES, ChangingWeights, Sites, record, sites_of
from evaluator.judge.reference.derived_seeds import derived
from evaluator.protocol.frames import TensorView
from evaluator.records import WeightsGraded, WeightsRule
from evaluator.runner.correspondence import Counterpart
from evaluator.runner.parameters import ChangingParameters

LEAST = 0.04
"""A part of its size that every kind of parameter changes by: far beyond any tolerance."""


class Kinds(nn.Module):
    def __init__(self):
        super().__init__()
        self.usual = nn.Parameter(torch.randn(300, 500))
        self.ones = nn.Parameter(torch.ones(40))
        self.zeros = nn.Parameter(torch.zeros(40))
        self.single = nn.Parameter(torch.tensor(3.0))
        self.coarse = nn.Parameter(torch.randn(50).bfloat16())
        self.phases = nn.Parameter(torch.randn(50, dtype=torch.complex64))
        self.tied = self.usual
        self.fixed = nn.Parameter(torch.randn(5), requires_grad=False)
        self.whole = nn.Parameter(torch.arange(4), requires_grad=False)
        self.register_buffer("mean", torch.randn(3))


def values(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Kinds()


def test_every_parameter_that_an_optimiser_would_change_changes_far_and_nothing_else(model):
    weights, before = ChangingWeights(model), values(model)
    assert weights.names == weights.trained == ("usual", "ones", "zeros", "single", "coarse", "phases", "tied")
    for seed in range(20):
        weights.put(seed, [model])
        after = values(model)
        for name in weights.names:
            size = max(before[name].abs().float().square().mean().sqrt().item(), 1.0)
            moved = (after[name] - before[name]).abs().float().square().mean().sqrt().item()
            assert LEAST * size < moved < 1.5 * size, name
        for name in before.keys() - set(weights.names):
            assert torch.equal(before[name], after[name])
        assert torch.equal(after["tied"], after["usual"])
        for name in ("ones", "single"):
            assert torch.equal(after[name] > 0, before[name] > 0)
    weights.put(None, [model])
    assert all(torch.equal(before[name], tensor) for name, tensor in values(model).items())


def test_a_seed_says_which_weights_there_are_and_no_two_say_the_same(model):
    weights = ChangingWeights(model)
    seen = []
    for seed in (5, 6, 5):
        weights.put(seed, [model])
        seen.append(values(model))
    assert all(torch.equal(seen[0][name], seen[2][name]) for name in seen[0])
    assert not any(torch.equal(seen[0][name], seen[1][name]) for name in weights.names)


class Signs(nn.Module):
    def __init__(self):
        super().__init__()
        self.mixed = nn.Parameter(torch.randn(200, 200))
        self.phases = nn.Parameter(torch.randn(200, 200, dtype=torch.complex64))
        self.positive = nn.Parameter(torch.rand(200, 200) + 0.1)
        self.mostly_positive = nn.Parameter(torch.rand(200, 200) - 0.02)
        self.mask = nn.Parameter(torch.randn(200, 200).masked_fill(torch.rand(200, 200) > 0.5, -torch.inf))


def test_a_tenth_of_the_signs_change_where_a_parameter_has_both():
    torch.manual_seed(0)
    made = Signs()
    weights, before = ChangingWeights(made), values(made)
    patterns = []
    for seed in range(5):
        weights.put(seed, [made])
        after = values(made)
        for name in ("mixed", "phases"):
            ratio = (after[name] / before[name]).real
            assert 0.07 < (ratio < 0).float().mean() < 0.12, name
        patterns.append(after["mixed"] > 0)
        for name in ("positive", "mostly_positive", "mask"):
            assert torch.equal(after[name] > 0, before[name] > 0), name
    assert not any(torch.equal(patterns[0], other) for other in patterns[1:])
    assert weights.keep_signs()
    assert not weights.keep_signs()
    weights.put(1, [made])
    assert torch.equal(made.mixed > 0, before["mixed"] > 0)


def test_no_place_among_the_values_drawn_tells_the_weights():
    """A submission that knew it would have a norm of all weights from a table, and look at four of them."""
    torch.manual_seed(0)
    made = nn.ParameterDict({"w": nn.Parameter(torch.rand(1000) + 1)})
    weights = ChangingWeights(made)
    first = made["w"].detach().clone()
    drawn = torch.cat([weights._noise, weights._noise[:999]])
    for seed in range(3):
        weights.put(derived(seed, b"a call"), [made])
        factor = (made["w"].detach() / first)[:4]
        steps = (factor - factor[0])[1:] / 0.1
        windows = drawn.unfold(0, 4, 1)[: weights._noise.numel()]
        misses = ((windows[:, 1:] - windows[:, :1]) - steps).abs().amax(1)
        start = int(misses.argmin())
        told = (factor[0] - 0.1 * windows[start, 0]) + 0.1 * drawn[start : start + 1000]
        assert (told - made["w"].detach() / first).abs().max() > 0.05


def test_a_wider_model_has_the_same_numbers_and_storage_stays(model):
    wide = Kinds()
    wide.load_state_dict(model.state_dict())
    wide = wide.double()
    weights = ChangingWeights(model)
    places = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    weights.put(7, [model, wide])
    assert places == {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    known = dict(model.named_parameters())
    assert all(torch.equal(known[name].to(own.dtype), own) for name, own in wide.named_parameters())


PERIOD = 101


@pytest.mark.parametrize("shape", [(100,), (PERIOD,), (102,), (2, PERIOD), (43, 59)])
@pytest.mark.parametrize("kind", ["mixed", "positive", "zeros", "half", "complex", "transposed"])
def test_a_large_parameter_repeats_the_factors_of_a_period(kind, shape, monkeypatch):
    """Held against the long way: random values, in a circle, for each of the elements."""
    monkeypatch.setattr(changing_weights, "_SHORT", PERIOD)
    first = {
        "mixed": torch.randn(shape),
        "positive": torch.rand(shape) + 1,
        "zeros": torch.zeros(shape),
        "half": torch.randn(shape).bfloat16(),
        "complex": torch.randn(shape, dtype=torch.complex64),
        "transposed": torch.randn(shape[::-1]).permute(*reversed(range(len(shape)))),
    }[kind]
    made = nn.ParameterDict({"w": nn.Parameter(first.clone(memory_format=torch.preserve_format))})
    weights = ChangingWeights(made)
    for call in range(20):
        weights.put(call, [made])
        seed = derived(call, b"weight 0")
        size = 1 + (1 if seed & 1 else -1) * (0.15 + (0.25 - 0.15) * (seed >> 8 & 0xFFFF) / 0xFFFF)
        along = torch.arange(first.numel())
        noise, other = (
            weights._noise[(along + start) % PERIOD].view(shape)
            for start in (seed >> 24, derived(seed, b"other place"))
        )
        both = noise * other.sign()
        factor = both * 0.1 + size
        if kind != "positive":
            factor = torch.where((noise + other).abs() > 1.4, -factor, factor)
        wide = torch.promote_types(first.dtype, torch.float32)
        wanted = (first.to(wide) * factor).to(first.dtype)
        if kind == "zeros":
            wanted = both * (0.1 / 2) + math.copysign(0.1, size - 1)
        assert torch.equal(made["w"], wanted)


def view(shape, strides, offset=0, dtype="float32"):
    return TensorView(dtype=dtype, shape=shape, strides=strides, offset_bytes=offset)


PARAMETERS = {"w": torch.randn(4, 6), "b": torch.randn(6)}
HONEST = {"w": view((4, 6), (1, 4)), "b": view((6,), (1,), 256)}


def test_weights_are_written_where_a_runner_has_them():
    with HostRegion(4096) as region:
        sites = sites_of(PARAMETERS, HONEST, region)
        assert sites.change
        laid = sites.of(PARAMETERS)
        for own, shared in laid.direct:
            shared.copy_(own)
        assert torch.equal(region.flat[:96].view(torch.float32).view(6, 4).t(), PARAMETERS["w"])
        assert torch.equal(region.flat[256:280].view(torch.float32), PARAMETERS["b"])
        assert laid.staged == {}
        del laid, sites, own, shared


def test_what_lies_in_memory_of_the_runners_own_is_for_the_runner_to_copy():
    with HostRegion(4096) as region:
        sites = sites_of(PARAMETERS, HONEST | {"b": view((6,), (1,), None)}, region)
        assert (sites.change, sites.copied) == (True, ["b"])
        assert sites.of(PARAMETERS).staged == {"b": PARAMETERS["b"]}
        del sites


def test_moved_weights_are_written_where_they_were_and_count_as_copied():
    with HostRegion(4096) as region:
        sites = sites_of(PARAMETERS, HONEST, region)
        sites.note_moved(["w", "unknown"])
        sites.note_moved(["w"])
        assert sites.moved == {"w"}
        assert len(sites.of(PARAMETERS).direct) == 2
        counted = record(WeightsRule.CHANGING, ChangingWeights(nn.Linear(2, 2)), sites)
        assert (counted.changed, counted.copied) == (2, 1)
        del sites
    NO_SITES.note_moved(["w"])
    assert NO_SITES.moved is None


LIES = {
    "nowhere": None,
    "another shape": view((6, 4), (4, 1)),
    "another dtype": view((4, 6), (6, 1), dtype="float64"),
    "elements on each other": view((4, 6), (0, 1)),
    "rows on each other": view((4, 6), (1, 1)),
    "outside": view((4, 6), (6, 1), 4096),
    "far outside": view((4, 6), (2**60, 1)),
    "not aligned": view((4, 6), (6, 1), 2),
    "too few strides": view((4, 6), (6,)),
}


@pytest.mark.parametrize("told", LIES.values(), ids=LIES)
def test_a_place_that_cannot_be_written_leaves_all_weights_as_they_were(told):
    with HostRegion(4096) as region:
        sites = sites_of(PARAMETERS, {"b": HONEST["b"]} | ({} if told is None else {"w": told}), region)
        assert (sites.change, sites.unmatched, sites.shared) == (False, True, {})
        assert "w" in sites.why_not


def test_weights_that_a_reference_refuses_are_trained_all_the_same(model):
    weights = ChangingWeights(model)
    weights.leave("no finite outputs")
    assert (weights.names, len(weights.trained)) == ((), 7)


def test_a_record_says_what_was_graded_and_what_was_asked_for():
    none, some = ChangingWeights(nn.ReLU()), ChangingWeights(nn.Linear(2, 2))
    asked = WeightsRule.CHANGING
    assert record(asked, none, Sites({}, "none")).graded is WeightsGraded.NONE
    assert record(asked, some, Sites({}, "unlike")).reason == "unlike"
    changing = record(asked, some, Sites({"weight": None, "bias": torch.zeros(2)}, None))
    assert (changing.graded, changing.changed, changing.copied) == (WeightsGraded.CHANGING, 2, 1)


def test_a_write_is_counted_for_whoever_keeps_what_follows_from_weights():
    layer = nn.Linear(3, 3)
    counterparts = {name: Counterpart(name, tensor, True) for name, tensor in layer.state_dict().items()}
    weights = ChangingParameters(layer, counterparts)
    packed = layer.weight.detach().t()
    versions = layer.weight._version, layer.bias._version, packed._version
    weights.follow({"bias": torch.ones(3)})
    assert torch.equal(layer.bias.detach(), torch.ones(3))
    assert layer.weight._version > versions[0]
    assert layer.bias._version > versions[1]
    assert packed._version > versions[2]


def test_weights_without_a_count_are_followed_too():
    with torch.inference_mode():
        kept = torch.randn(3)
    layer = nn.Linear(3, 3)
    given = {"w": Counterpart("w", kept, True), "weight": Counterpart("weight", layer.weight.detach(), True)}
    ChangingParameters(layer, given).follow({"weight": torch.ones(3, 3)})
    assert kept.is_inference()
    assert torch.equal(layer.weight, torch.ones(3, 3))


def test_weights_for_the_runner_to_copy_have_its_order_of_dimensions_and_no_gaps():
    parameters = {"w": torch.arange(6.0).view(2, 3), "far": torch.ones(2), "own": torch.zeros(4)}
    shared = {"w": torch.zeros(3, 2).t(), "far": torch.zeros(1 << 16)[:: 1 << 15], "own": None}
    staged = Sites(shared, None).staged(parameters)
    assert {name: tensor.stride() for name, tensor in staged.items()} == {"w": (1, 2), "far": (1,), "own": (1,)}
    assert all(tensor.untyped_storage().nbytes() == 4 * tensor.numel() for tensor in staged.values())
    assert all(torch.equal(staged[name], value) for name, value in parameters.items())
    parameters["w"] += 1
    assert not torch.equal(staged["w"], parameters["w"])
