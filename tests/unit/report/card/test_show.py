"""The samples of a card, drawn in the terminal and as a picture."""

import io
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from evaluator.records import Flips, Roofline, Scorecard, Timing
from evaluator.report.card.card_screen import render_card
from evaluator.report.card.histogram import Axis, heights, own_axis
from evaluator.report.card.svg import svg_bytes
from tests import cards

HOSTILE = "</text><script>alert(1)</script>&\x1b[2J\x00\u202e\ufffe[red]"
SVG = "{http://www.w3.org/2000/svg}"
finite = st.floats(allow_nan=False, allow_infinity=False)


def sampled(reference_ms: list[float], submission_ms: list[float], **changes: Any) -> Timing:
    timing = cards.timing()
    half = len(reference_ms) // 2
    return replace(
        timing,
        reference_before=replace(timing.reference_before, samples_ms=reference_ms[:half]),
        reference_after=replace(timing.reference_after, samples_ms=reference_ms[half:]),
        submission=replace(timing.submission, samples_ms=submission_ms),
        **changes,
    )


def screen(card: Scorecard, width: int = 80, encoding: str = "utf-8") -> str:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding, newline="")
    render_card(card, Console(file=stream, width=width), with_samples=True)
    stream.flush()
    return buffer.getvalue().decode(encoding)


def drawn(timing: Timing, **changes: Any) -> ElementTree.Element:
    return ElementTree.fromstring(svg_bytes(cards.card(timing=timing, **changes), timing))


TWO_PEAKS = sampled([1.0, 2.0, 1.0, 2.0], [1.0, 1.0, 1.0, 1.5, 2.0])


def test_each_side_is_drawn_from_its_least_to_its_greatest_and_both_from_zero() -> None:
    lines = screen(cards.card(timing=TWO_PEAKS)).splitlines()
    at = next(number for number, line in enumerate(lines) if "Samples" in line)
    assert [line[17:] for line in lines[at : at + 7]] == [
        "reference: 4 verified calls, 1.00 ms to 2.00 ms; first 3.70 ms",
        "█" + "·" * 30 + "█",
        "submission: 5 verified calls, 1.00 ms to 2.00 ms; first 1.24 ms",
        "█" + "·" * 15 + "▃" + "·" * 14 + "▃",
        "to 2.00 ms, reference above submission",
        "·" * 31 + "█" + "·" * 30 + "█",
        "·" * 31 + "█" + "·" * 15 + "▃" + "·" * 14 + "▃",
    ]


def test_without_unicode_the_strips_are_ascii() -> None:
    text = screen(cards.card(timing=TWO_PEAKS), encoding="ascii")
    assert "#" + "." * 15 + "=" + "." * 14 + "=" in text


def test_outliers_and_void_calls_are_counted() -> None:
    timing = cards.timing()
    timing = replace(timing, submission=replace(timing.submission, outliers=2, void_calls=3))
    text = " ".join(screen(cards.card(timing=timing)).split())
    assert "submission: 50 verified calls, 621 µs to 621 µs, 2 outliers; first 1.24 ms, 3 void" in text


def test_a_grade_shows_no_samples() -> None:
    buffer = io.StringIO()
    render_card(cards.card(), Console(file=buffer, width=80))
    assert "Samples" not in buffer.getvalue()


