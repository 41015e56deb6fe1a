"""Which tensors of a submission correspond to the reference's, and which are only assumed to."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from evaluator.runner.correspondence import correspondence, is_equal_to
from evaluator.runner.parameters import take_over_state


class Own(nn.Module):
    """Parameters by name; a dot makes a module. Names in `buffers` and `plain` are buffers and plain attributes."""

    def __init__(self, tensors, buffers=(), plain=()):
        super().__init__()
        for name, tensor in tensors.items():
            *modules, last = name.split(".")
            place = self
            for module in modules:
                if not hasattr(place, module):
                    place.add_module(module, nn.Module())
                place = getattr(place, module)
            if name in plain:
                setattr(place, last, tensor)
            elif name in buffers or not tensor.is_floating_point():
                place.register_buffer(last, tensor)
            else:
                place.register_parameter(last, nn.Parameter(tensor))


def pairs(own, state, **kinds):
    """Return own names by the reference's names, of proven and of assumed pairs."""
    found = correspondence(Own(own, **kinds), state)
    assert all(pair.view.shape == state[name].shape for name, pair in found.items())
    assert len({pair.view.data_ptr() for pair in found.values()}) == len(found)
    proven, assumed = (
        {name: pair.own_name for name, pair in found.items() if pair.is_proven is kind} for kind in (True, False)
    )
    return proven, assumed


def varied(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def norm(size, prefix="", **names):
    """Return the tensors of a batch norm, under other names where given."""
    names = {"weight": "weight", "bias": "bias", "running_mean": "running_mean", "running_var": "running_var"} | names
    values = {"weight": torch.ones, "bias": torch.zeros, "running_mean": torch.zeros, "running_var": torch.ones}
    return {prefix + own: values[usual](size) for usual, own in names.items()}


def same(prefix, *names, own=""):
    return {prefix + name: own + name for name in names}


STATISTICS = ("running_mean", "running_var")
AFFINE = ("weight", "bias")


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        (norm(8), same("bn.", *AFFINE, *STATISTICS)),
        (norm(8, weight="gamma", bias="beta"), same("bn.", *STATISTICS) | {"bn.weight": "gamma", "bn.bias": "beta"}),
        (norm(8, weight="scale", bias="shift", running_mean="mean", running_var="var"), None),
        (norm(8, "transition.norm."), same("bn.", *AFFINE, *STATISTICS, own="transition.norm.")),
    ],
    ids=["without a module", "gamma and beta", "all other words", "another module"],
)
def test_a_norm_corresponds_by_the_meaning_of_its_names(own, wanted):
    state = norm(8, "bn.") | {"bn.num_batches_tracked": torch.tensor(0)}
    proven, assumed = pairs(own, state, buffers=[name for name in own if name.endswith(STATISTICS)])
    words = {"bn.weight": "scale", "bn.bias": "shift", "bn.running_mean": "mean", "bn.running_var": "var"}
    assert (proven, assumed) == ({}, words if wanted is None else wanted)


def test_two_norms_of_one_size_correspond_by_their_modules_or_their_initials():
    state = norm(8, "batch_norm.") | norm(8, "group_norm.") | {"gemm.weight": varied(8, 4), "gemm.bias": varied(8)}
    own = norm(8, "bn_") | norm(8, "gn_") | {"weight": varied(8, 4, seed=1), "bias": torch.zeros(8)}
    usual = [*AFFINE, *STATISTICS]
    expected = same("batch_norm.", *usual, own="bn_") | same("group_norm.", *usual, own="gn_")
    assert pairs(own, state) == ({}, expected | same("gemm.", *AFFINE))
    assert pairs(norm(8, "one_") | norm(8, "two_"), norm(8, "batch_norm.") | norm(8, "group_norm.")) == ({}, {})


