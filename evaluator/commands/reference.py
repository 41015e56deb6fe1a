"""Commands that print reference text: findings by code, schemas by name."""

import difflib

import click

from evaluator.commands import terminal
from evaluator.errors import UsageError
from evaluator.findings import ENTRIES, Code
from evaluator.report.layout.text import one_line

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
    try:
        wanted = Code(code.upper())
    except ValueError as error:
        near = difflib.get_close_matches(code.upper(), [each.value for each in Code], n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`warpgrade explain` lists all codes"
        raise UsageError(f"unknown finding code {one_line(code, 40)!r}", hint=hint) from error
    entry = ENTRIES[wanted]
    paragraphs = [f"{wanted.value}: {entry.title}", entry.meaning, f"Next: {entry.next_step}"]
    terminal.emit("\n\n".join(click.wrap_text(paragraph, width=80) for paragraph in paragraphs) + "\n")
