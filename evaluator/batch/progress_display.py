"""Progress of a running batch: a table on a terminal, plain lines elsewhere, JSON lines for programs."""

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from evaluator.batch.runs.tasks import Refused, RefusedByCause
from evaluator.batch.scheduler import CardResult, Display
from evaluator.batch.workers.worker_pool import TaskBegan
from evaluator.records import GradeMode, Status
from evaluator.report.progress_line import STILL
from evaluator.text import duration, one_line, significant

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_LAST = 8
_REDRAW_S = 0.5
_STYLES = {Status.CORRECT: "green", Status.INFRA_ERROR: "magenta", Status.INCONCLUSIVE: "yellow"}


class LineDisplay:
    """Display with one line for each finished submission."""

    def __init__(self, stream: TextIO, total: int | None) -> None:
        """Write to `stream`. `total` is the number of submissions, if known."""
        self._stream = stream
        self._total = total
        self._done = self._kept = 0
        self._refused = RefusedByCause()

    def began(self, event: TaskBegan) -> None:
        """Ignore the event: a line for each stage would bury the results."""

    def result(self, result: CardResult) -> None:
        """Write the result. Only count a submission with an earlier card."""
        self._done += 1
        if result.how == "kept":
            self._kept += 1
            return
        if self._kept:
            self._write(f"{self._kept} already have a card")
            self._kept = 0
        self._write(f"[{self._done}{f'/{self._total}' if self._total else ''}] {summary(result)}")

    def refused(self, refused: Refused) -> None:
        """Write the first refused input of each cause, and the reason."""
        self._done += 1
        if self._refused.add(refused):
            self._write(f"refused {refused.origin}: {refused.reason}")

    def end(self) -> None:
        """Write how many more inputs were refused for each cause."""
        for line in self._refused.further:
            self._write(f"refused {line}")

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a closed reader must not end the batch
            self._stream.write(one_line(line, 240, getattr(self._stream, "encoding", None) or "ascii") + "\n")
            self._stream.flush()


def summary(result: CardResult) -> str:
    """Return a one-line summary of a result."""
    row = result.row
    parts = [f"{row.problem}/{row.name}", row.status]
    if row.reason:
        parts.append(row.reason)
    if row.speedup is not None:
        mixed = " (windows against single calls)" if row.reference_calls != row.submission_calls else ""
        parts.append(f"{significant(row.speedup)}x{mixed}")
    if row.status == Status.CORRECT.value and row.mode == GradeMode.CHECK.value:
        parts.append("not timed")
    parts.append("the same as an earlier one" if result.how == "copied" else duration(row.wall_s * 1000, "u"))
    return ", ".join(parts)


