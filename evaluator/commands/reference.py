"""Commands that print reference text: findings by code, schemas by name, completion scripts."""

import click

from evaluator.commands import terminal
from evaluator.commands.options import complete_code
from evaluator.findings import ENTRIES
from evaluator.findings.lookup import code_named

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
        terminal.emit("".join(f"{listed_code.value}  {entry.title}\n" for listed_code, entry in ENTRIES.items()))
        return
    known_code = code_named(code, listing="`warpgrade explain` lists all codes")
    entry = ENTRIES[known_code]
    paragraphs = [f"{known_code.value}: {entry.title}", entry.explanation, f"Next: {entry.next_step}"]
    terminal.emit("\n\n".join(click.wrap_text(paragraph, width=80) for paragraph in paragraphs) + "\n")


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
