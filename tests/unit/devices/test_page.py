"""The page of places: what a runner writes there, in the order that the judge asks for."""

from hypothesis import given
from hypothesis import strategies as st

from evaluator.devices.memory import MAX_DIMENSIONS, MAX_PLACES, PAGE_BYTES, PLACE, PLACES, OutputLocation, write_places


def read(text: bytes) -> list[tuple]:
    """Read what stands in the page, as the judge's kernel does."""
    return list(PLACE.iter_unpack(text))


@given(
    st.lists(
        st.builds(
            OutputLocation,
            path=st.text(max_size=20),
            offset_bytes=st.integers(0, 2**62),
            item_bytes=st.sampled_from([1, 2, 4, 8, 16]),
            strides=st.lists(st.integers(0, 2**62), max_size=MAX_DIMENSIONS).map(tuple),
        ),
        max_size=40,
        unique_by=lambda place: place.path,
    ),
    st.randoms(),
)
def test_places_are_written_in_the_order_that_is_asked_for(places, random):
    asked = random.sample(places, len(places))
    records = read(write_places(places, [place.path for place in asked]))
    for place, (offset, item_bytes, dimensions, *strides) in zip(asked, records, strict=True):
        assert (offset, item_bytes) == (place.offset_bytes, place.item_bytes)
        assert tuple(strides[:dimensions]) == place.strides
        assert not any(strides[dimensions:])


def test_an_output_that_is_not_there_has_elements_of_no_bytes():
    missing, there = read(write_places([OutputLocation("output", 256, 4, (1,))], ["gradient of input 0", "output"]))
    assert (missing[1], there[1]) == (0, 4)


def test_as_many_as_a_frame_can_name_fit_into_the_page():
    named = [f"output[{index}]" for index in range(MAX_PLACES + 9)]
    assert PLACES + len(write_places([], named)) <= PAGE_BYTES
