"""The command line: parses arguments, calls the evaluator, shows the result and sets the exit code."""

import contextlib
import importlib
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from evaluator.commands import terminal
from evaluator.errors import ExitCode, UsageError, WarpgradeError
from evaluator.signatures.keys import take_from_environment
from evaluator.version import __version__

# The first character prevents click from re-wrapping.
_EXIT_STATUS = """\b
Exit status of grade and batch:
  0    every submission is correct
  1    a submission is not correct, or its grade allows no verdict
  2    the command or one of its files is invalid
  3    this machine failed; no verdict on a submission
  130  interrupted
"""


_MODULES = {
    "grading": ("grade", "batch"),
    "sweep": ("sweep",),
    "serving": ("serve", "token", "mcp"),
    "results": ("report", "view", "compare", "show"),
    "signatures": ("check-card", "keygen"),
    "problems": ("problems", "new"),
    "machine": ("doctor", "cache", "explain", "schema", "completion"),
}
"""Commands of each module of this folder. A module is imported when a command of the module is used, or listed."""


class _CommandTable(MutableMapping[str, click.Command]):
    """Commands by name, imported at the first use: all imports together would delay each grade."""

    def __init__(self) -> None:
        self._modules = {name: module for module, names in _MODULES.items() for name in names}
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            module = importlib.import_module(f"evaluator.commands.{self._modules[name]}")
            commands = [value for value in vars(module).values() if isinstance(value, click.Command)]
            self._loaded[name] = next(command for command in commands if command.name == name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._modules[name], self._loaded[name] = "", command

    def __delitem__(self, name: str) -> None:
        del self._modules[name]
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class _Surprise(Exception):
    """An OSError unexpected by every command. Without this wrapper click would exit by itself on a closed pipe."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


_OPTIONS_AS_WORDS = {"help": "--help", "version": "--version"}


class _Commands(click.Group):
    """The command group. `run` handles OSError, and Ctrl-C is reported even with a closed stderr."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before the command. `help` and `version` mean the options."""
        if args and args[0] in _OPTIONS_AS_WORDS:
            args = [*args[1:], _OPTIONS_AS_WORDS[args[0]]]
        return super().parse_args(ctx, args)

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
    commands=_CommandTable(),
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "WARPGRADE"},
    epilog=_EXIT_STATUS,
)
@click.version_option(__version__, prog_name="warpgrade", message="%(prog)s %(version)s")
@click.option(
    "--no-config", is_flag=True, show_envvar=True, help="Read no options from [tool.warpgrade] in pyproject.toml."
)
def warpgrade(*, no_config: bool) -> None:
    """Grade GPU kernels written against PyTorch references."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code. `arguments` default to `sys.argv`."""
    take_from_environment()
    return guarded(lambda: warpgrade.main(arguments, prog_name="warpgrade", standalone_mode=False))


def guarded(command: Callable[[], int | None]) -> int:
    """Run `command` and return the exit code; an exception is a message on stderr and an exit code."""
    try:
        code = command()
    except WarpgradeError as error:
        terminal.complain("error", error)
        return error.exit_code
    except click.Abort:
        terminal.tell("interrupted")
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        _tell_of_usage(error)
        return ExitCode.USAGE
    except Exception as error:  # noqa: BLE001 - Python's own exit code, 1, would read as a verdict
        import traceback

        surprise = error.error if isinstance(error, _Surprise) else error
        if isinstance(surprise, OSError) and terminal.came_of_writing(surprise):
            return _end_without_stdout(surprise)
        terminal.tell("".join(traceback.format_exception(surprise)).rstrip("\n"))
        terminal.tell("error: this is a fault in Warpgrade, not a verdict on the submission")
        return ExitCode.INFRASTRUCTURE
    return int(code or ExitCode.CORRECT)


def _tell_of_usage(error: click.ClickException) -> None:
    """Report an error of the command line in the form of all errors; a group without a command shows its help."""
    if isinstance(error, NoArgsIsHelpError):
        terminal.tell(error.format_message())
        return
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    hint = "" if ctx is None else f"`{ctx.command_path} --help` shows arguments and options"
    terminal.complain("error", UsageError(error.format_message(), hint=hint))


def _end_without_stdout(error: OSError) -> int:
    """Report why stdout is not writable. A closed reader of --help (`| head`) is no error."""
    fault = terminal.unwritten(error)
    if fault is None:
        return ExitCode.CORRECT
    terminal.complain("error", fault)
    return fault.exit_code


def main() -> None:
    """Run the command of this process."""
    terminal.open_closed()
    terminal.leave(run())
