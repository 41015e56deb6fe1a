"""Output of commands: results on stdout, messages on stderr."""

import contextlib
import io
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

import click
import msgspec

from evaluator.errors import InfraError, WarpgradeError
from evaluator.records import Scorecard
from evaluator.report.layout.quotation import disarmed, disarmed_json
from evaluator.text import NO_WIDTH, printable

if TYPE_CHECKING:
    from rich.console import Console

NAMES = ("stdin", "stdout", "stderr")
_MODES = ("r", "w", "w")


def open_closed() -> None:
    """Open closed standard streams on /dev/null.

    Otherwise the next file, socket or pipe would get the number of a closed stream, and receive text for users. Python
    represents a closed stream as None.
    """
    for number, (name, mode) in enumerate(zip(NAMES, _MODES, strict=True)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - the lowest number, which is this
        if getattr(sys, name) is None:
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - the process's own
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def lose(stream: TextIO) -> None:
    """Redirect `stream` to /dev/null: Python flushes the stream again at exit."""
    with contextlib.suppress(OSError, ValueError):
        number = os.open(os.devnull, os.O_WRONLY)
        os.dup2(number, stream.fileno())
        os.close(number)
        stream.flush()


def coloured(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether text on `stream` is coloured: on a capable terminal, unless the environment decides otherwise.

    NO_COLOR takes precedence; FORCE_COLOR and CLICOLOR_FORCE also colour pipes; CLICOLOR=0 and TERM=dumb disable
    colours.
    """
    if environment.get("NO_COLOR"):
        return False
    if is_forced(environment):
        return True
    if environment.get("CLICOLOR") == "0" or environment.get("TERM") == "dumb":
        return False
    return stream.isatty()


def is_forced(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment forces colours on any stream."""
    forced = any(environment.get(name, "") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE"))
    return forced and not environment.get("NO_COLOR")


def in_workflow(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the process is a step of a workflow of GitHub Actions."""
    return environment.get("GITHUB_ACTIONS") == "true"


class _Harmless:
    """Stream without workflow commands in its text. Each line, or each document of JSON, is one `write`."""

    def __init__(self, stream: TextIO, *, is_json: bool) -> None:
        self._stream = stream
        self._is_json = is_json

    def write(self, text: str) -> int:
        return self._stream.write(disarmed_json(text.encode()).decode() if self._is_json else disarmed(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def harmless(stream: TextIO, *, is_json: bool = False) -> TextIO:
    """Return `stream`; in a workflow, a stream that removes workflow commands from submissions' text."""
    return cast("TextIO", _Harmless(stream, is_json=is_json)) if in_workflow() else stream


def show_card(card: Scorecard, written_to: Path | None, *, with_samples: bool = False) -> None:
    """Draw a scorecard on stdout; `written_to` is the scorecard's file, if written."""
    from evaluator.report.card.card_screen import render_card

    show(lambda console: render_card(card, console, written_to, with_samples=with_samples))


def import_card_screen() -> None:
    """Import the modules of `show_card`: 25 ms, which pass while another process grades."""
    import evaluator.report.card.card_screen  # noqa: F401


def show(render: "Callable[[Console], None]") -> None:
    """Draw on stdout. The drawing is buffered in memory, so a closed pipe cannot truncate it."""
    buffer = _OutputBuffer()
    render(_console(buffer))
    emit(buffer.getvalue())


class _OutputBuffer(io.StringIO):
    @property
    def encoding(self) -> str:  # type: ignore[override]
        return sys.stdout.encoding or "ascii"


def _console(buffer: _OutputBuffer) -> "Console":
    """Return a console with stdout's properties. A pipe has no width, unless COLUMNS sets one."""
    from rich.console import Console

    on_terminal = sys.stdout.isatty()
    return Console(
        file=buffer,
        highlight=False,
        width=None if on_terminal or os.environ.get("COLUMNS", "").isdecimal() else NO_WIDTH,
        force_terminal=on_terminal or is_forced(),
        color_system="standard" if is_forced() else "auto",
        no_color=not coloured(sys.stdout),
        legacy_windows=False,
    )


def json_text(value: Any) -> bytes:
    """Return a record, or any value that msgspec encodes, as indented JSON."""
    return indented(msgspec.json.encode(value))


def indented(encoded: bytes) -> bytes:
    """Return JSON with indentation."""
    return msgspec.json.format(encoded, indent=2) + b"\n"


def emit(content: str | bytes, *, commands: bool = False) -> None:
    """Write text, or JSON as bytes, to stdout. A closed reader (`| head`) is no error and changes no verdict.

    In a workflow of GitHub Actions, the content has no workflow commands unless it consists of `commands`.

    Raises:
        InfraError: the disk is full.
    """
    if in_workflow() and not commands:
        content = disarmed(content) if isinstance(content, str) else disarmed_json(content)
    if isinstance(content, str):
        encoding = sys.stdout.encoding or "ascii"
        content = content.encode(encoding, "backslashreplace").decode(encoding)
    try:
        click.echo(content, nl=False, color=True)  # The text has its colours already; keep them.
        sys.stdout.flush()
    except OSError as error:
        if (fault := unwritten(error)) is not None:
            raise fault from error


def unwritten(error: OSError) -> InfraError | None:
    """Return the error for a failed write to stdout: None for a closed reader. Redirect stdout to /dev/null."""
    lose(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return None
    hint = "free space where stdout leads; a grade's scorecard is written anyway"
    return InfraError(f"cannot write to stdout: {error.strerror or error}", hint=hint)


def came_of_writing(error: OSError) -> bool:
    """Whether click itself caused `error` while writing --help or --version to stdout."""
    import traceback

    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code is click.echo.__code__ for frame, _ in frames)


def tell(text: str) -> None:
    """Write a line to stderr. If stderr is not writable, the command continues."""
    _to_stderr((disarmed(text) if in_workflow() else text) + "\n")


def send_commands(lines: str) -> None:
    """Write workflow commands to stderr. The runner of a workflow reads both streams."""
    _to_stderr(lines)


def _to_stderr(text: str) -> None:
    encoding = sys.stderr.encoding or "ascii"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    try:
        click.echo(text, nl=False, err=True, color=coloured(sys.stderr))
    except OSError:
        lose(sys.stderr)


def complain(label: str, error: WarpgradeError) -> None:
    """Print an error and the hint on stderr."""
    encoding = sys.stderr.encoding or "ascii"
    tell(f"{click.style(label, fg='red', bold=True)}: {printable(error.message, encoding)}")
    if error.hint:
        tell(_wrapped(f"  hint: {printable(error.hint, encoding)}", indent=8))


def _wrapped(line: str, *, indent: int) -> str:
    """Return a line in the width of the terminal on stderr, if stderr is one. Words stay whole."""
    if not sys.stderr.isatty():
        return line
    room, space = shutil.get_terminal_size().columns, " " * indent
    return textwrap.fill(line, room, subsequent_indent=space, break_long_words=False, break_on_hyphens=False)


def leave(code: int) -> NoReturn:
    """Exit with `code`; immediately if torch is loaded.

    An orderly exit destroys Python's objects and the CUDA context, which the kernel does anyway: 0.48 s after a grade
    on an H200, against 0.13 s. All processes are dead, all files are written, and `emit` has flushed stdout.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            lose(stream)  # Otherwise Python would flush again and change the exit code.
    if (builds := sys.modules.get("evaluator.cache.build_cache")) is not None:
        builds.remove()
    if "torch" not in sys.modules:
        sys.exit(code)
    os._exit(code)
