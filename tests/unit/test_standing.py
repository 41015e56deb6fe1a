"""Whether an output stood in memory before the inputs did, on memory that this process writes in a runner's place."""

import os

import pytest
import torch

from evaluator.devices.memory import HostRegion
from evaluator.findings import Code
from evaluator.frames import TensorView
from evaluator.judge import standing
from evaluator.judge.standing import Standing
from evaluator.judge.trees import Pair, dtype_name

SIZE = 1 << 20
START = 1 << 18
POISON = 0x5A


@pytest.fixture
def region():
    with HostRegion(SIZE) as made:
        yield made


def lying(value, path="output"):
    """Describe `value` as an answer that lies at START."""
    view = TensorView(
        dtype=dtype_name(value.dtype), shape=tuple(value.shape), strides=tuple(value.stride()), offset_bytes=START
    )
    return Pair(path, value, view)


def answered(region, value, *, before, poison=POISON, calls=5, exempt=frozenset()):
    """Have `before` done to the memory of an output, `value` written there, and say what was found in each call."""
    looking = Standing(region)
    content = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage())
    place = region.flat[START : START + len(content)]
    found = []
    for _ in range(calls):
        before(place, content)
        looking.look(poison)
        place.copy_(content)
        found.append(looking.found([lying(value)], exempt))
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


def test_pages_that_were_never_written_stand_there_as_zeros_and_looking_takes_none(region):
    value = torch.zeros(256, 256)
    looking = Standing(region)
    for _ in range(3):
        looking.look(POISON)
        assert os.fstat(region.descriptor).st_blocks == 0
    region.flat[START] = 0
    for _ in range(2):
        assert looking.found([lying(value)], frozenset()) is None
    assert looking.found([lying(value)], frozenset()).code == Code.STOOD_BEFORE.value


@pytest.mark.parametrize("most_extents", [1, 1 << 20])
def test_words_are_read_where_they_are_between_holes(region, monkeypatch, most_extents):
    monkeypatch.setattr(standing, "_MOST_EXTENTS", most_extents)
    for page in range(0, SIZE // 4096, 3):
        region.flat[page * 4096 : (page + 1) * 4096] = page % 251 + 1
    looking = Standing(region)
    looking.look(POISON)
    places, words = looking._before
    assert len(places) == standing.WORDS
    assert torch.equal(words, region.flat.view(torch.int32)[places // 4])
    assert 0 < int((words == 0).sum()) < len(words)