class JsonLines:
    """Display that writes a JSON object for each result, kept cards included, beside another display."""

    def __init__(self, stream: TextIO, display: Display) -> None:
        self._stream = stream
        self._display = display

    def began(self, event: TaskBegan) -> None:
        """Forward the event."""
        self._display.began(event)

    def result(self, result: CardResult) -> None:
        """Write the result as JSON and forward the event."""
        row = result.row
        fields = (
            *("problem", "level", "name", "status", "reason", "speedup", "speedup_low", "speedup_high"),
            *("reference_calls", "submission_calls", "l2", "device", "mode", "wall_s", "card"),
        )
        self._write({"type": "result", "how": result.how} | {field: getattr(row, field) for field in fields})
        self._display.result(result)

    def refused(self, refused: Refused) -> None:
        """Write the refused input and the reason as JSON, and forward the event."""
        self._write({"type": "refused", "origin": refused.origin, "reason": refused.reason})
        self._display.refused(refused)

    def _write(self, document: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._stream.write(msgspec.json.encode(document).decode() + "\n")
            self._stream.flush()


class TableDisplay:
    """Live table: progress, the stage of each slot, the last correct results. Failures stay above the table."""

    def __init__(self, console: "Console", total: int | None) -> None:
        """Draw on `console`, a terminal."""
        from rich.live import Live

        self._encoding = console.encoding
        self._total = total
        self._counts: Counter[Status] = Counter()
        self._hows: Counter[str] = Counter()
        self._refused = RefusedByCause()
        self._refusals = 0
        self._slots: dict[int, tuple[TaskBegan, float]] = {}
        self._last: deque[str] = deque(maxlen=_LAST)
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self.live = Live(get_renderable=self._draw, console=console, refresh_per_second=1 / _REDRAW_S, transient=True)

    def began(self, event: TaskBegan) -> None:
        """Show the stage in the slot's row."""
        with self._lock:
            before = self._slots.get(event.slot)
            same = before is not None and (before[0].task, before[0].stage) == (event.task, event.stage)
            self._slots[event.slot] = before if same and before is not None else (event, time.monotonic())

    def result(self, result: CardResult) -> None:
        """Count the result. Show a correct result in the table, a failure permanently above."""
        status = Status(result.row.status)
        with self._lock:
            self._counts[status] += 1
            self._hows[result.how] += 1
            for slot, (event, _) in list(self._slots.items()):
                if event.task.card == result.row.card:
                    del self._slots[slot]
            if status is Status.CORRECT and result.how != "kept":
                self._last.append(summary(result))
        if status is not Status.CORRECT and result.how != "kept":
            self._leave(summary(result), _STYLES.get(status, "red"))

    def refused(self, refused: Refused) -> None:
        """Count the refused input. Show the first input of each cause, and the reason, permanently."""
        with self._lock:
            self._refusals += 1
            is_first = self._refused.add(refused)
        if is_first:
            self._leave(f"refused {refused.origin}: {refused.reason}", "red")

    def end(self) -> None:
        """Show how many more inputs were refused for each cause."""
        for line in self._refused.further:
            self._leave(f"refused {line}", "red")

    def _leave(self, text: str, style: str) -> None:
        """Write a permanent line above the table. The caller must not hold the lock: drawing takes the same lock."""
        from rich.text import Text

        with contextlib.suppress(OSError):  # as in `LineDisplay`
            self.live.console.print(Text(one_line(text, 240, self._encoding), style))

    def _draw(self) -> "RenderableType":
        from rich.console import Group
        from rich.table import Table as Grid
        from rich.text import Text

        with self._lock:
            head = Text(f"{self._progress()}   ", style="bold")
            for status, count in self._counts.most_common():
                head.append(f"{count} {status.value}   ", style=_STYLES.get(status, "red"))
            if self._refusals:
                head.append(f"{self._refusals} refused   ", style="red")
            working = Grid(box=None, padding=(0, 2), show_header=False)
            for slot, (event, since_s) in sorted(self._slots.items()):
                # Leave out the seconds during timing: a redraw would disturb the measurement.
                seconds = "" if event.stage in STILL else f"{time.monotonic() - since_s:.0f} s"
                name = one_line(f"{event.task.problem.name}/{event.task.name}", 60, self._encoding)
                working.add_row(Text(str(slot), "dim"), Text(event.stage, "cyan"), Text(seconds), Text(name))
            last = [Text(one_line(line, 110, self._encoding), _STYLES[Status.CORRECT]) for line in self._last]
            return Group(head, working, *last)

    def _progress(self) -> str:
        finished = sum(self._counts.values()) + self._refusals
        graded, elapsed_s = self._hows["graded"] + self._hows["copied"], time.monotonic() - self._began_s
        text = f"{finished}/{self._total}" if self._total else str(finished)
        if graded and elapsed_s > 0:
            text += f"   {graded / elapsed_s * 60:.1f} a minute"
            if self._total and self._total > finished:
                text += f"   {(self._total - finished) * elapsed_s / graded / 60:.0f} min left"
        return text


@contextlib.contextmanager
def display_on(stream: TextIO, total: int | None, *, jsonl: TextIO | None = None) -> Iterator[Display]:
    """Choose the display for `stream`, and close the display at the end. JSON lines additionally go to `jsonl`."""
    from rich.console import Console

    console = Console(file=stream, highlight=False)
    if not stream.isatty() or console.is_dumb_terminal:
        lines = LineDisplay(stream, total)
        try:
            yield lines if jsonl is None else JsonLines(jsonl, lines)
        finally:
            lines.end()
        return
    table = TableDisplay(console, total)
    with table.live:
        try:
            yield table if jsonl is None else JsonLines(jsonl, table)
        finally:
            table.end()
