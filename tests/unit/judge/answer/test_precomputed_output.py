"""Whether an output stood in memory before the inputs did, on memory that this process writes in a runner's place."""

import os

import pytest
import torch

from evaluator.devices.memory import HostRegion
from evaluator.findings import Code
from evaluator.judge.answer import precomputed_output
from evaluator.judge.answer.precomputed_output import PrecomputedOutputCheck
from evaluator.judge.clock import output_words as places
from evaluator.judge.clock.output_words import MemorySamples
from evaluator.judge.tensors.pytree import AnswerPair
from evaluator.protocol.frames import TensorView
from evaluator.protocol.pytree import dtype_name

SIZE = 1 << 21
START = 1 << 18
POISON = 0x5A


@pytest.fixture
def region():
    with HostRegion(SIZE) as made:
        yield made


def lying(value, start=START, path="output"):
    """Describe `value` as an answer that lies at `start`."""
    view = TensorView(
        dtype=dtype_name(value.dtype), shape=tuple(value.shape), strides=tuple(value.stride()), offset_bytes=start
    )
    return AnswerPair(path, value, view)


def answered(region, value, *, before, poison=POISON, calls=5, exempt=frozenset()):
    """Have `before` done to the memory of an output, `value` written there, and say what was found in each call.

    The output lies in two places in turn: in that of the last call it would be refused for that.
    """
    looking = PrecomputedOutputCheck(MemorySamples(region))
    content = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage())
    found = []
    for call in range(calls):
        start = START + call % 2 * len(content)
        place = region.flat[start : start + len(content)]
        before(place, content)
        looking.look(poison)
        place.copy_(content)
        found.append(looking.stood_before([lying(value, start)], exempt))
    return found


VALUES = {
    "floats": torch.randn(256, 256),
    "zeros": torch.zeros(256, 256),
    "booleans": torch.randn(512, 512) > 0,
    "small integers": torch.arange(1 << 16) % 3,
    "every other column": torch.randn(256, 256)[:, ::2],
}


def poisoned(place, _):
    place.fill_(POISON)


def prepared(place, content):
    place.copy_(content)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_an_output_that_is_written_over_poison_is_new(region, value):
    assert answered(region, value, before=poisoned) == [None] * 5


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_an_output_that_stands_there_is_found_in_the_third_call(region, value):
    first, second, third, *_ = answered(region, value, before=prepared)
    assert first is second is None
    assert third.code == Code.STOOD_BEFORE.value
    assert third.details == {"path": "output"}


