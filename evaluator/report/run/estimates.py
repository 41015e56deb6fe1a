"""Estimates as text and as documents."""

from typing import Any

from evaluator.report.run.intervals import Estimate
from evaluator.text import significant

NOTHING = "-"


def estimate_document(value: Estimate | None) -> dict[str, float | None] | None:
    """Return the document of an estimate, or of its absence."""
    return None if value is None else value._asdict()


def percent(value: Estimate | None) -> str:
    """Format a share, or its absence."""
    return NOTHING if value is None else percentage(value.value)


def percentage(value: float) -> str:
    """Format a share as a percentage."""
    return f"{value * 100:.1f} %"


def factor(value: float) -> str:
    """Format a ratio."""
    return f"{significant(value)}x"


def between(value: Estimate | None, spell: Any) -> str:
    """Format an interval by `spell`; an unbounded interval as nothing."""
    if value is None or value.low is None or value.high is None:
        return NOTHING
    return f"{spell(value.low)} to {spell(value.high)}"
