"""The judge's copies of what a runner answered, where every number of the answer may be a lie."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evaluator.devices.memory import HostRegion
from evaluator.findings import Code
from evaluator.judge.tensors import output_views as output_views_module
from evaluator.judge.tensors.output_views import OutputViews, output_views, some_bits
from evaluator.judge.tensors.pytree import AnswerPair, lay_out
from evaluator.protocol.frames import DictItems, Items, Opaque, Scalar, TensorView
from evaluator.records import Finding

SIZE = 1 << 14
EXPECTED = torch.arange(6.0).reshape(2, 3)
VIEW = TensorView(dtype="float32", shape=(2, 3), strides=(3, 1), offset_bytes=256)


@pytest.fixture
def region():
    with HostRegion(SIZE) as made:
        torch.frombuffer(made.buffer, dtype=torch.float32)[64:70] = EXPECTED.flatten()
        yield made


def taken(expected, answer, region):
    return output_views([AnswerPair("output[1]", expected, answer)], region)


def test_an_honest_answer_is_copied_and_does_not_change_with_the_memory(region):
    (snapshot,) = taken(EXPECTED, replace(VIEW, storage=(4096, 24)), region)
    assert (snapshot.path, snapshot.storage) == ("output[1]", (4096, 24))
    assert snapshot.expected is EXPECTED
    torch.frombuffer(region.buffer, dtype=torch.uint8).fill_(255)
    assert torch.equal(snapshot.tensor, EXPECTED)


@pytest.mark.parametrize(
    ("expected", "changes", "read"),
    [
        (torch.zeros(4), {"shape": (4,), "strides": (0,), "offset_bytes": 260}, torch.ones(4)),
        (EXPECTED.T, {"shape": (3, 2), "strides": (1, 3)}, EXPECTED.T),
    ],
    ids=["expanded", "transposed"],
)
def test_an_answer_of_any_strides_is_read_as_it_is(region, expected, changes, read):
    (snapshot,) = taken(expected, replace(VIEW, **changes), region)
    assert torch.equal(snapshot.tensor, read)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.complex64, torch.int64])
def test_other_dtypes_are_copied(region, dtype):
    value = EXPECTED.to(dtype)
    placed = lay_out([("output", value)], region)
    placed.write()
    (view,) = placed.nodes
    (snapshot,) = taken(value, view, region)
    assert torch.equal(snapshot.tensor, value)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(7, 9),
        torch.randn(9, 7).t(),
        torch.randn(300, 200).bfloat16(),
        torch.tensor(1.5),
        torch.tensor([True, False]),
        torch.arange(5),
        torch.randn(3, 4, dtype=torch.complex128),
        torch.randn(6).to(torch.float8_e4m3fn),
    ],
)
def test_bits_tell_an_answer_from_another(tensor):
    assert bits(tensor) == bits(tensor.clone()) != bits(torch.zeros_like(tensor))
    assert bits(tensor)


def bits(value):
    return some_bits([OutputViews("output", value, value, None)])


@pytest.mark.parametrize("value", [torch.full((5, 3), torch.nan), torch.randn(1000, 999)], ids=["NaN", "large"])
def test_one_bit_is_a_difference(value):
    other = value.clone()
    other.view(torch.int32)[-1, 2] ^= 1
    assert bits(value) == bits(value.clone()) != bits(other)


@pytest.mark.parametrize("shape", [(5, 7), (1, 40), (40, 1), ()])
def test_a_large_answer_is_summed_in_pieces(monkeypatch, shape):
    value, sums, add = torch.randn(shape), [], torch.Tensor.sum
    whole = bits(value)
    monkeypatch.setattr(output_views_module, "_PIECE_ELEMENTS", 8)
    monkeypatch.setattr(torch.Tensor, "sum", lambda part, **how: sums.append(part.numel()) or add(part, **how))
    assert bits(value) == whole
    assert max(sums) <= 8


def test_a_large_answer_has_few_bits_and_no_answer_none():
    assert 4 * 4096 <= len(bits(torch.randn(1000, 999))) < 4 * 2 * 4096
    assert bits(torch.empty(0, 3)) == some_bits([]) == b""


REFUSED = {
    "one row more": (replace(VIEW, shape=(3, 3)), Code.WRONG_SHAPE),
    "broadcastable": (replace(VIEW, shape=(1, 3)), Code.WRONG_SHAPE),
    "huge sizes": (replace(VIEW, shape=(2**62,) * 60, strides=(0,) * 60), Code.WRONG_SHAPE),
    "another shape without a place": (replace(VIEW, shape=(9, 9), offset_bytes=None), Code.WRONG_SHAPE),
    "half precision": (replace(VIEW, dtype="float16"), Code.WRONG_DTYPE),
    "double precision": (replace(VIEW, dtype="float64"), Code.WRONG_DTYPE),
    "a dtype that does not exist": (replace(VIEW, dtype="nn"), Code.WRONG_DTYPE),
    "a dtype of 60 000 letters": (replace(VIEW, dtype="f" * 60_000), Code.WRONG_DTYPE),
    "another device": (replace(VIEW, device="meta", offset_bytes=None), Code.WRONG_DEVICE),
    "a device of 60 000 letters": (replace(VIEW, device="c" * 60_000), Code.WRONG_DEVICE),
    "no place": (replace(VIEW, offset_bytes=None), Code.OUT_OF_MEMORY),
    "beyond the end": (replace(VIEW, offset_bytes=SIZE - 20), Code.MALFORMED_FRAME),
    "before the start": (replace(VIEW, offset_bytes=-256), Code.MALFORMED_FRAME),
    "between two elements": (replace(VIEW, offset_bytes=257), Code.MALFORMED_FRAME),
    "a stride beyond the end": (replace(VIEW, strides=(2**62, 1)), Code.MALFORMED_FRAME),
    "a negative stride": (replace(VIEW, strides=(3, -1)), Code.MALFORMED_FRAME),
    "too few strides": (replace(VIEW, strides=(1,)), Code.MALFORMED_FRAME),
    "too many strides": (replace(VIEW, strides=(3, 1, 1)), Code.MALFORMED_FRAME),
    "a number": (Scalar(value=1.0), Code.NOT_A_TENSOR),
    "an object": (Opaque(type_name="Thing"), Code.NOT_A_TENSOR),
    "an object of 60 000 letters": (Opaque(type_name="T" * 60_000), Code.NOT_A_TENSOR),
    "a list": (Items(is_tuple=False, items=[VIEW]), Code.WRONG_STRUCTURE),
    "a dict": (DictItems(keys=[], items=[]), Code.WRONG_STRUCTURE),
}


@pytest.mark.parametrize(("answer", "code"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_the_expected_tensor_is_a_finding(region, answer, code):
    found = taken(EXPECTED, answer, region)
    assert isinstance(found, Finding)
    assert found.code == code.value
    assert "output[1]" in found.message
    assert found.details["path"] == "output[1]"
    assert len(found.message) < 500


def test_the_first_wrong_output_is_named(region):
    pairs = [
        AnswerPair("output[0]", EXPECTED, VIEW),
        AnswerPair("output[1]", EXPECTED, Scalar(value=1)),
        AnswerPair("output[2]", 1, VIEW),
    ]
    assert output_views(pairs, region).details["path"] == "output[1]"


@pytest.mark.parametrize("value", [None, True, False, 0, 1, -7, 1e300, 1e-60, "text", ""])
def test_plain_values_pass_where_they_are_equal(region, value):
    assert taken(value, Scalar(value=value), region) == []


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        (1, 2),
        (1, True),
        (True, 1),
        (1, 1.0),
        (1.0, 1),
        (0.0, None),
        (None, 0),
        ("a", "b"),
        (1e300, 2e300),
        (1e-60, 0.0),
    ],
)
def test_other_plain_values_are_wrong(region, expected, answer):
    assert taken(expected, Scalar(value=answer), region).code == Code.WRONG_VALUES.value


@pytest.mark.parametrize("value", [2.5, 0.0, float("inf"), float("nan")])
def test_floats_are_left_to_the_comparison_as_tensors(region, value):
    (snapshot,) = taken(3.5, Scalar(value=value), region)
    assert (snapshot.expected, snapshot.tensor.shape, snapshot.storage) == (3.5, (), None)
    assert torch.equal(snapshot.tensor.nan_to_num(7.0), torch.tensor(value).nan_to_num(7.0))


@pytest.mark.parametrize("answer", [VIEW, Opaque(type_name="T"), Items(is_tuple=True, items=[])])
def test_a_tensor_for_a_number_is_another_structure(region, answer):
    assert taken(1, answer, region).code == Code.WRONG_STRUCTURE.value


hostile = st.integers(-(2**62), 2**62) | st.integers(-2, 10) | st.sampled_from([2**31, 2**32, 2**61, 2**62])


@given(
    shape=st.sampled_from([(2, 3), (), (0, 5), (1, 1, 1)]),
    strides=st.lists(hostile, max_size=4).map(tuple),
    offset=st.none() | hostile | st.integers(0, SIZE),
    dtype=st.sampled_from([torch.bool, torch.float32, torch.float64, torch.complex128]),
)
def test_any_place_is_copied_or_refused(shape, strides, offset, dtype):
    view = TensorView(dtype=str(dtype).removeprefix("torch."), shape=shape, strides=strides, offset_bytes=offset)
    with HostRegion(SIZE) as region:
        found = taken(torch.empty(shape, dtype=dtype), view, region)
    if isinstance(found, Finding):
        assert found.code == (Code.OUT_OF_MEMORY if offset is None else Code.MALFORMED_FRAME).value
    else:
        assert isinstance(found[0], OutputViews)
        assert found[0].tensor.shape == shape
        assert not found[0].tensor.any()
