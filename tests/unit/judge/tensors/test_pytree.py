"""Values into shared memory, and answers held against the expected structure."""

import enum
import re
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evaluator.devices.memory import HostRegion
from evaluator.errors import JudgeFailed, ProblemError
from evaluator.findings import Code
from evaluator.judge.tensors.pytree import lay_out, pair_up, unravelled
from evaluator.protocol.frames import DictItems, Items, Opaque, Scalar, TensorView
from evaluator.protocol.pytree import leaves, mapped, tensors_of
from evaluator.records import Finding
from evaluator.runner.shared_memory import to_value

SIZE = 1 << 20
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]


class Point(NamedTuple):
    x: object
    y: object


class Level(enum.IntEnum):
    HIGH = 3


@pytest.fixture
def region():
    with HostRegion(SIZE) as made:
        yield made


def placed_in(values, region):
    """Place values and write them."""
    placed = lay_out(values, region)
    placed.write()
    return placed


def sent(value, region):
    """Give a value as the runner sees it."""
    (node,) = placed_in([("input 0", value)], region).nodes
    return to_value(node, region.flat)


def ramp(*shape, dtype=torch.float32):
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)


def equal(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 0, 3), (2, 3, 4)])
def test_a_tensor_of_any_dtype_and_shape_arrives(region, dtype, shape):
    value = ramp(*shape, dtype=dtype)
    arrived = sent(value, region)
    assert equal(arrived, value)
    assert arrived.stride() == value.stride() or value.numel() == 0


LAYOUTS = {
    "transposed": ramp(3, 5).T,
    "every second column": ramp(4, 8)[:, ::2],
    "a slice with an offset": ramp(4, 8)[1:, 3:],
    "channels last": ramp(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "expanded": torch.tensor([1.0, 2.0]).expand(3, 2),
    "expanded to one value": torch.tensor(7.0).expand(4, 5),
    "overlapping windows": ramp(6).unfold(0, 3, 1),
    "requires gradients": ramp(3).requires_grad_(),
    "conjugated": torch.tensor([1 + 2j, 3 - 1j]).conj(),
    "negated view": torch.tensor([1 + 2j, 3 - 1j]).conj().imag,
    "a parameter": torch.nn.Parameter(ramp(3)),
}


@pytest.mark.parametrize("value", LAYOUTS.values(), ids=LAYOUTS)
def test_a_tensor_of_any_layout_arrives(region, value):
    arrived = sent(value, region)
    assert equal(arrived, value.detach().resolve_conj().resolve_neg())
    assert arrived.stride() == value.stride() or 0 in value.stride() or value.is_conj() or value.is_neg()


def test_what_is_no_dense_tensor_is_the_problems_mistake(region):
    value = torch.sparse_coo_tensor(size=(2, 2), check_invariants=True)
    with pytest.raises(ProblemError, match=r"input 0 is a torch\.sparse_coo tensor"):
        placed_in([("input 0", [value])], region)


def test_a_tensor_twice_and_numbers_arrive(region):
    value = [[ramp(2)] * 2, 1, 2.5, True, None, "text", -(2**63)]
    assert equal(sent(value, region), value)


def test_subclasses_of_plain_types_arrive_as_the_plain_types(region):
    assert equal(sent([np.float64(1.5), Level.HIGH, np.str_("x")], region), [1.5, 3, "x"])
    assert equal(sent(OrderedDict(a=Point(1, 2)), region), {"a": (1, 2)})


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, b"bytes", np.ones(2), len, 1 << 63, "x" * 65_537])
def test_what_cannot_be_sent_is_the_problems_mistake_and_is_named(region, value):
    with pytest.raises(ProblemError, match=r"input mask\[1\]\.k is a"):
        placed_in([("input mask", [1, {"k": value}])], region)


def test_pairs_name_every_tensor_and_show_what_is_written_later(region):
    first, second = ramp(3), ramp(2, 2)
    placed = placed_in([("input 0", first), ("input mask", [None, {"k": second}])], region)
    assert [path for path, _, _ in placed.pairs] == ["input 0", "input mask[1].k"]
    (_, own, shared), _ = placed.pairs
    assert torch.equal(own, shared)
    to_value(placed.nodes[0], region.flat)[1] = 99
    assert shared.tolist() == [0, 99, 2]
    assert own.tolist() == [0, 1, 2]


def test_tensors_do_not_overlap(region):
    values = [torch.full((50,), float(number)) for number in range(40)]
    assert equal(sent(values, region), values)


def test_a_region_that_is_too_small_is_the_judges_failure(region):
    with pytest.raises(JudgeFailed, match="do not fit"):
        placed_in([("input 0", torch.zeros(SIZE))], region)


trees = st.recursive(
    st.builds(ramp, st.integers(0, 3), st.integers(0, 3)) | st.none() | st.integers(-5, 5) | st.text(max_size=3),
    lambda below: (
        st.lists(below, max_size=3)
        | st.lists(below, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 5), below, max_size=3)
    ),
    max_leaves=8,
)


