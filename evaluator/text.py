"""Formatting of numbers, and sanitising of untrusted text. Pure, and independent of rich.

A submission, its compiler and its process can print anything: escape sequences that clear the screen or rewrite the
verdict, marks that change the reading direction, and characters that the terminal's encoding lacks.
"""

import re
import unicodedata
from typing import NamedTuple

_ESCAPES = re.compile(
    r"""
    \x1b [\]P^_X] .*? (?: \x07 | \x1b\\ | \x9c | (?=\n) | \Z )   # titles, links, device strings
    | (?: \x1b\[ | \x9b ) [0-?]* [ -/]* [@-~]?                     # colours, cursor moves, erasing
    | \x1b [ -/]* [0-~]?                                           # short sequences
    """,
    re.VERBOSE,
)
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
NO_WIDTH = 4096
"""Width, in cells, of output to a pipe or file. No line is longer, so no line wraps."""
_TAB = 8  # compilers' tab width, so that columns match expanded lines


class Symbols(NamedTuple):
    """Non-ASCII symbols of a screen, or their ASCII substitutes.

    `bars` has nine levels, from empty to full.
    """

    right: str
    wrong: str
    unsure: str
    times: str
    arrow: str
    rule: str
    ellipsis: str
    micro: str
    bars: str


_UNICODE = Symbols("✓", "✗", "?", "×", "→", "│", "…", "µ", "·▁▂▃▄▅▆▇█")  # noqa: RUF001
_ASCII = Symbols("+", "x", "?", "x", "->", "|", "...", "u", ".:-=+*%@#")


def symbols_for(encoding: str) -> Symbols:
    """Return the symbols that `encoding` can represent.

    >>> symbols_for("ascii").arrow, symbols_for("utf-8").arrow
    ('->', '→')
    """
    try:
        "".join(_UNICODE).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _UNICODE


def printable(text: str, encoding: str = "utf-8") -> str:
    r"""Return the visible part of `text`: without escape sequences, control or direction marks, and with tabs expanded.

    Line breaks stay. A character that `encoding` lacks becomes a backslash escape.

    >>> printable("a\x1b[31mred\x1b[0m\u202eb\tc")
    'aredb   c'
    """
    kept = "".join(c for c in _ESCAPES.sub("", text) if c in "\n\t" or unicodedata.category(c) not in _INVISIBLE)
    seen = "\n".join(line.expandtabs(_TAB) for line in kept.split("\n"))
    try:
        return seen.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        return seen.encode("ascii", "backslashreplace").decode("ascii")


def one_line(text: str, limit: int, encoding: str = "utf-8") -> str:
    r"""Return `text` on one line of at most `limit` characters, made safe by `printable`.

    >>> one_line("first\n   second", 40), one_line("abcdefghijkl", 8, "ascii")
    ('first second', 'abcde...')
    """
    words = " ".join(printable(text, encoding).split())
    ellipsis = symbols_for(encoding).ellipsis
    return words if len(words) <= limit else words[: limit - len(ellipsis)].rstrip() + ellipsis


def significant(value: float) -> str:
    """Format a positive number with three significant digits and without an exponent.

    >>> [significant(x) for x in (0.5, 1.234, 12.345, 999.9, 123456.0, 0.00123)]
    ['0.500', '1.23', '12.3', '1000', '123456', '0.00123']
    """
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) < 1e-4:
        return f"{value:.2e}"
    text = f"{value:#.3g}"
    return text.rstrip(".")


def ratio(value: float) -> str:
    """Format a ratio: three decimals near 1, otherwise three significant digits.

    >>> [ratio(x) for x in (0.9906, 1.0004, 1.0, 2.9771, 0.05)]
    ['0.991', '1.000', '1.000', '2.98', '0.0500']
    """
    return f"{value:.3f}" if 0.9 <= value < 1.1 else significant(value)


def speedup_text(speedup: float | None, low: float | None, high: float | None, *, mixes_kinds: bool = False) -> str:
    """Return a speedup with its interval, and a remark if the sides were timed in other kinds of calls; maybe empty.

    >>> speedup_text(2.5, 2.4, 2.6), speedup_text(2.5, None, None), speedup_text(None, 0.1, 9.0)
    ('2.50x (2.40x to 2.60x)', '2.50x', '')
    """
    if speedup is None:
        return ""
    between = "" if low is None or high is None else f" ({ratio(low)}x to {ratio(high)}x)"
    return f"{ratio(speedup)}x{between}{', windows against single calls' if mixes_kinds else ''}"


class Unit(NamedTuple):
    """A unit of time, with its length in milliseconds."""

    symbol: str
    milliseconds: float


_UNITS = (Unit("s", 1e3), Unit("ms", 1.0), Unit("us", 1e-3), Unit("ns", 1e-6))
_TOO_WIDE = 1e4  # beyond this, one unit for both numbers is harder to read


def _unit_of(value_ms: float) -> Unit:
    return next((unit for unit in _UNITS if abs(value_ms) >= unit.milliseconds), _UNITS[-1 if value_ms else 1])


def in_unit(value_ms: float, unit: Unit, micro: str = "µ") -> str:
    """Format a time in `unit`, with three significant digits.

    >>> in_unit(0.02138, Unit("us", 1e-3))
    '21.4 µs'
    """
    return f"{significant(value_ms / unit.milliseconds)} {unit.symbol.replace('u', micro)}"


def duration(value_ms: float, micro: str = "µ") -> str:
    """Format a time in its natural unit.

    >>> duration(3.0438), duration(0.02138), duration(61250.0)
    ('3.04 ms', '21.4 µs', '61.2 s')
    """
    return in_unit(value_ms, _unit_of(value_ms), micro)


def side_by_side(first_ms: float, second_ms: float, micro: str = "µ") -> tuple[str, str]:
    """Format two times for comparison: in one unit, unless their magnitudes differ widely.

    >>> side_by_side(1.25, 0.941), side_by_side(2000.0, 0.02)
    (('1250 µs', '941 µs'), ('2.00 s', '20.0 µs'))
    """
    unit = _unit_of(min(first_ms, second_ms))
    if max(first_ms, second_ms) / unit.milliseconds >= _TOO_WIDE:
        return duration(first_ms, micro), duration(second_ms, micro)
    return in_unit(first_ms, unit, micro), in_unit(second_ms, unit, micro)


_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def amount(value: float, unit: str) -> str:
    """Format an amount with a decimal prefix.

    >>> amount(4.391e12, "B/s"), amount(12.0, "FLOP"), amount(6.442e9, "B")
    ('4.39 TB/s', '12.0 FLOP', '6.44 GB')
    """
    factor, prefix = next((each for each in _PREFIXES if abs(value) >= each[0]), (1.0, ""))
    return f"{significant(value / factor)} {prefix}{unit}"


def counted(number: int, noun: str) -> str:
    """Format a count with its noun.

    >>> counted(1, "call"), counted(12, "call")
    ('1 call', '12 calls')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
