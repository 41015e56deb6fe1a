"""The closed set of things the judge can notice, each with a code, a title, what it means and the next step.

`warpgrade explain CODE` prints an entry; `docs/findings.md` is made from this table, and a test holds it to that.
S: the submission's text. B: building it. R: running it. C: comparing its outputs. T: timing. I: isolation.
X: this machine. Each letter's entries are in a module of their own.
"""

from evaluator.findings.codes import Code, Entry
from evaluator.findings.table import ENTRIES, finding

__all__ = ["ENTRIES", "Code", "Entry", "finding"]
