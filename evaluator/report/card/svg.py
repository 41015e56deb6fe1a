"""SVG of a card's samples: a histogram of each side on its own axis, and both on an axis from zero.

A card is untrusted. Every text is an escaped text node of an XML tree, and `one_line` removes characters that XML
forbids. Every coordinate is a position on an axis, so it is inside the picture.
"""

from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from evaluator.records import Scorecard, Timing
from evaluator.report.card.histogram import Axis, own_axis
from evaluator.report.card.measurement import measurement, samples_of
from evaluator.report.card.roofline import RoofPlace, roofs, share
from evaluator.text import amount, duration, one_line, ratio

_WIDTH, _LEFT, _INNER = 760, 30, 700
_PANEL, _TOP, _LINE = 190, 65, 15
_BARS, _CELLS = 110, 50
_ROOF, _ROOF_AT = 90, 0.75
_FONT = "font-family:system-ui,sans-serif;font-size:13px;fill:#222"
_COLOURS = {"reference": "#4477aa", "submission": "#228833"}


class _Side(NamedTuple):
    """Data of one side's panel; the interval's ends are None for a card without intervals."""

    name: str
    values_ms: list[float]
    median_ms: float
    low_ms: float | None
    high_ms: float | None
    calls: str


def svg_bytes(card: Scorecard, timing: Timing) -> bytes:
    """Return the SVG file of `card` with its `timing`."""
    lines = measurement(card)
    top = _TOP + len(lines) * _LINE
    bottom = top + 3 * _PANEL
    height = bottom if card.roofline is None else bottom + len(roofs(card.roofline, timing)) * _ROOF
    root = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {_WIDTH} {height}",
            "width": str(_WIDTH),
            "height": str(height),
            "role": "img",
        },
    )
    name = f"{one_line(card.submission.name, 60)} for {one_line(card.problem.name, 60)}"
    ElementTree.SubElement(root, "title").text = f"Samples of {name}"
    ElementTree.SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    _text(root, _LEFT, 28, name, size=17)
    device = f"size {' and '.join(card.sizes)}, {card.device.kind.value}, {one_line(card.device.name, 60)}"
    _text(root, _LEFT, 50, f"{card.status.value.replace('_', ' ')}; {device}; {_speedup(timing)}")
    for number, line in enumerate(lines):
        _text(root, _LEFT, 70 + number * _LINE, line, size=12)
    sides = _sides(timing)
    for index, side in enumerate(sides):
        _panel(root, top + index * _PANEL, side)
    _together(root, top + 2 * _PANEL, sides)
    if card.roofline is not None:
        _roofs(root, bottom, roofs(card.roofline, timing))
    ElementTree.indent(root)
    drawn: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return drawn + b"\n"


def _sides(timing: Timing) -> list[_Side]:
    return [
        _Side(
            "reference",
            [*timing.reference_before.samples_ms, *timing.reference_after.samples_ms],
            timing.reference_median_ms,
            timing.reference_low_ms,
            timing.reference_high_ms,
            samples_of([timing.reference_before, timing.reference_after]),
        ),
        _Side(
            "submission",
            timing.submission.samples_ms,
            timing.submission_median_ms,
            timing.submission_low_ms,
            timing.submission_high_ms,
            samples_of([timing.submission]),
        ),
    ]


def _speedup(timing: Timing) -> str:
    if timing.speedup is None:
        return "no speedup quoted"
    if timing.speedup_low is None or timing.speedup_high is None:
        return f"speedup {ratio(timing.speedup)}"
    interval = f"{ratio(timing.speedup_low)} to {ratio(timing.speedup_high)}"
    return f"speedup {ratio(timing.speedup)} ({interval}, 95 % sure)"


def _panel(root: ElementTree.Element, top: int, side: _Side) -> None:
    """Draw one side: bars, the interval of the median as a band, the median as a line."""
    if not side.values_ms:
        _text(root, _LEFT, top + 14, f"{side.name}: no samples")
        return
    axis, base = own_axis(side.values_ms, _CELLS), top + 24 + _BARS
    _text(root, _LEFT, top + 14, f"{side.name}: {side.calls}, median {duration(side.median_ms)}{_between(side)}")
    if side.low_ms is not None and side.high_ms is not None:
        left, right = _x(axis, side.low_ms), _x(axis, side.high_ms)
        _box(root, left, base - _BARS, right - left, _BARS, _COLOURS[side.name], opacity="0.15")
    _bars(root, axis, side, base)
    _line(root, _x(axis, side.median_ms), base - _BARS, base)
    _scale(root, axis, base)


