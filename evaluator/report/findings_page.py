"""The page of all findings, `docs/findings.md`; `python -m evaluator.report.findings_page --write` regenerates it."""

import sys
from pathlib import Path

from evaluator.findings import ENTRIES

PAGE = Path(__file__).parents[2] / "docs" / "findings.md"
_HEAD = """# Findings

Everything the judge can notice, by code. `warpgrade explain CODE` prints one of them. This page is made from
`evaluator/findings/` (`python -m evaluator.report.findings_page --write`).

The letter says where: S the submission's text, B building it, R running it, C comparing its outputs, T timing,
I isolation, X this machine.
"""


def page() -> str:
    """Return the page.

    >>> "### S101" in page()
    True
    """
    entries = [
        f"### {code.value}\n\n**{entry.title}.** {entry.explanation}\n\n{entry.next_step}\n"
        for code, entry in ENTRIES.items()
    ]
    return "\n".join([_HEAD, *entries])


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m evaluator.report.findings_page --write")
    PAGE.write_text(page(), encoding="utf-8")