def test_a_part_that_stands_there_is_enough(region):
    value = torch.zeros(256, 256)

    def mostly_poisoned(place, content):
        place.copy_(content)
        place[: len(place) * 7 // 8].fill_(POISON)

    assert answered(region, value, before=mostly_poisoned)[-1].code == Code.STOOD_BEFORE.value


def test_what_the_reference_lends_may_stand_there(region):
    lent = frozenset({"output"})
    assert answered(region, torch.zeros(256, 256), before=prepared, exempt=lent) == [None] * 5


def test_poison_that_happens_to_be_the_answer_is_no_evidence(region):
    assert answered(region, torch.zeros(256, 256), before=prepared, poison=0) == [None] * 5


def test_poison_is_any_byte_but_the_mark_and_those_of_frequent_values(region, monkeypatch):
    """Poison may be NaN; a mark of NaN would be -1 as an integer."""
    offered = []
    monkeypatch.setattr(precomputed_output.secrets, "choice", lambda among: offered.append(among) or among[-1])
    looking = PrecomputedOutputCheck(MemorySamples(region))
    assert (looking._mark, looking.drawn_poison()) == (254, 255)
    assert offered == [list(range(2, 255)), sorted(set(range(2, 256)) - {254})]


@pytest.mark.parametrize(
    ("value", "byte"),
    [(torch.tensor(0.0), 0), (torch.tensor(True), 1), (torch.tensor(-1), 255)],
    ids=["0", "true", "-1"],
)
def test_kept_buffers_with_the_poison_of_an_earlier_call_may_hold_frequent_values(region, monkeypatch, value, byte):
    """Each buffer is allocated before the first call, and written in one call alone."""
    looking = PrecomputedOutputCheck(MemorySamples(region))
    with monkeypatch.context() as patch:
        patch.setattr(precomputed_output.secrets, "choice", lambda among: byte if byte in among else among[0])
        region.flat.fill_(looking.drawn_poison())
    content = value.expand(1 << 15).contiguous()
    for call in range(6):
        start = call * (1 << 18)
        looking.look(looking.drawn_poison())
        region.flat[start : start + content.nbytes].view(content.dtype).copy_(content)
        assert looking.stood_before([lying(content, start)], frozenset()) is None


class Ring:
    """Answers in two buffers in turn, without poison."""

    def __init__(self, region):
        self.region = region
        self.looking = PrecomputedOutputCheck(MemorySamples(region))

    def found(self, write, value, calls=8, exempt=frozenset()):
        """Have `write` fill the buffer that is next with `value`; say what was found, and where values were left."""
        found = []
        for call in range(calls):
            start = START + call % 2 * (1 << 18)
            buffer = self.region.flat[start : start + (1 << 18)].view(value.dtype).view(value.shape)
            self.looking.look(self.looking.drawn_poison())
            write(buffer, value)
            pairs = [lying(value, start)]
            found.append((self.looking.stood_before(pairs, exempt), self.looking.unwritten(pairs)))
        return found


HALF_ZEROS = torch.relu(VALUES["floats"])


def test_two_buffers_that_are_written_in_turn_may_hold_the_same_zeros(region):
    found = Ring(region).found(lambda buffer, value: buffer.copy_(value), HALF_ZEROS)
    assert found == [(None, None)] * 8


def test_zeros_that_a_kept_buffer_is_not_written_are_wrong_and_told(region):
    def write(buffer, value):
        buffer[value != 0] = value[value != 0]

    found = Ring(region).found(write, HALF_ZEROS)
    assert found[0] == (None, None)
    assert [left.code for _, left in found[2:]] == [Code.STOOD_BEFORE.value] * 6


def test_what_the_reference_lends_is_not_marked(region):
    found = Ring(region).found(lambda *_: None, HALF_ZEROS, exempt=frozenset({"output"}))
    assert found == [(None, None)] * 8
    assert not region.flat.any()


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(64, 64, 2)[..., 0],
        torch.zeros(64, 64, dtype=torch.float64).t(),
        torch.zeros(64, 1, dtype=torch.bool).expand(64, 64),
        torch.zeros(64, 64, dtype=torch.bfloat16)[::2],
        torch.zeros(64, 64, dtype=torch.complex128),
        torch.zeros((), dtype=torch.float32),
        torch.zeros(0, 3),
    ],
    ids=["gaps", "transposed", "expanded", "rows", "complex", "a number", "empty"],
)
def test_marks_lie_in_the_elements_of_an_output_alone(region, value):
    looking = PrecomputedOutputCheck(MemorySamples(region))
    looking.look(POISON)
    assert looking.stood_before([lying(value)], frozenset()) is None
    looking.look(POISON)
    here = torch.zeros(value.untyped_storage().nbytes(), dtype=torch.uint8)
    if value.numel():
        numbers = torch.arange(len(here)).view(-1, value.element_size())
        lying_at = torch.arange(len(numbers)).as_strided(value.shape, value.stride()).reshape(-1)
        here[numbers[lying_at].reshape(-1)] = looking._mark
    assert torch.equal(region.flat[START : START + len(here)], here)
    assert int((region.flat != 0).sum()) == int((here != 0).sum())


def test_pages_that_were_never_written_stand_there_as_zeros_and_looking_takes_none(region):
    value = torch.zeros(256, 256)
    looking = PrecomputedOutputCheck(MemorySamples(region))
    for _ in range(3):
        looking.look(POISON)
        assert os.fstat(region.descriptor).st_blocks == 0
    region.flat[START] = 0
    for _ in range(2):
        assert looking.stood_before([lying(value)], frozenset()) is None
    assert looking.stood_before([lying(value)], frozenset()).code == Code.STOOD_BEFORE.value


@pytest.mark.parametrize("most_extents", [1, 1 << 20])
def test_words_are_read_where_they_are_between_holes(region, monkeypatch, most_extents):
    monkeypatch.setattr(places, "_MOST_EXTENTS", most_extents)
    for page in range(0, SIZE // 4096, 3):
        region.flat[page * 4096 : (page + 1) * 4096] = page % 251 + 1
    looking = MemorySamples(region)
    looking.look()
    offsets_bytes, words = looking.before
    assert len(words) == places.WORDS
    assert torch.equal(words, region.flat.view(torch.int32)[offsets_bytes // 4])
    assert 0 < int((words == 0).sum()) < len(words)
