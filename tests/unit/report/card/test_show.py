"""The samples of a card, drawn in the terminal."""

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from evaluator.records import Flips, Roofline, Scorecard, Timing
from evaluator.report.card.card_screen import render_card
from evaluator.report.card.evidence import heights, own_axis
from tests import cards

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


@pytest.mark.parametrize("width", [40, 80, 132])
@pytest.mark.parametrize(
    "timing",
    [TWO_PEAKS, sampled([], []), sampled([], [1.0]), sampled([0.0, 0.0], [0.0]), sampled([1e308] * 2, [-1e308])],
)
def test_any_samples_fit_any_screen(timing: Timing, width: int) -> None:
    text = screen(cards.card(timing=timing), width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "Samples" in text


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


@given(values=st.lists(finite, min_size=7, max_size=7), sizes=st.lists(st.integers(-(2**63), 2**63), min_size=3))
@pytest.mark.slow
def test_any_roofline_fits_the_screen(values: list[float], sizes: list[int]) -> None:
    names = ("bandwidth_bytes_per_s", "peak_flop_per_s", "floor_ms", "target_ms", "of_floor", "bytes_per_s")
    roofline = replace(
        ROOFLINE,
        **dict(zip(names, values, strict=False)),
        **dict(zip(("needed_read_bytes", "written_bytes", "flop"), sizes, strict=False)),
    )
    timing = replace(COMPUTING, submission_median_ms=values[6])
    card = cards.card(timing=timing, roofline=roofline)
    assert max(len(line) for line in screen(card).splitlines()) <= 80 or max(map(abs, values)) > 1e20


@given(values=st.lists(finite, min_size=1, max_size=50), cells=st.integers(1, 70))
def test_every_sample_is_in_one_cell(values: list[float], cells: int) -> None:
    counts = own_axis(values, cells).counts(values)
    assert len(counts) == cells
    assert sum(counts) == len(values)
    assert counts[0] >= 1
    levels = heights(counts, 8)
    assert max(levels) == 8
    assert [level > 0 for level in levels] == [count > 0 for count in counts]