def _between(side: _Side) -> str:
    if side.low_ms is None or side.high_ms is None:
        return ""
    return f" ({duration(side.low_ms)} to {duration(side.high_ms)}, 95 % sure)"


def _together(root: ElementTree.Element, top: int, sides: Sequence[_Side]) -> None:
    values_ms = [value for side in sides for value in side.values_ms]
    if not values_ms:
        return
    axis, base = Axis(0.0, max(values_ms), _CELLS), top + 24 + _BARS
    _text(root, _LEFT, top + 14, "both, from zero")
    for side in sides:
        _bars(root, axis, side, base)
    _scale(root, axis, base)


def _roofs(root: ElementTree.Element, top: int, found: Sequence[RoofPlace]) -> None:
    """Draw each side as a bar against each roof, drawn at three quarters because a side may exceed a roof."""
    for index, roof in enumerate(found):
        base = top + index * _ROOF
        _text(root, _LEFT, base + 14, f"{roof.name}: {amount(roof.roof_per_s, roof.unit)}, measured")
        for number, side in enumerate(roof.sides):
            part = 0.0 if side.rate_per_s is None else side.rate_per_s / roof.roof_per_s
            width = _INNER * _ROOF_AT * max(min(part, 1 / _ROOF_AT), 0.0)
            _box(root, _LEFT, base + 24 + number * 24, width, 16, _COLOURS[side.name], opacity="0.75")
            said = "no time" if side.rate_per_s is None else f"{share(part)}, {amount(side.rate_per_s, roof.unit)}"
            _text(root, _LEFT + 6, base + 36 + number * 24, f"{side.name} {said}")
        _line(root, _LEFT + _INNER * _ROOF_AT, base + 20, base + 68)


def _bars(root: ElementTree.Element, axis: Axis, side: _Side, base: int) -> None:
    counts = axis.counts(side.values_ms)
    width, most = _INNER / axis.cells, max(counts)
    for cell, count in enumerate(counts):
        if count:
            height = max(_BARS * count / most, 2.0)
            _box(root, _LEFT + cell * width, base - height, width, height, _COLOURS[side.name], opacity="0.75")


def _scale(root: ElementTree.Element, axis: Axis, base: int) -> None:
    _box(root, _LEFT, base, _INNER, 1, "#222222")
    _text(root, _LEFT, base + 17, duration(axis.low_ms))
    _text(root, _LEFT + _INNER, base + 17, duration(axis.high_ms), anchor="end")


def _x(axis: Axis, value_ms: float) -> float:
    return _LEFT + _INNER * axis.place(value_ms)


def _box(
    root: ElementTree.Element, x: float, y: float, width: float, height: float, colour: str, *, opacity: str = "1"
) -> None:
    place = {"x": f"{x:.2f}", "y": f"{y:.2f}", "width": f"{max(width, 0.0):.2f}", "height": f"{height:.2f}"}
    ElementTree.SubElement(root, "rect", place | {"fill": colour, "fill-opacity": opacity})


def _line(root: ElementTree.Element, x: float, top: float, bottom: float) -> None:
    ends = {"x1": f"{x:.2f}", "x2": f"{x:.2f}", "y1": f"{top:.2f}", "y2": f"{bottom:.2f}"}
    ElementTree.SubElement(root, "line", ends | {"stroke": "#222222", "stroke-width": "1.5"})


def _text(root: ElementTree.Element, x: float, y: float, text: str, *, size: int = 13, anchor: str = "start") -> None:
    style = _FONT.replace("13px", f"{size}px")
    place = {"x": f"{x:.2f}", "y": f"{y:.2f}", "text-anchor": anchor, "style": style}
    ElementTree.SubElement(root, "text", place).text = text
