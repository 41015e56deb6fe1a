"""Closed set of the judge's findings: each code has statuses, a title, an explanation and a next step.

`warpgrade explain CODE` prints an entry. `docs/findings.md` is generated from the table, and a test compares the two.
The letter of a code selects the module of its entry: S the submission's text, B building, R running, C comparing
outputs, T timing, I isolation, X this machine.
"""

from evaluator.findings.codes import Code, Trait
from evaluator.findings.table import ENTRIES, entry_of, finding, has_trait

__all__ = ["ENTRIES", "Code", "Trait", "entry_of", "finding", "has_trait"]
