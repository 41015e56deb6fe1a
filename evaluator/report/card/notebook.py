"""Scorecard as HTML for a notebook: the screen of `warpgrade show`, with all text escaped."""

import io

from evaluator import records

_WIDTH = 100
_PRE = '<pre style="font-family:monospace;line-height:1.3;white-space:pre-wrap">{code}</pre>'


def html(card: records.Scorecard) -> str:
    """Return the screen of a card as HTML."""
    from rich.console import Console

    from evaluator.report.card.card_screen import render_card

    console = Console(file=io.StringIO(), record=True, width=_WIDTH, highlight=False, force_jupyter=False)
    render_card(card, console)
    return console.export_html(inline_styles=True, code_format=_PRE)
