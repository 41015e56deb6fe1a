"""Text layout: labels on the left, text on the right, wrapped at the terminal's width; a pipe has no width."""

from rich.console import Console
from rich.text import Text

from evaluator.text import NO_WIDTH, Symbols, one_line, symbols_for

_WIDEST = 100  # longer lines are hard to read
_USUAL = 80  # width of drawings without a terminal
_NARROWEST = 40  # a narrower terminal breaks the lines itself
_MARGIN = 2
_LABEL = 15
MARGIN_AND_LABEL = _MARGIN + _LABEL
"""Cells left of a row's text."""


def styled(text: str, style: str) -> Text:
    """Return `text` with a style of its own. A base style, by contrast, also applies to appended text."""
    return Text().append(text, style)


class Sheet:
    """Lines for `console`. Data enter only through `say`, which makes them safe to show."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: list[Text] = []
        self.encoding: str = console.encoding
        self.symbols: Symbols = symbols_for(self.encoding)
        is_unbounded = console.width >= NO_WIDTH
        self.width: int = _USUAL if is_unbounded else max(_NARROWEST, min(console.width, _WIDEST))
        """How wide a drawing is, in cells."""
        self.text_width: int = NO_WIDTH if is_unbounded else self.width
        """Where text is folded and lines are cut."""

    def say(self, data: object, limit: int = 200, style: str = "") -> Text:
        """Return `data` as one line of at most `limit` characters, without markup."""
        return styled(one_line(str(data), limit, self.encoding), style)

    def blank(self) -> None:
        """Add an empty line."""
        self._lines.append(Text())

    def paragraph(self, mark: Text, body: Text) -> None:
        """Add `body`, wrapped, with `mark` in front of its first line."""
        self._hang(mark, body, indent=_MARGIN)

    def row(self, label: str, body: Text) -> None:
        """Add `body`, wrapped, in the right column; an empty `label` continues the row above."""
        self._hang(styled(" " * _MARGIN + label, "bold"), body, indent=MARGIN_AND_LABEL)

    def line(self, text: Text) -> None:
        """Add an unwrapped line, cut at the screen's width."""
        text.truncate(self.text_width, overflow="crop")
        self._lines.append(text)

    def print(self) -> None:
        """Print all lines."""
        for line in self._lines:
            line.rstrip()
            self._console.print(line, soft_wrap=True)

    def _hang(self, mark: Text, body: Text, *, indent: int) -> None:
        room = self.text_width - indent
        for number, line in enumerate(body.wrap(self._console, room, overflow="fold")):
            start = mark.copy() if number == 0 else Text()
            start.append(" " * (indent - start.cell_len))
            self._lines.append(start.append_text(line))
