"""The command line: it reads what was asked for, calls the evaluator, shows what comes back and sets the exit code."""

import traceback
from collections.abc import Sequence

import click

from evaluator.commands import grading, machine, problems, reference, results, terminal
from evaluator.errors import ExitCode, WarpgradeError
from evaluator.version import __version__

# The first character keeps click from filling the lines.
_EXIT_STATUS = """\b
Exit status:
  0    the submission is correct
  1    it is not, or no verdict was possible on this device
  2    the command, or a file that it was given, is wrong
  3    this machine failed; nothing is said about the submission
  130  interrupted
"""


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "WARPGRADE"}, epilog=_EXIT_STATUS
)
@click.version_option(__version__, prog_name="warpgrade", message="%(prog)s %(version)s")
def warpgrade() -> None:
    """Grade GPU kernels written against PyTorch references."""


for command in (
    *(grading.grade, grading.batch),
    *(results.report, results.compare, results.regrade, results.show_card, results.check_card),
    *(problems.problems, problems.new),
    *(machine.doctor, machine.cache),
    *(reference.explain, reference.schema),
):
    warpgrade.add_command(command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; give its exit code. `arguments` are the process's own where None."""
    try:
        code = warpgrade.main(arguments, prog_name="warpgrade", standalone_mode=False)
    except WarpgradeError as error:
        terminal.complain("error", error)
        return error.exit_code
    except click.Abort:
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return ExitCode.USAGE
    except Exception:  # noqa: BLE001 - Python's own exit code, 1, would read as a verdict
        traceback.print_exc()
        click.echo("error: this is a fault in Warpgrade; it says nothing about the submission", err=True)
        return ExitCode.INFRASTRUCTURE
    return int(code or ExitCode.CORRECT)


def main() -> None:
    """Run the command that the process was started with."""
    terminal.leave(run())


if __name__ == "__main__":
    main()
