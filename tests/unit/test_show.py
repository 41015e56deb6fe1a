"""The samples of a card, drawn in the terminal and as a picture."""

import io
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from evaluator.records import Scorecard, Timing
from evaluator.report.histogram import Axis, heights, own_axis
from evaluator.report.picture import svg_bytes
from evaluator.report.terminal import render_card
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
        "reference: 4 calls, 1.00 ms to 2.00 ms; first 3.70 ms",
        "█" + "·" * 30 + "█",
        "submission: 5 calls, 1.00 ms to 2.00 ms; first 1.24 ms",
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
    assert "submission: 50 calls, 621 µs to 621 µs, 2 outliers; first 1.24 ms, 3 void" in text


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
    assert "speedup 2.98 (2.92 to 3.04, 95 % sure)" in said
    assert "reference: 100 calls, median 1.85 ms (1.83 ms to 1.87 ms, 95 % sure)" in said
    assert "submission: 50 calls, median 621 µs (615 µs to 628 µs, 95 % sure)" in said
    assert len(root.findall(f"{SVG}line")) == 2


def test_a_card_from_before_there_were_intervals_has_a_picture() -> None:
    names = ("reference_low_ms", "reference_high_ms", "submission_low_ms", "submission_high_ms", "speedup_low")
    root = drawn(replace(cards.timing(), **dict.fromkeys(names)))
    assert "speedup 2.98" in " ".join(each.text or "" for each in root.iter(f"{SVG}text"))


@given(
    reference=st.lists(finite, max_size=20), submission=st.lists(finite, max_size=20), ends=st.tuples(finite, finite)
)
def test_nothing_is_drawn_outside(reference: list[float], submission: list[float], ends: tuple[float, float]) -> None:
    changes = {"submission_low_ms": ends[0], "submission_high_ms": ends[1], "reference_median_ms": ends[0]}
    root = drawn(sampled(reference, submission, **changes))
    for box in root.iter(f"{SVG}rect"):
        if box.get("x") is None:
            continue
        left, top, width, height = (float(box.get(name, "")) for name in ("x", "y", "width", "height"))
        assert 30 <= left <= left + width <= 730.02
        assert 0 <= top <= top + height <= 650.02


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
