"""Catalog of problems. No code of a problem is run: references are read with `ast`, and torch is never imported."""

from evaluator.catalog.find import (
    OWN_PROBLEMS,
    WHAT_COUNTS,
    Listing,
    find_listed,
    find_problem,
    list_problems,
    names_of,
    natural,
    nearest_names,
    not_found,
)
from evaluator.catalog.reference import sized_source
from evaluator.catalog.text import Origin

__all__ = [
    "OWN_PROBLEMS",
    "WHAT_COUNTS",
    "Listing",
    "Origin",
    "find_listed",
    "find_problem",
    "list_problems",
    "names_of",
    "natural",
    "nearest_names",
    "not_found",
    "sized_source",
]