@pytest.mark.parametrize("gamma", [torch.ones(8), varied(8, seed=2)], ids=["constant", "varied"])
def test_a_word_counts_more_than_its_meaning(gamma):
    state = {"norm.weight": torch.ones(8), "scale": varied(8, 1)}
    words = {"norm.weight": "gamma", "scale": "multiplier.scale"}
    assert pairs({"gamma": gamma, "multiplier.scale": varied(8, seed=1)}, state) == ({}, words)


def test_modules_keep_words_of_the_same_meaning_apart():
    state = {
        f"{module}.{word}": varied(8, seed=place) for place, module in enumerate("ab") for word in ("weight", "scale")
    }
    own = {name.replace(".", "_"): value + 1 for name, value in state.items()}
    assert pairs(own, state) == ({}, {name: name.replace(".", "_") for name in state})


def test_a_full_name_keeps_names_apart_that_differ_in_separators_alone():
    state = {"a.norm.w": varied(8), "a_norm.w": varied(8, seed=1)}
    own = {name: value + 1 for name, value in state.items()}
    assert pairs(own, state) == ({}, {name: name for name in state})


def test_an_equal_constant_decides_between_names_of_the_same_meaning():
    state = {"norm.weight": torch.ones(8), "scale": varied(8, 1)}
    own = {"w": varied(8, seed=1), "gamma": torch.ones(8)}
    assert pairs(own, state) == ({}, {"norm.weight": "gamma", "scale": "w"})


def test_equal_varied_values_are_a_proof_whatever_the_name_and_the_shape():
    w, b = varied(4, 6), varied(6, seed=1)
    own = {"bias": w.t().contiguous(), "weight": b[:, None, None].clone()}
    assert pairs(own, {"weight": w, "bias": b}) == ({"weight": "bias", "bias": "weight"}, {})


def test_a_view_of_a_counterpart_reaches_the_submissions_own_memory():
    w = varied(4, 6)
    model = Own({"transposed": w.t().contiguous()})
    correspondence(model, {"w": w})["w"].view.zero_()
    assert not model.transposed.any()


def test_values_apart_by_a_rounded_constant_are_close_and_others_are_not():
    torch.manual_seed(0)
    wanted = nn.init.kaiming_uniform_(torch.empty(32, 64, 3, 5), a=5**0.5)
    torch.manual_seed(0)
    rounded = nn.init.kaiming_uniform_(torch.empty(32, 64, 3, 5), a=2.236)
    assert not torch.equal(rounded, wanted)
    wanted[0, 0, 0, :2], rounded[0, 0, 0, :2] = 1e-10, torch.tensor([-1e-10, 0.0])  # Rounding errors near 0.
    # Two candidates by name and shape, so that the values alone decide.
    other = {"other": wanted * (1 + 2e-3)}
    assert pairs({"kernel_a": rounded} | other, {"conv.filter": wanted}) == ({}, {"conv.filter": "kernel_a"})
    assert pairs(other | {"third": wanted * 0.99}, {"conv.filter": wanted}) == ({}, {})
    assert pairs({"a": rounded, "b": rounded.clone()}, {"conv.filter": wanted}) == ({}, {})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_step_of_a_format_of_few_bits_is_close(dtype):
    wanted = varied(64, 64).to(dtype)
    beside = torch.nextafter(wanted, torch.full_like(wanted, 9))
    assert pairs({"a": beside, "b": varied(64, 64, seed=1).to(dtype)}, {"w": wanted}) == ({}, {"w": "a"})


def test_equal_values_are_preferred_to_close_ones_and_close_ones_to_names():
    wanted = varied(5, 7)
    own = {"packed": wanted * (1 + 1e-5), "exact": wanted.clone(), "fc_weight": varied(5, 7, seed=1)}
    assert pairs(own, {"fc.weight": wanted}) == ({"fc.weight": "exact"}, {})
    del own["exact"]
    assert pairs(own, {"fc.weight": wanted}) == ({}, {"fc.weight": "packed"})
    del own["packed"]
    assert pairs(own, {"fc.weight": wanted}) == ({}, {"fc.weight": "fc_weight"})


