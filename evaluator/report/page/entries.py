"""Rows of a run's page, and the best submission to each problem. Pure."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import quote

from evaluator.records import Status
from evaluator.report.page.detail import Detail
from evaluator.text import one_line, ratio, significant

LONGEST_NAME = 200
_LONGEST_FRAGMENT = 300


class PageEntry(NamedTuple):
    """One submission's row. `status` is `missing` without a card. A refused input may have no problem and no level.

    `made` changes with the card: an open page keeps the rows of unchanged cards.
    """

    problem: str
    level: int | None
    name: str
    status: str
    reason: str
    speedup: float | None
    wall_s: float
    detail: Detail | None
    speedup_low: float | None = None
    speedup_high: float | None = None
    made: str = ""
    mixes_kinds: bool = False

    @property
    def fragment(self) -> str:
        """Fragment of a link to the submission: equal in all pages of the run."""
        return fragment("s", self.problem, self.name)

    @property
    def speedup_text(self) -> str:
        """The speedup with the interval, and a remark about windows against single calls; empty without a speedup."""
        if self.speedup is None:
            return ""
        low, high = self.speedup_low, self.speedup_high
        between = "" if low is None or high is None else f" ({ratio(low)}x to {ratio(high)}x)"
        return f"{ratio(self.speedup)}x{between}{', windows against single calls' if self.mixes_kinds else ''}"

    @property
    def problem_fragment(self) -> str:
        """Fragment of a link to the problem."""
        return fragment("p", self.problem)

    @property
    def is_correct(self) -> bool:
        """Whether the submission is correct."""
        return self.status == Status.CORRECT.value


class Best(NamedTuple):
    """A problem with the fastest correct submission; None if no submission is correct."""

    problem: str
    samples: int
    correct: int
    entry: PageEntry | None

    @property
    def fragment(self) -> str:
        """Fragment of a link to the problem."""
        return fragment("p", self.problem)

    @property
    def interval(self) -> str:
        """The speedup of the best submission, with the interval."""
        return "" if self.entry is None else self.entry.speedup_text


def fragment(kind: str, problem: str, name: str | None = None) -> str:
    """Return the fragment of a link. A long name ends with a hash, because fragments are unique.

    >>> fragment("s", "level1/relu", "a <b>/c")
    's/level1/relu/a%20%3Cb%3E%2Fc'
    """
    quoted = quote(problem, errors="replace")
    if name is not None:
        quoted += f"/{quote(name, safe='', errors='replace')}"
    if len(quoted) > _LONGEST_FRAGMENT:
        digest = hashlib.sha256(f"{problem}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()
        quoted = f"{quoted[:_LONGEST_FRAGMENT]}-{digest[:16]}"
    return f"{kind}/{quoted}"


def times(factor: float) -> str:
    """Format a speedup.

    >>> times(2.5)
    '2.50x'
    """
    return f"{significant(factor)}x"


def shown_name(name: str) -> str:
    """Return a name of a problem or submission as the page shows it."""
    return one_line(name, LONGEST_NAME)


def best_by_problem(entries: Iterable[PageEntry]) -> list[Best]:
    """Return the best submission to each problem, in the order of the problems' first entries.

    The best has the largest speedup; without any speedup, the first correct submission is the best.
    """
    by_problem: dict[str, list[PageEntry]] = {}
    for entry in (entry for entry in entries if entry.level is not None):
        by_problem.setdefault(entry.problem, []).append(entry)
    return [_best(problem, group) for problem, group in by_problem.items()]


def _best(problem: str, entries: Sequence[PageEntry]) -> Best:
    correct = [entry for entry in entries if entry.is_correct]
    fastest = max(correct, key=lambda entry: entry.speedup or 0.0, default=None)
    return Best(problem, len(entries), len(correct), fastest)
