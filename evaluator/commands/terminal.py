"""What commands write: the product to stdout, the conversation to stderr."""

import io
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from evaluator.commands.streams import coloured, is_forced, lose
from evaluator.errors import InfraError, WarpgradeError
from evaluator.records import Scorecard
from evaluator.report.text import NO_WIDTH, printable

if TYPE_CHECKING:
    from rich.console import Console


def show_card(card: Scorecard, written_to: Path | None, *, with_samples: bool = False) -> None:
    """Draw a scorecard on stdout; `written_to` is where it lies, if it could be written."""
    from evaluator.report.terminal import render_card

    show(lambda console: render_card(card, console, written_to, with_samples=with_samples))


def show(render: "Callable[[Console], None]") -> None:
    """Draw on stdout. It is drawn in memory first, so that a closed pipe cannot cut into it."""
    drawn = _Drawn()
    render(_console(drawn))
    emit(drawn.getvalue())


class _Drawn(io.StringIO):
    """Keeps what is drawn for stdout, in characters that stdout has."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return sys.stdout.encoding or "ascii"


def _console(drawn: _Drawn) -> "Console":
    """Make a console as stdout is one. What is piped has no width, unless COLUMNS gives it one."""
    from rich.console import Console

    on_terminal = sys.stdout.isatty()
    return Console(
        file=drawn,
        highlight=False,
        width=None if on_terminal or os.environ.get("COLUMNS", "").isdecimal() else NO_WIDTH,
        force_terminal=on_terminal or is_forced(),
        color_system="standard" if is_forced() else "auto",
        no_color=not coloured(sys.stdout),
        legacy_windows=False,
    )


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
        click.echo(content, nl=False, color=True)  # It is coloured where it was to be; nothing is taken out again.
        sys.stdout.flush()
    except OSError as error:
        if (fault := unwritten(error)) is not None:
            raise fault from error


def unwritten(error: OSError) -> InfraError | None:
    """Say what it means that stdout could not be written: nothing where its reader went away. It is lost from here."""
    lose(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return None
    hint = "free space where stdout leads; a grade's scorecard is written anyway"
    return InfraError(f"cannot write to stdout: {error.strerror or error}", hint=hint)


def came_of_writing(error: OSError) -> bool:
    """Say whether `error` comes of what click itself wrote to stdout: --help, --version."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code is click.echo.__code__ for frame, _ in frames)


def tell(text: str) -> None:
    """Write a line to stderr. Where that cannot be written, the command goes on and ends as it would have."""
    encoding = sys.stderr.encoding or "ascii"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    try:
        click.echo(text, err=True, color=coloured(sys.stderr))
    except OSError:
        lose(sys.stderr)


def complain(what: str, error: WarpgradeError) -> None:
    """Say on stderr what is wrong and what to do about it."""
    encoding = sys.stderr.encoding or "ascii"
    tell(f"{click.style(what, fg='red', bold=True)}: {printable(error.message, encoding)}")
    if error.hint:
        tell(f"  hint: {printable(error.hint, encoding)}")


def leave(code: int) -> NoReturn:
    """End the process with that exit code; at once where torch is loaded.

    Python would take it apart piece by piece, and CUDA its context, which the kernel does anyway: after a grade on an
    H200 0.48 s, and 0.13 s like this. By now every process is dead, every file written, and `emit` has flushed stdout.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            lose(stream)  # Else Python would try again, and end with a code of its own.
    if (builds := sys.modules.get("evaluator.build.spill")) is not None:
        builds.remove()
    if "torch" not in sys.modules:
        sys.exit(code)
    os._exit(code)