@given(value=trees)
def test_any_tree_arrives_and_pairs_up_with_itself(value):
    with HostRegion(SIZE) as region:
        (node,) = placed_in([("output", value)], region).nodes
        assert equal(to_value(node, region.flat), value)
        pairs = pair_up(value, node)
        assert [pair.path for pair in pairs] == [path for path, _ in leaves(value, "output")]
        assert all(pair.expected is leaf for pair, (_, leaf) in zip(pairs, leaves(value), strict=True))


@given(one=trees, other=trees)
def test_trees_pair_up_only_where_their_structure_is_the_same(one, other):
    def shape(value):
        if isinstance(value, dict):
            return {"dict": {key: shape(item) for key, item in value.items()}}
        return (type(value), [shape(item) for item in value]) if isinstance(value, list | tuple) else "leaf"

    with HostRegion(SIZE) as region:
        (node,) = placed_in([("output", other)], region).nodes
        assert isinstance(pair_up(one, node), list) == (shape(one) == shape(other))


@given(value=trees)
def test_mapping_keeps_the_structure(value):
    changed = mapped(value, lambda tensor: tensor + 1)
    assert [path for path, _ in leaves(changed)] == [path for path, _ in leaves(value)]
    assert all(torch.equal(new, old + 1) for new, old in zip(tensors_of(changed), tensors_of(value), strict=True))


VIEW = TensorView(dtype="float32", shape=(2,), strides=(1,), offset_bytes=0)
X, SCALAR = torch.zeros(2), Scalar(value=3)


def items(*nodes, is_tuple=True):
    return Items(is_tuple=is_tuple, items=list(nodes))


def table(*nodes, keys="a"):
    return DictItems(keys=list(keys), items=list(nodes))


TWO = {"a": X, "b": X}
WRONG = {
    "a tuple for a tensor": (X, items(VIEW), "output", "a tuple of 1"),
    "a tensor for a tuple": ((X,), VIEW, "output", "a tensor"),
    "a list for a tuple": ((X, X), items(VIEW, VIEW, is_tuple=False), "output", "a list of 2"),
    "a tuple for a list": ([X], items(VIEW), "output", "a tuple of 1"),
    "a dict for a list": ([X], table(VIEW, keys="0"), "output", "a dict of 1"),
    "a scalar for a dict": ({"a": X}, Scalar(value=1), "output", "a int"),
    "an object for a tuple": ((X,), Opaque(type_name="Thing"), "output", "a Thing"),
    "too few": ((X, X), items(VIEW), "output", "but is 1"),
    "too many": ((X,), items(VIEW, VIEW), "output", "but is 2"),
    "another key": (
        {"a": X},
        table(VIEW, keys="b"),
        "output",
        r"with the keys \['a'\], but is \['b'\]: lacks \['a'\] and has \['b'\] in addition",
    ),
    "a key less": (TWO, table(VIEW, keys="b"), "output", r"\['b'\]: lacks \['a'\]$"),
    "a key more": ({"a": X}, table(VIEW, VIEW, keys="ba"), "output", r"\['b', 'a'\]: has \['b'\] in addition$"),
    "a key twice": ({"a": X}, table(VIEW, VIEW, keys="aa"), "output", "'a', 'a'"),
    "a number for a text as key": ({"1": X}, table(VIEW, keys=[1]), "output", r"\[1\]"),
    "fewer items than keys": (TWO, table(VIEW, keys="ab"), "output", "keys"),
    "more items than keys": ({"a": X}, table(VIEW, VIEW), "output", "keys"),
    "deep down": (
        ([X, {"k": (X, X)}],),
        items(items(VIEW, table(items(VIEW), keys="k"), is_tuple=False)),
        "output[0][1].k",
        "should be 2 values, but is 1",
    ),
}


@pytest.mark.parametrize(("expected", "answer", "path", "said"), WRONG.values(), ids=WRONG)
def test_another_structure_is_a_finding_with_its_path(expected, answer, path, said):
    found = pair_up(expected, answer)
    assert isinstance(found, Finding)
    assert found.code == Code.WRONG_STRUCTURE.value
    assert found.details["path"] == path
    assert re.search(said, found.message)


def test_hundreds_of_hostile_keys_do_not_fill_the_card():
    for answer in (DictItems(keys=["k" * 60_000] * 50, items=[VIEW] * 50), Opaque(type_name="x" * 60_000)):
        assert len(pair_up({"a": X}, answer).message) < 1000


def test_the_items_of_a_dict_are_paired_by_key_and_a_named_tuple_is_a_tuple():
    other = replace(VIEW, offset_bytes=8)
    answer = DictItems(keys=["b", "a"], items=[DictItems(["2", 1], [SCALAR, items(VIEW, VIEW)]), other])
    pairs = pair_up({"a": X, "b": {1: Point(X, X), "2": 3}}, answer)
    assert [(pair.path, pair.answer) for pair in pairs] == [
        ("output.a", other),
        ("output.b.1[0]", VIEW),
        ("output.b.1[1]", VIEW),
        ("output.b.2", SCALAR),
    ]


@given(st.lists(st.integers(1, 7), max_size=5), st.data())
def test_places_have_the_index_that_pytorch_gives_them(shape, data):
    count = int(np.prod(shape))
    places = torch.tensor(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=9)))
    ours, theirs = unravelled(places, shape), torch.unravel_index(places, shape)
    assert len(ours) == len(theirs) == len(shape)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