def test_what_is_ambiguous_has_no_counterpart_but_for_its_name():
    zeros = torch.zeros(4)
    state = {"p0": zeros, "p1": zeros.clone()}
    both = {"p0": "p0", "p1": "p1"}
    assert pairs({"x": zeros.clone(), "y": zeros.clone()}, state) == ({}, {})
    assert pairs({"x": zeros.clone()}, state) == ({}, {})
    assert pairs({"p0": zeros.clone(), "p1": zeros.clone()}, state) == (both, {})
    assert pairs({"x": zeros.clone()}, {"p0": zeros}) == ({}, {"p0": "x"})
    assert pairs({"x": torch.ones(4)}, {"p0": zeros}) == ({}, {})
    assert pairs({"w": varied(4), "v": varied(4)}, {"p0": varied(4)}) == ({}, {})


def test_the_same_name_with_other_values_is_an_assumption():
    assert pairs({"fc.weight": varied(4), "more": varied(3)}, {"fc.weight": varied(4, seed=1)}) == (
        {},
        {"fc.weight": "fc.weight"},
    )


@pytest.mark.parametrize("own", [varied(4, 3), varied(2, 6), varied(12), varied(3, 4).double(), varied(3, 5)], ids=str)
def test_another_kind_of_tensor_does_not_correspond_by_name(own):
    assert pairs({"weight": own}, {"weight": varied(3, 4, seed=1)}) == ({}, {})


def test_dimensions_of_one_element_may_differ():
    assert pairs({"bias": varied(16)}, {"bias": varied(16, 1, 1, seed=1)}) == ({}, {"bias": "bias"})


def test_memory_that_cannot_be_written_element_by_element_is_assumed_of_nothing():
    state = {"bn.weight": torch.ones(4)}
    assert pairs({"gamma": torch.ones(1).expand(4)}, state, plain=["gamma"]) == ({}, {})
    with torch.inference_mode():
        kept = torch.ones(4)
    assert pairs({"gamma": kept}, state, plain=["gamma"]) == ({}, {})
    assert pairs({"gamma": torch.ones(4)}, state, plain=["gamma"]) == ({}, {"bn.weight": "gamma"})


def test_a_stored_tensor_is_preferred_to_a_plain_attribute():
    own = {"gamma": torch.ones(4), "fused.weight": torch.ones(4)}
    assert pairs(own, {"bn.weight": torch.ones(4)}, plain=["fused.weight"]) == ({}, {"bn.weight": "gamma"})


BYTES = ("uint8", "float8_e4m3fn", "float8_e8m0fnu", "float4_e2m1fn_x2")


@pytest.mark.parametrize("dtype", [getattr(torch, name) for name in BYTES if hasattr(torch, name)])
def test_formats_of_a_byte_and_empty_tensors_are_compared_too(dtype):
    wanted = torch.arange(8, dtype=torch.uint8).view(dtype)
    own = {"a": wanted.clone(), "empty": torch.empty(0), "c": torch.zeros(8, dtype=torch.uint8).view(wanted.dtype)}
    state = {"w": wanted, "none": torch.empty(0), "b": own["c"].clone()}
    assert pairs(own, state, buffers=own) == ({"w": "a"}, {"b": "c"})


