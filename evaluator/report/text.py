"""Make untrusted text safe to show, and numbers pleasant to read. Pure, and free of rich.

A submission, its compiler and its process can print anything: escape sequences that clear the screen or rewrite the
verdict above them, marks that turn the reading direction, characters that this terminal's encoding does not have.
"""

import re
import unicodedata
from typing import NamedTuple

_ESCAPES = re.compile(
    r"""
    \x1b [\]P^_X] .*? (?: \x07 | \x1b\\ | \x9c | (?=\n) | \Z )   # titles, links, device strings: up to their end
    | (?: \x1b\[ | \x9b ) [0-?]* [ -/]* [@-~]?                     # colours, cursor moves, erasing
    | \x1b [ -/]* [0-~]?                                           # the short ones
    """,
    re.VERBOSE,
)
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
NO_WIDTH = 4096
"""The width, in cells, of what is piped into a file or a program: no line of ours is longer, so none is folded."""
_TAB = 8  # what compilers count a tab as, so that a column under an expanded line still points at its place


class Symbols(NamedTuple):
    """The few signs a screen uses beyond ASCII, or what stands for them where they cannot be printed.

    `bars` are nine, from nothing to the highest.
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
    """Choose the signs that `encoding` can print.

    >>> symbols_for("ascii").arrow, symbols_for("utf-8").arrow
    ('->', '→')
    """
    try:
        "".join(_UNICODE).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _UNICODE


def printable(text: str, encoding: str = "utf-8") -> str:
    r"""Keep what can be seen of `text`: no escape sequences, no control or direction marks, tabs as spaces.

    Line breaks stay. What `encoding` lacks is spelled as a backslash escape.

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
    r"""Put `text` on one line of at most `limit` characters, made safe by `printable`.

    >>> one_line("first\n   second", 40), one_line("abcdefghijkl", 8, "ascii")
    ('first second', 'abcde...')
    """
    words = " ".join(printable(text, encoding).split())
    ellipsis = symbols_for(encoding).ellipsis
    return words if len(words) <= limit else words[: limit - len(ellipsis)].rstrip() + ellipsis


def significant(value: float) -> str:
    """Write a positive number with three significant digits and without an exponent.

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
    """Write a ratio whose distance from one matters: near one with three decimals.

    >>> [ratio(x) for x in (0.9906, 1.0004, 1.0, 2.9771, 0.05)]
    ['0.991', '1.000', '1.000', '2.98', '0.0500']
    """
    return f"{value:.3f}" if 0.9 <= value < 1.1 else significant(value)


class Unit(NamedTuple):
    """A unit of time and how many milliseconds it is."""

    symbol: str
    milliseconds: float


_UNITS = (Unit("s", 1e3), Unit("ms", 1.0), Unit("us", 1e-3), Unit("ns", 1e-6))
_TOO_WIDE = 1e4  # beyond this, two numbers in one unit are harder to read than in two


def _unit_of(value_ms: float) -> Unit:
    return next((unit for unit in _UNITS if abs(value_ms) >= unit.milliseconds), _UNITS[-1 if value_ms else 1])


def in_unit(value_ms: float, unit: Unit, micro: str = "µ") -> str:
    """Write a time in `unit`, with three significant digits.

    >>> in_unit(0.02138, Unit("us", 1e-3))
    '21.4 µs'
    """
    return f"{significant(value_ms / unit.milliseconds)} {unit.symbol.replace('u', micro)}"


def duration(value_ms: float, micro: str = "µ") -> str:
    """Write a time in the unit that suits it.

    >>> duration(3.0438), duration(0.02138), duration(61250.0)
    ('3.04 ms', '21.4 µs', '61.2 s')
    """
    return in_unit(value_ms, _unit_of(value_ms), micro)


def side_by_side(first_ms: float, second_ms: float, micro: str = "µ") -> tuple[str, str]:
    """Write two times so that they compare at a glance: in one unit, unless they are worlds apart.

    >>> side_by_side(1.25, 0.941), side_by_side(2000.0, 0.02)
    (('1250 µs', '941 µs'), ('2.00 s', '20.0 µs'))
    """
    unit = _unit_of(min(first_ms, second_ms))
    if max(first_ms, second_ms) / unit.milliseconds >= _TOO_WIDE:
        return duration(first_ms, micro), duration(second_ms, micro)
    return in_unit(first_ms, unit, micro), in_unit(second_ms, unit, micro)


_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def amount(value: float, unit: str) -> str:
    """Write an amount with the decimal prefix that suits it.

    >>> amount(4.391e12, "B/s"), amount(12.0, "FLOP"), amount(6.442e9, "B")
    ('4.39 TB/s', '12.0 FLOP', '6.44 GB')
    """
    factor, prefix = next((each for each in _PREFIXES if abs(value) >= each[0]), (1.0, ""))
    return f"{significant(value / factor)} {prefix}{unit}"


def counted(number: int, noun: str) -> str:
    """Write a count with its noun.

    >>> counted(1, "call"), counted(12, "call")
    ('1 call', '12 calls')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
