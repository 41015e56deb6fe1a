"""What is looked at when a call says that it is over, and again when its runner has stopped."""

import math
import os

import pytest
import torch

from evaluator.devices.memory import HostRegion
from evaluator.findings import Code
from evaluator.judge.answer.output_checks import late_on_host
from evaluator.judge.clock import output_words
from evaluator.judge.clock.output_words import MemorySamples
from evaluator.judge.tensors.pytree import AnswerPair
from evaluator.protocol.frames import TensorView

SIZE = 1 << 20
ELEMENTS = SIZE // 8
OUTPUT = [AnswerPair("output", torch.empty(ELEMENTS), TensorView("float32", (ELEMENTS,), (1,), offset_bytes=0))]


@pytest.fixture
def region():
    with HostRegion(SIZE) as made:
        made.flat.fill_(0x5A)
        yield made


@pytest.mark.parametrize("part", [1.0, 0.5, 0.125])
def test_what_is_written_after_done_is_seen(region, part):
    looking = MemorySamples(region)
    looking.look()
    looking.look_again()
    assert late_on_host(OUTPUT, looking) is None
    region.flat[int(SIZE // 2 * (1 - part)) : SIZE // 2] = 0
    found = late_on_host(OUTPUT, looking)
    assert found.code == Code.LATE_OUTPUT.value
    assert found.details == {"path": "output"}


def test_what_is_written_before_it_or_elsewhere_is_none_of_its_business(region):
    looking = MemorySamples(region)
    looking.look()
    region.flat[: SIZE // 2] = 1
    looking.look_again()
    region.flat[SIZE // 2 :] = 2
    assert late_on_host(OUTPUT, looking) is None


def test_nothing_was_late_where_nobody_looked(region):
    looking = MemorySamples(region)
    assert late_on_host(OUTPUT, looking) is None
    looking.look()
    assert late_on_host(OUTPUT, looking) is None
    looking.look_again()
    looking.look()  # What was seen of an earlier call says nothing of this one.
    region.flat.fill_(1)
    assert late_on_host(OUTPUT, looking) is None


def test_looking_again_takes_no_page_and_looks_where_something_was_written():
    with HostRegion(SIZE) as region:
        looking = MemorySamples(region)
        for written in (0, 4096, SIZE // 2):
            region.flat[:written] = 1
            blocks = os.fstat(region.descriptor).st_blocks
            looking.look()
            looking.look_again()
            assert os.fstat(region.descriptor).st_blocks == blocks
            again = looking.at_done.offsets_bytes
            assert len(again) == 0 if written == 0 else int(again.max()) < written
        assert len(again) == output_words.AT_DONE


@pytest.mark.parametrize("count", [1, 7, 1 << 20, 1 << 40])
def test_positions_are_ascending_and_uniform(count):
    draws = 1 << 14
    places = output_words._ascending(count, draws, torch.Generator().manual_seed(1))
    assert places.dtype == torch.int64
    assert torch.equal(places, places.sort().values)
    assert int(places[0]) >= 0
    assert int(places[-1]) < count
    if count >= draws:
        parts = torch.histc(places.double() / count, bins=16, min=0.0, max=1.0)
        assert float(parts.sum()) == draws
        assert float((parts - draws / 16).abs().max()) < 6 * math.sqrt(draws / 16)
