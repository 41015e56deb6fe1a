import struct

from hypothesis import given
from hypothesis import strategies as st

from evaluator.devices.page import (
    COUNT,
    MAX_DIMENSIONS,
    MAX_PLACES,
    PAGE_BYTES,
    PLACE_BYTES,
    PLACES,
    Place,
    path_key,
    write_places,
)


def read(text: bytes) -> list[tuple]:
    """Read what stands in the page, as the judge's kernel does."""
    (count,) = struct.unpack_from("<I", text)
    return [
        struct.unpack_from(f"<QQII{MAX_DIMENSIONS}q", text, PLACES - COUNT + index * PLACE_BYTES)
        for index in range(count)
    ]


@given(
    st.lists(
        st.builds(
            Place,
            path=st.text(max_size=20),
            offset_bytes=st.integers(0, 2**62),
            item_bytes=st.sampled_from([1, 2, 4, 8, 16]),
            strides=st.lists(st.integers(0, 2**62), max_size=10).map(tuple),
        ),
        max_size=40,
    )
)
def test_places_are_written_as_the_kernel_reads_them(places):
    text = write_places(places)
    assert COUNT + len(text) <= PAGE_BYTES
    kept = [place for place in places if len(place.strides) <= MAX_DIMENSIONS][:MAX_PLACES]
    for place, (key, offset, item_bytes, dimensions, *strides) in zip(kept, read(text), strict=True):
        assert key == path_key(place.path)
        assert (offset, item_bytes) == (place.offset_bytes, place.item_bytes)
        assert tuple(strides[:dimensions]) == place.strides
        assert not any(strides[dimensions:])


def test_all_places_that_are_told_fit_into_the_page_and_into_shared_memory():
    assert PLACES + MAX_PLACES * PLACE_BYTES <= PAGE_BYTES
    assert MAX_PLACES * PLACE_BYTES <= 40 << 10


def test_what_does_not_fit_is_left_out():
    text = write_places([Place(f"output[{index}]", 256 * index, 4, (1,)) for index in range(MAX_PLACES + 9)])
    assert COUNT + len(text) <= PAGE_BYTES
    assert [key for key, *_ in read(text)] == [path_key(f"output[{index}]") for index in range(MAX_PLACES)]


def test_paths_have_numbers_of_their_own():
    paths = [f"output[{index}]" for index in range(1000)] + [f"gradient of input {index}" for index in range(1000)]
    assert len({path_key(path) for path in paths}) == len(paths)
