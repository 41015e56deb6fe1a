"""What commands write: the product to stdout, the conversation to stderr."""

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from evaluator.errors import InfraError, WarpgradeError
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
    """Write to stdout. A reader that went away (`| head`) is no error, and changes no verdict.

    Raises InfraError where a disk is full.
    """
    if isinstance(content, str):
        encoding = sys.stdout.encoding or "ascii"
        content = content.encode(encoding, "backslashreplace").decode(encoding)
    try:
        click.echo(content, nl=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _write_no_more()
    except OSError as error:
        _write_no_more()
        hint = "make room where stdout goes; the scorecard of a grade is written all the same"
        raise InfraError(f"stdout cannot be written: {error.strerror or error}", hint=hint) from error


def _write_no_more() -> None:
    """Python flushes stdout once more when it ends; give it somewhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(what: str, error: WarpgradeError) -> None:
    """Say on stderr what is wrong and what to do about it."""
    encoding = sys.stderr.encoding or "ascii"
    click.echo(f"{click.style(what, fg='red', bold=True)}: {printable(error.message, encoding)}", err=True)
    if error.hint:
        click.echo(f"  hint: {printable(error.hint, encoding)}", err=True)


def leave(code: int) -> NoReturn:
    """End the process with that exit code; at once where torch is loaded.

    Python would take it apart piece by piece, and CUDA its context, which the kernel does anyway: after a grade on an
    H200 0.48 s, and 0.13 s like this. By now every process is dead, every file written, and `emit` has flushed stdout.
    """
    if "torch" not in sys.modules:
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)
