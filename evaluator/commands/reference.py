"""Commands that print reference text: findings by code, schemas by name."""

import click

from evaluator.commands import terminal
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
@click.argument("code", required=False)
def explain(*, code: str | None) -> None:
    """Explain the finding CODE, or list all codes."""
    if code is None:
        terminal.emit("".join(f"{each.value}  {entry.title}\n" for each, entry in ENTRIES.items()))
        return
    wanted = code_named(code, listing="`warpgrade explain` lists all codes")
    entry = ENTRIES[wanted]
    paragraphs = [f"{wanted.value}: {entry.title}", entry.meaning, f"Next: {entry.next_step}"]
    terminal.emit("\n\n".join(click.wrap_text(paragraph, width=80) for paragraph in paragraphs) + "\n")
