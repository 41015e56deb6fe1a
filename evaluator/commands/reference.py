"""Commands that print reference text: findings by code, schemas by name, options in force, completion scripts."""

import shutil
import sys
import textwrap

import click

from evaluator.commands import terminal
from evaluator.commands.options import complete_code, json_option
from evaluator.commands.shell.configured import Setting, file_for, settings
from evaluator.findings import ENTRIES
from evaluator.findings.lookup import code_named
from evaluator.text import NO_WIDTH, printable

SCHEMAS = ["scorecard", "problem", "run"]
"""Values of evaluator.schema.SchemaName, without importing the module for a help text; a test compares the two."""


@click.command()
@click.argument("name", type=click.Choice(SCHEMAS))
def schema(*, name: str) -> None:
    """Print the JSON Schema of a document."""
    from evaluator.schema import SchemaName, schema_bytes

    terminal.emit(schema_bytes(SchemaName(name)))


@click.command()
@click.argument("code", required=False, shell_complete=complete_code)
def explain(*, code: str | None) -> None:
    """Explain the finding CODE, or list all codes."""
    if code is None:
        terminal.emit("".join(f"{each.value}  {entry.title}\n" for each, entry in ENTRIES.items()))
        return
    wanted = code_named(code, listing="`warpgrade explain` lists all codes")
    entry = ENTRIES[wanted]
    paragraphs = [f"{wanted.value}: {entry.title}", entry.meaning, f"Next: {entry.next_step}"]
    terminal.emit("\n\n".join(click.wrap_text(paragraph, width=80) for paragraph in paragraphs) + "\n")


_BEYOND_LIMITS = """\
Beyond timeout or build-timeout, the verdict is timeout. Beyond deadline, all
processes of the grade are killed: timeout, or infra_error if the submission
took less than half of the time.
"""


@click.group()
def config() -> None:
    """Show options and their sources."""


@config.command("show", short_help="Show options and their sources.")
@json_option
@click.pass_context
def show_config(ctx: click.Context, *, as_json: bool) -> None:
    """Show the options of `grade` and `batch` with their values and sources.

    A value on the command line takes precedence over a variable, a variable over [tool.warpgrade] in the nearest
    pyproject.toml, and the file over the default.
    """
    root = ctx.find_root()
    commands = root.command.commands if isinstance(root.command, click.Group) else {}
    file = file_for(root)
    found = {name: list(settings(commands[name], root, file)) for name in ("grade", "batch")}
    if as_json:
        document = {
            name: [{"option": each.option, "source": each.source, "value": each.value} for each in settings]
            for name, settings in found.items()
        }
        terminal.emit(terminal.json_text({"file": None if file is None else str(file.path)} | document))
        return
    where = "no pyproject.toml with [tool.warpgrade] here or above" if file is None else printable(str(file.path))
    tables = [_settings_text(name, each) for name, each in found.items()]
    terminal.emit("\n".join([f"{where}\n", *tables, _BEYOND_LIMITS]))


def _settings_text(command: str, found: list[Setting]) -> str:
    widths = [max(len(row[column]) for row in found) for column in (0, 1)]
    indent = sum(widths) + 6
    room = max(shutil.get_terminal_size().columns - indent, 20) if sys.stdout.isatty() else NO_WIDTH
    lines = []
    for each in found:
        value = textwrap.fill(printable(each.text), room).replace("\n", "\n" + " " * indent)
        lines.append(f"  {each.option:<{widths[0]}}  {each.source:<{widths[1]}}  {value}\n")
    return f"{command}\n{''.join(lines)}"


_COMPLETION_EPILOG = """\b
Use:
  bash  eval "$(warpgrade completion bash)"  in ~/.bashrc
  zsh   eval "$(warpgrade completion zsh)"   in ~/.zshrc, after compinit
  fish  warpgrade completion fish | source   in ~/.config/fish/config.fish
"""


@click.command(epilog=_COMPLETION_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str) -> None:
    """Print the completion script for a shell."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - for the type checker: click has all three
    root = click.get_current_context().find_root()
    terminal.emit(kind(root.command, {}, "warpgrade", "_WARPGRADE_COMPLETE").source())