@pytest.mark.parametrize("width", [40, 80, 132])
@pytest.mark.parametrize(
    "timing",
    [TWO_PEAKS, sampled([], []), sampled([], [1.0]), sampled([0.0, 0.0], [0.0]), sampled([1e308] * 2, [-1e308])],
)
def test_any_samples_fit_any_screen(timing: Timing, width: int) -> None:
    text = screen(cards.card(timing=timing), width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "Samples" in text


def test_hostile_samples_are_shown_as_text() -> None:
    timing = replace(TWO_PEAKS, submission=replace(TWO_PEAKS.submission, side=HOSTILE))
    assert not set(screen(cards.card(timing=timing))) & set("\x1b\x00\u202e")


def test_the_picture_is_a_tree_of_its_own_elements_whatever_the_card_says() -> None:
    card = cards.card()
    submission, problem = replace(card.submission, name=HOSTILE), replace(card.problem, name=HOSTILE)
    root = drawn(TWO_PEAKS, submission=submission, problem=problem, device=replace(card.device, name=HOSTILE))
    assert {each.tag.removeprefix(SVG) for each in root.iter()} == {"svg", "title", "rect", "text", "line"}
    assert all(not each.startswith("on") for element in root.iter() for each in element.attrib)
    texts = [each.text or "" for each in root.iter(f"{SVG}text")]
    assert texts[0] == "</text><script>alert(1)</script>&[red] for </text><script>alert(1)</script>&[red]"
    assert not set("".join(texts)) & set("\x1b\x00\u202e\ufffe")


def test_the_picture_has_both_sides_with_their_medians_and_the_speedup() -> None:
    root = drawn(cards.timing())
    said = " | ".join(each.text or "" for each in root.iter(f"{SVG}text"))
    assert "speedup 2.98 (2.96 to 3.01, 95 % sure)" in said
    assert "reference: 100 verified calls, median 1.85 ms (1.85 ms to 1.86 ms, 95 % sure)" in said
    assert "submission: 50 verified calls, median 621 µs (617 µs to 626 µs, 95 % sure)" in said
    assert len(root.findall(f"{SVG}line")) == 2


def test_a_card_from_before_there_were_intervals_has_a_picture() -> None:
    names = ("reference_low_ms", "reference_high_ms", "submission_low_ms", "submission_high_ms", "speedup_low")
    root = drawn(replace(cards.timing(), **dict.fromkeys(names)))
    assert "speedup 2.98" in " ".join(each.text or "" for each in root.iter(f"{SVG}text"))


@given(
    reference=st.lists(finite, max_size=20), submission=st.lists(finite, max_size=20), ends=st.tuples(finite, finite)
)
@pytest.mark.slow
def test_nothing_is_drawn_outside(reference: list[float], submission: list[float], ends: tuple[float, float]) -> None:
    changes = {"submission_low_ms": ends[0], "submission_high_ms": ends[1], "reference_median_ms": ends[0]}
    root = drawn(sampled(reference, submission, **changes))
    for box in root.iter(f"{SVG}rect"):
        if box.get("x") is None:
            continue
        left, top, width, height = (float(box.get(name, "")) for name in ("x", "y", "width", "height"))
        assert 30 <= left <= left + width <= 730.02
        assert 0 <= top <= top + height <= 650.02


ROOFLINE = Roofline(
    read_bytes=302_000_000,
    written_bytes=33_500_000,
    flop=137_400_000_000,
    input_flips=Flips(samples=128, mattered=128),
    state_flips=None,
    needed_read_bytes=302_000_000,
    bandwidth_bytes_per_s=4.39e12,
    l2_bytes=62_914_560,
    peak_flop_per_s=49.2e12,
    floor_ms=0.0690,
    impossible_ms=0.0068,
    target_ms=2.793,
    of_floor=0.0238,
    bytes_per_s=1.157e11,
    flop_per_s=4.738e13,
)
COMPUTING = cards.timing(2.71, 2.9)


def test_the_larger_time_of_target_and_floor_stands_first() -> None:
    lines = [line.rstrip() for line in screen(cards.card(timing=COMPUTING, roofline=ROOFLINE)).splitlines()]
    at = next(number for number, line in enumerate(lines) if "Roofline" in line)
    assert [line[17:] for line in lines[at : at + 3]] == [
        "96 % of the target  (2.79 ms: 137 GFLOP at 49.2 TFLOP/s)",
        "2.4 % of the memory floor  (69.0 µs: 336 MB at 4.39 TB/s)",
        "reached 116 GB/s, 47.4 TFLOP/s",
    ]


def test_both_sides_stand_under_each_roof() -> None:
    lines = [line.rstrip()[17:] for line in screen(cards.card(timing=COMPUTING, roofline=ROOFLINE)).splitlines()]
    at = lines.index("memory 4.39 TB/s, measured")
    assert lines[at + 1] == "reference   █" + "·" * 30 + " 2.8 %  124 GB/s"
    assert lines[at + 3] == "products 49.2 TFLOP/s, measured"
    assert lines[at + 4] == "reference   " + "█" * 31 + " 103 %  50.7 TFLOP/s"
    assert lines[at + 6 :][0].startswith("reads 302 MB, writes 33.5 MB; inputs: 128 of 128 samples")
    without = screen(cards.card(timing=COMPUTING, roofline=replace(ROOFLINE, flop=0, peak_flop_per_s=None)))
    assert "products" not in without


def test_the_picture_has_the_roofs() -> None:
    root = drawn(COMPUTING, roofline=ROOFLINE)
    said = [each.text or "" for each in root.iter(f"{SVG}text")]
    assert "memory: 4.39 TB/s, measured" in said
    assert "submission 96 %, 47.4 TFLOP/s" in said
    assert float(root.get("height")) == 650 + 2 * 90


@given(values=st.lists(finite, min_size=7, max_size=7), sizes=st.lists(st.integers(-(2**63), 2**63), min_size=3))
@pytest.mark.slow
def test_any_roofline_fits_the_screen_and_the_picture(values: list[float], sizes: list[int]) -> None:
    names = ("bandwidth_bytes_per_s", "peak_flop_per_s", "floor_ms", "target_ms", "of_floor", "bytes_per_s")
    roofline = replace(
        ROOFLINE,
        **dict(zip(names, values, strict=False)),
        **dict(zip(("needed_read_bytes", "written_bytes", "flop"), sizes, strict=False)),
    )
    timing = replace(COMPUTING, submission_median_ms=values[6])
    card = cards.card(timing=timing, roofline=roofline)
    assert max(len(line) for line in screen(card).splitlines()) <= 80 or max(map(abs, values)) > 1e20
    for box in drawn(timing, roofline=roofline).iter(f"{SVG}rect"):
        if box.get("x") is not None:
            assert 30 <= float(box.get("x")) <= float(box.get("x")) + float(box.get("width")) <= 730.02


@given(values=st.lists(finite, min_size=1, max_size=50), cells=st.integers(1, 70))
def test_every_sample_is_in_one_cell(values: list[float], cells: int) -> None:
    counts = own_axis(values, cells).counts(values)
    assert len(counts) == cells
    assert sum(counts) == len(values)
    assert counts[0] >= 1
    levels = heights(counts, 8)
    assert max(levels) == 8
    assert [level > 0 for level in levels] == [count > 0 for count in counts]


def test_an_axis_without_width_has_one_cell_for_all() -> None:
    assert Axis(1.0, 1.0, 3).counts([1.0, 1.0]) == [2, 0, 0]
