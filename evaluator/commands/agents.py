"""The command mcp."""

from typing import Any

import click

from evaluator.commands import terminal
from evaluator.commands.options import grading_options, taken_options


@click.command(short_help="Serve tools for agents by the Model Context Protocol.")
@grading_options
def mcp(**named: Any) -> None:
    """Serve the tools grade, explain, problems, profile and compare to an agent, until stdin closes.

    The options hold for all grades. The agent chooses problem and submission only. Needs: pip install 'warpgrade[mcp]'
    """
    from evaluator.agents.server import serve

    started = "serving the Model Context Protocol on stdin and stdout, for the client that started this command"
    serve(taken_options(named), lambda: terminal.tell(started))
