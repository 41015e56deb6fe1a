"""The command line: reads the arguments, calls the evaluator, shows the result and sets the exit code."""

import contextlib
import io
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import click

from evaluator.commands import grading, machine, problems, reference, results, signatures, streams, terminal
from evaluator.errors import ExitCode, WarpgradeError
from evaluator.signatures.keys import take_from_environment
from evaluator.version import __version__

# The first character keeps click from filling the lines.
_EXIT_STATUS = """\b
Exit status:
  0    the submission is correct
  1    the submission is not correct, or this device allows no verdict
  2    the command or one of its files is invalid
  3    this machine failed; no verdict on the submission
  130  interrupted
"""


class _Surprise(Exception):
    """An error of the system's that no command expects. click would end by itself where a pipe was closed."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class _Commands(click.Group):
    """The commands, with errors of the system's left to `run`, and Ctrl-C told where stderr is closed too."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with _left_to_run():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _left_to_run():
            return super().invoke(ctx)


@contextlib.contextmanager
def _left_to_run() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _Surprise(error) from error
    except (EOFError, KeyboardInterrupt) as error:
        raise click.Abort from error


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "WARPGRADE"},
    epilog=_EXIT_STATUS,
)
@click.version_option(__version__, prog_name="warpgrade", message="%(prog)s %(version)s")
def warpgrade() -> None:
    """Grade GPU kernels written against PyTorch references."""


for command in (
    *(grading.grade, grading.batch),
    *(results.report, results.compare, results.regrade, results.show_card),
    *(signatures.check_card, signatures.keygen),
    *(problems.problems, problems.new),
    *(machine.doctor, machine.cache),
    *(reference.explain, reference.schema),
):
    warpgrade.add_command(command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; give its exit code. `arguments` are the process's own where None."""
    take_from_environment()
    try:
        code = warpgrade.main(arguments, prog_name="warpgrade", standalone_mode=False)
    except WarpgradeError as error:
        terminal.complain("error", error)
        return error.exit_code
    except click.Abort:
        terminal.tell("interrupted")
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        said = io.StringIO()
        error.show(said)
        terminal.tell(said.getvalue().rstrip("\n"))
        return ExitCode.USAGE
    except Exception as error:  # noqa: BLE001 - Python's own exit code, 1, would read as a verdict
        surprise = error.error if isinstance(error, _Surprise) else error
        if isinstance(surprise, OSError) and terminal.came_of_writing(surprise):
            return _end_without_stdout(surprise)
        terminal.tell("".join(traceback.format_exception(surprise)).rstrip("\n"))
        terminal.tell("error: this is a fault in Warpgrade, not a verdict on the submission")
        return ExitCode.INFRASTRUCTURE
    return int(code or ExitCode.CORRECT)


def _end_without_stdout(error: OSError) -> int:
    """Say why stdout could not be written; a reader of --help that went away (`| head`) is no error."""
    fault = terminal.unwritten(error)
    if fault is None:
        return ExitCode.CORRECT
    terminal.complain("error", fault)
    return fault.exit_code


def main() -> None:
    """Run the command that the process was started with."""
    streams.open_closed()
    terminal.leave(run())
