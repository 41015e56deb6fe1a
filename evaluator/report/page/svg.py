"""Elements of the page's charts. Colours come from the page's style, and follow dark mode. Pure.

Every text is a single line and an escaped text node; every number is finite.
"""

from xml.etree import ElementTree

from markupsafe import Markup

from evaluator.text import one_line

Picture = ElementTree.Element
_LONGEST = 200


def picture(width: int, height: int, title: str) -> Picture:
    """Return an empty picture. Screen readers read the title."""
    root = ElementTree.Element("svg", {"viewBox": f"0 0 {width} {height}", "role": "img", "aria-label": title})
    ElementTree.SubElement(root, "title").text = title
    return root


def markup(root: Picture) -> Markup:
    """Return the picture as a part of a page."""
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # noqa: S704 - a serialised tree of escaped text


def text(root: Picture, x: float, y: float, content: str, anchor: str = "start") -> None:
    """Add a text on a single line."""
    attributes = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}
    ElementTree.SubElement(root, "text", attributes).text = one_line(content, _LONGEST)


def line(root: Picture, ends: tuple[float, float, float, float], kind: str) -> None:
    """Add a line from x1, y1 to x2, y2 with the class `kind`."""
    places = {name: f"{end:.1f}" for name, end in zip(("x1", "y1", "x2", "y2"), ends, strict=True)}
    ElementTree.SubElement(root, "line", places | {"class": kind})


def path(root: Picture, content: str, kind: str) -> None:
    """Add a path with the class `kind`."""
    ElementTree.SubElement(root, "path", {"class": kind, "d": content})


def dot(root: Picture, x: float, y: float, kind: str = "dot") -> None:
    """Add a dot with the class `kind`."""
    ElementTree.SubElement(root, "circle", {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": "4", "class": kind})


def area(root: Picture, points: list[tuple[float, float]], kind: str) -> None:
    """Add a closed area with the class `kind`."""
    ElementTree.SubElement(root, "polygon", {"class": kind, "points": _points(points)})


def curve(root: Picture, points: list[tuple[float, float]], kind: str) -> None:
    """Add an open curve with the class `kind`."""
    ElementTree.SubElement(root, "polyline", {"class": kind, "points": _points(points)})


def _points(points: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
