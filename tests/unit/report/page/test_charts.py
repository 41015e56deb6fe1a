"""Charts: hostile names stay text inside the picture, any number has a place, and the size has a bound."""

import math
import re
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from evaluator.report.page.charts import MOST_ROWS, Curve, Ratio, fast_curves, ratio_chart, samples_chart
from tests import cards
from tests.unit.report.page.reader import HOSTILE_NAMES, Reader

DRAWN = {"svg", "title", "text", "line", "circle", "polygon", "polyline", "path"}
KILOBYTE = 1024


def numbers(drawn):
    """Return the coordinates, after a check of the picture."""
    root = ElementTree.fromstring(str(drawn))
    assert {element.tag for element in root.iter()} <= DRAWN
    attributes = [value for element in root.iter() for name, value in element.items() if name not in ("class", "role")]
    assert not any(re.search("nan|inf", value) for value in attributes)
    width, height = map(float, root.get("viewBox").split()[2:])
    limits = dict.fromkeys(("x1", "x2", "cx"), width) | dict.fromkeys(("y1", "y2", "cy"), height)
    for element in root.iter():
        for name, value in element.items():
            assert name not in limits or -0.1 <= float(value) <= limits[name] + 0.1, element.attrib
    return root


def ratios(found):
    return ratio_chart(found, "Speedups", "1x: the reference")


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_is_a_short_text(name):
    drawn = ratios([Ratio(name, 2.0, 1.9, 2.1)])
    numbers(drawn)
    reader = Reader(drawn)
    assert reader.names <= DRAWN
    assert not {"onerror", "style", "href"} & {key for _, attributes in reader.tags for key in attributes}
    assert "\u202e" not in reader.text
    assert len(drawn) < 2 * KILOBYTE


@pytest.mark.parametrize("value", [5e-324, 1e-300, 1.0, 1e300, 1.7976931348623157e308])
def test_any_positive_ratio_has_a_place(value):
    drawn = ratios([Ratio("a", value, value, value), Ratio("b", 1.0, None, None)])
    assert len(numbers(drawn).findall("circle")) == 2


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_a_ratio_without_a_place_is_left_out(value):
    assert ratios([Ratio("a", value, None, None)]) == ""
    drawn = numbers(ratios([Ratio("b", 2.0, value, 3.0)]))
    assert drawn.find("circle") is not None
    assert drawn.find("line[@class='interval']") is None


def test_a_chart_of_ten_thousand_submissions_has_the_size_of_one_of_thirty():
    many = [Ratio(f"relu/{number}" * 10, 1 + number / 100, 1.0, 200.0) for number in range(10_000)]
    assert ratios(many) == ratios(many[:MOST_ROWS])
    assert len(ratios(many)) < 16 * KILOBYTE
    curve = fast_curves([Curve([each.value for each in many], 20_000)])
    numbers(curve)
    assert len(curve) < 16 * KILOBYTE


def test_the_curve_falls_from_the_correct_share():
    assert fast_curves([Curve([], 10)]) == ""
    root = numbers(fast_curves([Curve([0.5, 2.0, 9.0], 4)]))
    heights = [float(point.split(",")[1]) for point in root.find("polyline").get("points").split()]
    assert heights == sorted(heights)
    assert len(set(heights)) == 3  # three of four beyond 0, two beyond 0.5, one beyond 2


def timing(reference, submission, again):
    made = cards.timing()
    sides = {"reference_before": reference, "submission": submission, "reference_after": again}
    for name, values in sides.items():
        sides[name] = replace(getattr(made, name), samples_ms=values)
    return replace(made, reference_median_ms=2.0, submission_median_ms=1.0, **sides)


def test_samples_are_drawn_in_the_order_of_the_calls():
    root = numbers(samples_chart(timing([2.0, 2.0], [1.0, 1.0, 1.0], [2.0])))
    paths = [(path.get("class"), path.get("d").count("M")) for path in root.iter("path")]
    assert paths == [("samples reference", 2), ("samples submission", 3), ("samples reference", 1)]
    heights = [float(re.search(r"M\S+ ([\d.]+)V", path.get("d"))[1]) for path in root.iter("path")]
    assert heights[0] == heights[2] < heights[1]


def test_a_slow_call_is_counted_and_flattens_no_other():
    root = numbers(samples_chart(timing([2.0] * 9 + [500.0], [1.0] * 10, [2.0] * 10)))
    said = [text.text for text in root.iter("text")]
    assert "reference, 10 calls, 1 above the axis" in said
    assert "6.00 ms" in said


@pytest.mark.parametrize("value", [0.0, -1.0, 5e-324, 1.7e308])
def test_samples_of_any_size_are_drawn_or_left_out(value):
    drawn = samples_chart(timing([value] * 3, [value] * 3, [value]))
    assert drawn == "" if value <= 0 else numbers(drawn) is not None
    assert samples_chart(timing([], [], [])) == ""


def test_a_chart_of_a_hundred_thousand_samples_stays_small():
    many = [1.0 + number % 7 / 10 for number in range(100_000)]
    assert len(samples_chart(timing(many, many, many))) < 6 * KILOBYTE
