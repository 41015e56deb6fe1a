"""Whether elements share memory, held against a list of every byte; and which layouts an honest answer may have."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.findings import Code
from evaluator.judge.tensors.memory_overlap import (
    MemoryLayout,
    layout,
    layouts,
    lent_weights,
    meet,
    overlaps,
    reachable,
    shared_elements,
)

BASE = torch.zeros(64, 64)
DENSE = {
    "contiguous": torch.zeros(4, 5),
    "transposed": torch.zeros(4, 5).T,
    "channels last": torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "rows with padding": torch.zeros(6, 9)[:, :7],
    "every second column": torch.zeros(6, 9)[:, ::2],
    "a slice from the middle": BASE[3:9, 5:11],
    "a diagonal": BASE.diagonal(),
    "a diagonal of a batch": torch.zeros(3, 4, 5).diagonal(dim1=0, dim2=2),
    "a real part": torch.zeros(4, 5, dtype=torch.complex64).real,
    "permuted in nine dimensions": torch.zeros(2, 3, 2, 3, 2, 3, 2, 3, 2).permute(8, 3, 1, 4, 0, 6, 2, 7, 5),
    "interwoven": torch.zeros(16).as_strided((3, 2), (2, 3)),
    "one element expanded to one": torch.zeros(1).expand(1, 1),
    "a number": torch.zeros(()),
}
FOLDED = {
    "one value expanded": torch.zeros(1).expand(4),
    "a row expanded": torch.zeros(1, 5).expand(4, 5),
    "expanded in the middle": torch.zeros(3, 1, 5).expand(3, 4, 5),
    "windows": torch.zeros(9).unfold(0, 3, 1),
    "windows two apart": torch.zeros(9).unfold(0, 3, 2),
    "rows that begin one early": torch.zeros(64).as_strided((4, 5), (4, 1)),
    "rows that meet far off": torch.zeros(64).as_strided((4, 4), (6, 4)),
    "a Hankel matrix": torch.zeros(64).as_strided((4, 4, 4), (16, 1, 1)),
}


def places(each: MemoryLayout) -> list[int]:
    """List the byte where each element begins."""
    indices = itertools.product(*(range(size) for size in each.shape))
    return [
        each.start_bytes + each.item_bytes * sum(i * step for i, step in zip(index, each.strides, strict=True))
        for index in indices
    ]


def bytes_of(each: MemoryLayout) -> set[int]:
    return {place + byte for place in places(each) for byte in range(each.item_bytes)}


DIMENSIONS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), max_size=5)


def made(start_bytes, item_bytes, dimensions):
    return MemoryLayout(
        start_bytes, item_bytes, tuple(size for size, _ in dimensions), tuple(step for _, step in dimensions)
    )


LAYOUTS = st.builds(made, st.integers(0, 60), st.sampled_from([1, 2, 4, 8]), DIMENSIONS)


@given(LAYOUTS)
def test_elements_share_memory_where_a_list_of_all_has_one_twice(each):
    listed = places(each)
    assert overlaps(each) is (len(set(listed)) < len(listed))


@given(LAYOUTS, LAYOUTS)
def test_two_tensors_meet_where_they_have_a_byte_in_common(one, other):
    assert meet(one, other) is bool(bytes_of(one) & bytes_of(other))
    assert meet(one, other) is meet(other, one)


@pytest.mark.parametrize("tensor", DENSE.values(), ids=DENSE)
def test_what_slices_and_transposes_make_is_apart(tensor):
    assert not overlaps(layout(tensor))
    assert shared_elements(layouts({"output": tensor}), layouts({"output": torch.zeros(tensor.shape)})) is None


@pytest.mark.parametrize("tensor", FOLDED.values(), ids=FOLDED)
def test_what_repeats_itself_is_seen_where_the_reference_writes_all(tensor):
    dense = torch.zeros(tensor.shape)
    found = shared_elements(layouts({"output": tensor}), layouts({"output": dense}))
    assert found.code == Code.SHARED_ELEMENTS.value
    assert shared_elements(layouts({"output": tensor}), layouts({"output": tensor})) is None
    assert shared_elements(layouts({"output": dense}), layouts({"output": tensor})) is None


def test_a_reference_that_repeats_rows_excuses_no_columns():
    rows = layouts({"output": torch.zeros(1, 5).expand(4, 5)})
    both = layouts({"output": torch.zeros(1, 1).expand(4, 5)})
    assert shared_elements(both, rows).code == Code.SHARED_ELEMENTS.value
    assert shared_elements(rows, both) is None


APART = torch.zeros(4, 6)
TOGETHER = {
    "the same twice": (APART, APART),
    "one within the other": (APART, APART[1]),
    "halves that overlap": (APART[:, :4], APART[:, 2:]),
    "bytes of one another": (APART[:, :2], APART.view(torch.uint8)[:, 7:9]),
}
BESIDE = {
    "halves of each row": (APART[:, :3], APART[:, 3:]),
    "columns in turn": (APART[:, ::2], APART[:, 1::2]),
    "real and imaginary": (torch.view_as_complex(APART.view(4, 3, 2)).real, APART.view(4, 3, 2)[..., 1]),
    "two of their own": (torch.zeros(4, 6), torch.zeros(4, 6)),
    "one that is empty": (APART, APART[:0]),
}


@pytest.mark.parametrize("two", TOGETHER.values(), ids=TOGETHER)
def test_outputs_that_lie_on_each_other_are_seen_where_the_references_do_not(two):
    answer = layouts({"output[0]": two[0], "output[1]": two[1]})
    apart = layouts({"output[0]": torch.zeros(two[0].shape), "output[1]": torch.zeros(two[1].shape)})
    found = shared_elements(answer, apart)
    assert found.code == Code.SHARED_ELEMENTS.value
    assert found.message.startswith("output[0] and output[1] share memory")
    assert shared_elements(answer, answer) is None


@pytest.mark.parametrize("two", BESIDE.values(), ids=BESIDE)
def test_outputs_beside_each_other_in_one_buffer_are_honest(two):
    answer = layouts({"output[0]": two[0], "output[1]": two[1]})
    apart = layouts({"output[0]": torch.zeros(two[0].shape), "output[1]": torch.zeros(two[1].shape)})
    assert shared_elements(answer, apart) is None


def test_many_columns_of_one_buffer_are_told_apart():
    columns = dict(enumerate(torch.zeros(50, 40).unbind(1)))
    answer = layouts({f"output[{number}]": column for number, column in columns.items()})
    own = layouts({path: torch.zeros(50) for path in answer})
    assert shared_elements(answer, own) is None


def test_what_would_take_too_long_to_decide_counts_as_shared():
    primes = [10_007, 10_009, 10_037, 10_039, 10_061, 10_067, 10_069, 10_079]
    assert reachable(40 * sum(primes) + 1, [(prime, 90) for prime in primes])


def test_an_output_in_a_weights_memory_is_refused_unless_the_references_is_one_too():
    weights = {"table": MemoryLayout(256, 4, (8, 8), (8, 1))}
    beside, within = MemoryLayout(512, 4, (8, 8), (8, 1)), MemoryLayout(508, 4, (1,), (1,))
    assert lent_weights({"output[0]": beside}, weights, frozenset()) is None
    found = lent_weights({"output[0]": beside, "output[1]": within}, weights, frozenset())
    assert found.code == Code.OUTPUT_REUSED.value
    assert "output[1] overlaps the memory of the weight table" in found.message
    assert lent_weights({"output[1]": within}, weights, frozenset({"output[1]"})) is None
    assert lent_weights({"gradient of parameter table": within}, weights, frozenset()) is None
