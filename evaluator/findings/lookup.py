"""Lookup of finding codes as people and models write them."""

import difflib

from evaluator.errors import UsageError
from evaluator.findings.codes import Code
from evaluator.text import one_line


def code_named(text: str, *, listing: str) -> Code:
    """Return the code that `text` names, in any case.

    Raises:
        UsageError: there is no such code; the hint has similar codes, or else says where a `listing` is.

    >>> code_named("c405", listing="").value
    'C405'
    """
    try:
        return Code(text.upper())
    except ValueError as error:
        near = difflib.get_close_matches(text.upper()[:40], [each.value for each in Code], n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else listing
        raise UsageError(f"unknown finding code {one_line(text, 40)!r}", hint=hint) from error
