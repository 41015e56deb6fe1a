"""SVG charts of a run's page. Colours come from the page's style, so that they follow dark mode. Pure.

Every text is an escaped text node, and every coordinate is clamped to the picture.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from evaluator.report.layout.text import ratio
from evaluator.report.run.intervals import share

_WIDTH, _HEIGHT = 560, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 16, 14, 34
_MOST_P = 5.0
MOST_SPEEDUPS = 30


class Speedup(NamedTuple):
    """A correct submission's speedup with its interval."""

    name: str
    value: float
    low: float | None
    high: float | None


def fast_curve(speedups: Sequence[float], submissions: int) -> str:
    """Return fast_p over p from 0 to 5, with the 95 % band; empty without any speedup."""
    if not speedups or not submissions:
        return ""
    root = _root(_HEIGHT, "Share of submissions that are correct and more than p times as fast as the reference")
    for percent in (0, 25, 50, 75, 100):
        _grid(root, _LEFT, _y(percent / 100), _WIDTH - _RIGHT, _y(percent / 100))
        _text(root, _LEFT - 6, _y(percent / 100) + 4, f"{percent} %", "end")
    for tick in range(int(_MOST_P) + 1):
        _text(root, _x(tick), _HEIGHT - 16, f"{tick}x", "middle")
    _text(root, (_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 2, "p: more than p times as fast", "middle")
    _grid(root, _x(1), _y(0), _x(1), _y(1), "one")
    line, low, high = [], [], []
    for step in range(101):
        p = step * _MOST_P / 100
        estimate = share(sum(value > p for value in speedups), submissions)
        if estimate is not None:
            line.append((_x(p), _y(estimate.value)))
            low.append((_x(p), _y(estimate.low or 0.0)))
            high.append((_x(p), _y(estimate.high or 0.0)))
    ElementTree.SubElement(root, "polygon", {"class": "band", "points": _points([*high, *reversed(low)])})
    ElementTree.SubElement(root, "polyline", {"class": "curve", "points": _points(line)})
    return ElementTree.tostring(root, encoding="unicode")


def speedup_chart(found: Sequence[Speedup]) -> str:
    """Return the largest speedups with their intervals on a logarithmic axis; empty without any."""
    shown = sorted(found, key=lambda each: -each.value)[:MOST_SPEEDUPS]
    if not shown:
        return ""
    ends = [end for each in shown for end in (each.value, each.low, each.high) if end and end > 0]
    low, high = min(1.0, *ends) / 1.1, max(1.0, *ends) * 1.1
    left, row = 200, 22
    height = row * len(shown) + 30
    root = _root(height, "Speedups of the fastest submissions with 95 % intervals")

    def place(value: float) -> float:
        part = (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
        return left + min(max(part, 0.0), 1.0) * (_WIDTH - left - 64)

    _grid(root, place(1.0), 4, place(1.0), height - 24, "one")
    _text(root, place(1.0), height - 8, "1x: the reference", "middle")
    for number, each in enumerate(shown):
        y = 16 + number * row
        _text(root, left - 10, y + 4, each.name, "end")
        if each.low and each.low > 0 and each.high:
            ends_at = {"x1": f"{place(each.low):.1f}", "x2": f"{place(each.high):.1f}", "y1": str(y), "y2": str(y)}
            ElementTree.SubElement(root, "line", {"class": "interval"} | ends_at)
        dot = {"cx": f"{place(each.value):.1f}", "cy": str(y), "r": "4", "class": "dot"}
        ElementTree.SubElement(root, "circle", dot)
        _text(root, _WIDTH - 4, y + 4, f"{ratio(each.value)}x", "end")
    return ElementTree.tostring(root, encoding="unicode")


def _root(height: int, title: str) -> ElementTree.Element:
    root = ElementTree.Element("svg", {"viewBox": f"0 0 {_WIDTH} {height}", "role": "img", "aria-label": title})
    ElementTree.SubElement(root, "title").text = title
    return root


def _x(p: float) -> float:
    return _LEFT + p / _MOST_P * (_WIDTH - _LEFT - _RIGHT)


def _y(part: float) -> float:
    return _HEIGHT - _BOTTOM - part * (_HEIGHT - _BOTTOM - _TOP)


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _grid(root: ElementTree.Element, x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> None:
    ends = {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}", "class": kind}
    ElementTree.SubElement(root, "line", ends)


def _text(root: ElementTree.Element, x: float, y: float, text: str, anchor: str) -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}
    ElementTree.SubElement(root, "text", place).text = text