OTHERS = {
    "quantised": lambda: torch.quantize_per_tensor(varied(3, 4), 0.1, 0, torch.qint8),
    "without values": lambda: torch.empty(3, 4, device="meta"),
    "nested": lambda: torch.nested.nested_tensor([varied(2), varied(10)]),
    "sparse": lambda: varied(3, 4).to_sparse(),
    "without a shape": lambda: nn.LazyLinear(3),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("made", OTHERS.values(), ids=OTHERS)
def test_other_kinds_of_tensors_are_left_out(made):
    model = Own({"matrix": varied(3, 4), "gamma": torch.ones(4)})
    model.other = made()
    found = correspondence(model, {"w": varied(3, 4), "bn.weight": torch.ones(4), "b": varied(2)})
    assert {name: pair.own_name for name, pair in found.items()} == {"w": "matrix", "bn.weight": "gamma"}


def test_close_values_are_compared_beyond_the_first_block():
    wanted = varied(64, 64)
    beside = wanted * (1 + 1e-5)
    assert pairs({"a": beside, "b": wanted + 1}, {"w": wanted}) == ({}, {"w": "a"})
    beside[-1, -1] += 1
    assert pairs({"a": beside, "b": wanted + 1}, {"w": wanted}) == ({}, {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn])
def test_equal_values_are_compared_beyond_the_first_block(dtype):
    wanted, beside = varied(64, 64).to(dtype), varied(64, 64).to(dtype)
    assert is_equal_to(beside, wanted)
    beside[-1, -1] = 3.0
    assert not is_equal_to(beside, wanted)


@pytest.mark.parametrize("shape", [(1 << 22,), (1 << 11, 1 << 11), (1, 1 << 22), (1, 2, 1 << 10, 1 << 11)])
def test_large_weights_are_compared_in_blocks_of_limited_size(monkeypatch, shape):
    """On a GPU, a comparison takes a byte of the arena for each element."""
    compared, equal = [], torch.equal
    monkeypatch.setattr(torch, "equal", lambda one, other: compared.append(one.numel()) or equal(one, other))
    assert is_equal_to(torch.zeros(shape), torch.zeros(shape))
    assert (sum(compared), max(compared)) == (1 << 22, 1 << 20)
    compared.clear()
    assert not is_equal_to(torch.zeros(shape), torch.ones(shape))
    assert sum(compared) <= 1 << 11


def test_equal_values_of_any_shape_are_equal():
    for shape in ((), (0, 3), (1,), (3, 0)):
        assert is_equal_to(torch.ones(shape), torch.ones(shape))
    assert not is_equal_to(torch.tensor(1.0), torch.tensor(2.0))
    assert not is_equal_to(torch.ones(0), torch.ones(0, 3))


def test_what_is_no_module_has_no_counterparts():
    assert correspondence(object(), {"w": varied(3)}) == {}


KINDS = st.sampled_from(["ones", "zeros", "first", "second"])
NAMES = st.sampled_from(["weight", "bias", "gamma", "beta", "bn.weight", "bn_weight", "fc.bias", "a.mean", "b"])
SHAPES = st.sampled_from([(4,), (4, 1), (2, 2), (1,), ()])


def made(kind, shape):
    if kind in ("ones", "zeros"):
        return getattr(torch, kind)(shape)
    return varied(*shape, seed=["first", "second"].index(kind))


TENSORS = st.dictionaries(NAMES, st.tuples(KINDS, SHAPES).map(lambda drawn: made(*drawn)), max_size=6)


@given(TENSORS, TENSORS)
def test_counterparts_are_distinct_alike_and_independent_of_the_order(state, own):
    proven, assumed = pairs(own, state)
    for name, own_name in (proven | assumed).items():
        assert own[own_name].numel() == state[name].numel()
    for name, own_name in proven.items():
        assert torch.equal(own[own_name].flatten().sort().values, state[name].flatten().sort().values)
        assert name == own_name or state[name].unique().numel() > 1
    turned = pairs(dict(reversed(own.items())), dict(reversed(state.items())))
    assert turned == (proven, assumed)


@given(TENSORS)
def test_a_model_corresponds_to_itself_by_names_alone(own):
    assert pairs(own, {name: value.clone() for name, value in own.items()}) == ({name: name for name in own}, {})


def taken_over(own, state, **how):
    """Take over the state, and return the model beside the counterparts."""
    model = Own(own)
    how = {"parameters": list(state), "changing": [], "seeded": False} | how
    return model, take_over_state(model, state, how["parameters"], how["changing"], seeded=how["seeded"])


def test_values_are_copied_if_every_parameter_has_a_counterpart():
    state = {"conv.weight": varied(4, 3), "conv.bias": varied(4), "mask": torch.ones(9)}
    own = {"weight": varied(4, 3, seed=1), "bias": varied(4, seed=1)}
    model, found = taken_over(own, state, parameters=["conv.weight", "conv.bias"])
    assert (found.difference, found.assumed) == (None, {"conv.weight": "weight", "conv.bias": "bias"})
    assert torch.equal(model.weight, state["conv.weight"])
    assert torch.equal(model.bias, state["conv.bias"])


@pytest.mark.parametrize("how", [{}, {"parameters": ["conv.weight"], "seeded": True}], ids=["one missing", "seeded"])
def test_nothing_is_copied_without_every_parameter_or_if_weights_stay_seeded(how):
    state = {"conv.weight": varied(4, 3), "conv.bias": varied(4)}
    model, found = taken_over({"weight": varied(4, 3, seed=1)}, state, **how)
    assert torch.equal(model.weight, varied(4, 3, seed=1))
    assert "missing: conv.bias, conv.weight" in found.difference
    assert (found.assumed, list(found.pairs)) == ({}, ["conv.weight"])


def test_a_pair_is_assumed_if_values_are_written_without_a_proof():
    state = {"fc.weight": varied(4, 3), "bn.weight": torch.ones(4), "bn.running_var": torch.ones(4)}
    own = {"w": varied(4, 3), "gamma": torch.ones(4), "var": torch.ones(4)}
    given_names = list(state)[:2]
    _, constant = taken_over(own, state, parameters=given_names)
    assert constant.assumed == {}
    _, changing = taken_over(own, state, parameters=given_names, changing=given_names)
    assert changing.assumed == {"bn.weight": "gamma"}


@pytest.mark.parametrize("seeded", [False, True])
def test_equal_names_and_values_are_proven(seeded):
    state = {"fc.weight": varied(4, 3), "norm.running_mean": varied(4)}
    own = {"fc.weight": varied(4, 3), "norm.running_mean": torch.zeros(4)}  # The reference has run already.
    how = {"parameters": ["fc.weight"], "changing": ["fc.weight"], "seeded": seeded}
    model, found = taken_over(own, state, **how)
    assert (found.difference, found.assumed) == (None, {})
    assert torch.equal(model.norm.running_mean, state["norm.running_mean"])


def test_another_value_under_an_equal_name_is_replaced_as_an_assumption_and_kept_if_seeded():
    state = {"fc.weight": varied(4, 3)}
    model, found = taken_over({"fc.weight": varied(4, 3, seed=1)}, state, changing=["fc.weight"])
    assert (found.difference, found.assumed) == (None, {"fc.weight": "fc.weight"})
    assert torch.equal(model.fc.weight, state["fc.weight"])
    state["norm.running_mean"] = varied(4)
    own = {"fc.weight": varied(4, 3, seed=1), "norm.running_mean": torch.zeros(4)}
    model, found = taken_over(own, state, parameters=["fc.weight"], seeded=True)
    assert (found.difference, found.assumed) == ("ModelNew's own values in fc.weight", {})
    assert torch.equal(model.fc.weight, varied(4, 3, seed=1))
    assert torch.equal(model.norm.running_mean, state["norm.running_mean"])


def test_a_parameter_on_another_device_is_an_assumption_and_one_outside_the_state_is_none():
    state = {"fc.weight": torch.empty(4, 3, device="meta")}
    _, found = taken_over({"fc.weight": varied(4, 3)}, state, parameters=["fc.weight", "not in the state"], seeded=True)
    assert found.difference == "ModelNew's own values in fc.weight"
