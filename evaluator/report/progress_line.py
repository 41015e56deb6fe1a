"""Progress of a grade: a live line on a terminal, plain lines elsewhere, or nothing."""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from evaluator.progress import ProgressReceiver, Silent
from evaluator.text import one_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_REDRAW_S = 0.25
_DETAIL = 60
STILL = frozenset({"reference", "time"})
"""Stages without updates of the line: drawing would disturb the clock."""


class _StagePlaces:
    """Places of the begun stages among the planned stages of a grade."""

    def __init__(self, planned: Sequence[str]) -> None:
        self._planned = tuple(planned)
        self._begun: set[str] = set()

    def begin(self, name: str) -> str:
        """Begin a stage. Return the place, `3 of 6`; empty for an unplanned stage. A repeated stage has the highest."""
        if name not in self._planned:
            return ""
        self._begun.add(name)
        return f"{len(self._begun)} of {len(self._planned)}"


class StageLines:
    """Progress as one line per stage, for logs and pipes."""

    def __init__(self, stream: TextIO, stages: Sequence[str] = ()) -> None:
        self._stream = stream
        self._places = _StagePlaces(stages)

    def stage(self, name: str, detail: str = "") -> None:
        """Write `name (3 of 6): detail`."""
        position = self._places.begin(name)
        line = name + (f" ({position})" if position else "") + (f": {detail}" if detail else "")
        with contextlib.suppress(OSError):  # a closed reader stops no grade
            self._stream.write(one_line(line, 200, getattr(self._stream, "encoding", None) or "ascii") + "\n")
            self._stream.flush()


class MovingLine:
    """Progress as one live line on a terminal: a spinner, the stage with place and seconds.

    A thread updates the line during the grade. The line disappears at the end.
    """

    def __init__(self, console: "Console", stages: Sequence[str] = ()) -> None:
        from rich.live import Live
        from rich.spinner import Spinner

        self._encoding = console.encoding
        self._places = _StagePlaces(stages)
        self._stage, self._place, self._detail, self._since = "", "", "", time.monotonic()
        self._spinner = Spinner("dots" if _has_dots(self._encoding) else "line", style="cyan")
        self._live = Live(get_renderable=self._line, console=console, transient=True, auto_refresh=False)
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)

    def stage(self, name: str, detail: str = "") -> None:
        """Show the stage `name` with its elapsed seconds, and `detail`."""
        if name != self._stage:
            self._since = time.monotonic()
        self._stage, self._place, self._detail = name, self._places.begin(name), detail
        self._live.refresh()

    def __enter__(self) -> Self:
        self._live.start()
        self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._ticker.join()
        self._live.stop()

    def _tick(self) -> None:
        while not self._ended.wait(_REDRAW_S):
            if self._stage and self._stage not in STILL:
                self._live.refresh()

    def _line(self) -> "RenderableType":
        from rich.text import Text

        if not self._stage:
            return Text()
        line = Text().append(one_line(self._stage, 20, self._encoding), "bold")
        if self._place:
            line.append(f"  {self._place}", style="dim")
        if self._stage not in STILL:
            line.append(f"  {time.monotonic() - self._since:.0f} s", style="cyan")
        line.append(f"  {one_line(self._detail, _DETAIL, self._encoding)}", style="dim")
        line.no_wrap, line.overflow = True, "crop"
        self._spinner.update(text=line)
        return self._spinner


def _has_dots(encoding: str) -> bool:
    try:
        "⠋".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@contextlib.contextmanager
def progress_on(stream: TextIO, *, quiet: bool = False, stages: Sequence[str] = ()) -> Iterator[ProgressReceiver]:
    """Select the progress display for `stream`, and clean up at the end. `stages` are the planned stages."""
    if quiet:
        yield Silent()
    elif not stream.isatty():
        yield StageLines(stream, stages)
    else:
        from rich.console import Console

        console = Console(file=stream, highlight=False)
        if console.is_dumb_terminal:
            yield StageLines(stream, stages)
            return
        with MovingLine(console, stages) as line:
            yield line
