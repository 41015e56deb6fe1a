"""What commands write: the product to stdout, the conversation to stderr."""

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from evaluator.errors import WarpgradeError
from evaluator.records import Scorecard
from evaluator.report.text import printable

if TYPE_CHECKING:
    from rich.console import Console


def show_card(card: Scorecard, written_to: Path | None, *, with_samples: bool = False) -> None:
    """Draw a scorecard on stdout; `written_to` is where it lies, if it could be written."""
    from evaluator.report.terminal import render_card

    show(lambda console: render_card(card, console, written_to, with_samples=with_samples))


def show(render: "Callable[[Console], None]") -> None:
    """Draw on stdout. It is drawn in memory first, so that a closed pipe cannot cut into it."""
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False)
    with console.capture() as drawn:
        render(console)
    emit(drawn.get())


def json_text(value: Any) -> bytes:
    """Write a record, or what msgspec can write, as JSON for people and programs."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def emit(content: str | bytes) -> None:
    """Write to stdout. A reader that went away (`| head`) is no error, and changes no verdict."""
    if isinstance(content, str):
        encoding = sys.stdout.encoding or "ascii"
        content = content.encode(encoding, "backslashreplace").decode(encoding)
    try:
        click.echo(content, nl=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more when it ends; give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(what: str, error: WarpgradeError) -> None:
    """Say on stderr what is wrong and what to do about it."""
    encoding = sys.stderr.encoding or "ascii"
    click.echo(f"{click.style(what, fg='red', bold=True)}: {printable(error.message, encoding)}", err=True)
    if error.hint:
        click.echo(f"  hint: {printable(error.hint, encoding)}", err=True)


def leave(code: int) -> NoReturn:
    """End the process with that exit code; at once where it has a context on a GPU.

    Python and CUDA would take half a second to take everything apart, which the kernel does anyway (measured: 0.48 s,
    and 0.13 s like this).
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    sys.exit(code)  # Where a stream cannot be flushed, Python says so.
