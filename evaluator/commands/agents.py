"""The command mcp."""

from pathlib import Path
from typing import Any

import click

from evaluator.commands import terminal
from evaluator.commands.options import grading_options, taken_options


@click.command(short_help="Serve tools for agents by the Model Context Protocol.")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder below which the agent may name files to grade.  [default: the agent sends text]",
)
@grading_options
def mcp(*, root: Path | None, **arguments: Any) -> None:
    """Serve the tools grade, explain, problems, profile and compare to an agent, until stdin closes.

    The options hold for all grades. The agent chooses problem, submission and, without --size, the size. Needs: pip
    install 'warpgrade[mcp]'
    """
    from evaluator.agents.server import serve

    notice = "serving the Model Context Protocol on stdin and stdout, for the client that started this command"
    serve(taken_options(arguments), root, lambda: terminal.tell(notice))
