"""Problems of submissions, by name or as text: a service reads any number of different texts."""

import reprlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from evaluator.catalog import Origin, list_problems, names_of, nearest_names, not_found
from evaluator.catalog.kernelbench import WHERE, looks_like_one
from evaluator.catalog.kernelbench import read_text as read_problem_text
from evaluator.catalog.text import did_you_mean
from evaluator.errors import ProblemError, UsageError
from evaluator.records import CaseName, Problem, SizeName
from evaluator.sandbox.visible_files import refuse_readable
from evaluator.sizes.cases import missing_case, sought_sizes
from evaluator.sizes.found_sizes import NO_SMALL, with_sizes
from evaluator.text import one_line

MOST_TEXTS = 64
MOST_CHARACTERS = 16 << 20
"""Limit of the length of all stored texts together."""


class ProblemText(NamedTuple):
    """A problem as text in KernelBench's form: `Model`, `get_inputs` and `get_init_inputs`. `name` names its cards.

    The text is a program of the caller, which the judge runs: never the text of a submission.
    """

    source: str
    name: str = "problem"

    def __repr__(self) -> str:
        return f"ProblemText({reprlib.repr(self.source)}, name={reprlib.repr(self.name)})"


class RecentProblems:
    """Results by text; the least recently used results make room. Thread-safe.

    Two threads with the same new text may both read the text; the results are equal.
    """

    def __init__(self) -> None:
        self._results: OrderedDict[ProblemText, Problem | str] = OrderedDict()
        self._characters = 0
        self._changing = threading.Lock()

    def __len__(self) -> int:
        return len(self._results)

    def get(self, text: ProblemText, read: Callable[[], Problem | str]) -> Problem | str:
        """Return the result of a text, from `read` if the text is new. Errors of `read` are not stored."""
        with self._changing:
            if text in self._results:
                self._results.move_to_end(text)
                return self._results[text]
        result = read()
        with self._changing:
            if text not in self._results:
                self._results[text] = result
                self._characters += len(text.source)
            while self._results and (len(self._results) > MOST_TEXTS or self._characters > MOST_CHARACTERS):
                dropped, _ = self._results.popitem(last=False)
                self._characters -= len(dropped.source)
        return result


class Problems:
    """Problems that submissions may name. A name from a stream of submissions is never used as a path."""

    def __init__(
        self,
        folder: Path | None,
        sizes: Sequence[CaseName],
        only: Sequence[str] = (),
        entry: str | None = None,
        cases: Sequence[CaseName] = (),
    ) -> None:
        """Read the problems in `folder`, or the shipped problems, to be graded at `sizes` or at `cases`.

        `only` has patterns of names, as for a shell: submissions to other problems are not wanted. `entry` names the
        class that submissions define; None for ModelNew, else Model.

        Raises:
            ProblemError: the folder does not exist.
            UsageError: a pattern matches no problem, or submissions can read the folder.
        """
        if folder is not None:
            refuse_readable(folder, "the problem folder")
        self._sizes, self._cases = sizes, cases
        self.entry = entry
        self._shipped = folder is None
        self._sized_by_name: dict[str, Problem | str] = {}
        self._texts = RecentProblems()
        listing = list_problems(folder)
        self._broken = [broken.message for broken in listing.broken]
        self._by_name = {problem.name: problem for problem in listing.problems}
        self._only = tuple(only)
        for pattern in only:
            if not any(fnmatchcase(name, pattern) for name in self._by_name):
                hint = did_you_mean(pattern, self._by_name) or "`warpgrade problems list` has all names"
                raise UsageError(f"--only {pattern} matches no problem", hint=hint)
        self._by_short_name: dict[str, list[Problem]] = {}
        for problem in listing.problems:
            for name in names_of(problem):
                self._by_short_name.setdefault(name, []).append(problem)

    @property
    def level_sizes(self) -> dict[int, int]:
        """The number of KernelBench's files in each level."""
        files = (problem for problem in self._by_name.values() if problem.origin == Origin.KERNELBENCH)
        return dict(sorted(Counter(problem.level for problem in files if problem.level).items()))

    @property
    def patterns(self) -> str:
        """The patterns, for messages; empty without any."""
        return " or ".join(self._only)

    def wants(self, name: str) -> bool:
        """Return whether a pattern matches the problem with the given name. An unknown name counts as it stands."""
        if not self._only:
            return True
        problem = self.named(name)
        full_name = name if isinstance(problem, str) else problem.name
        return any(fnmatchcase(full_name, pattern) for pattern in self._only)

    def has(self, name: str, sha256: str) -> bool:
        """Return whether a problem with exactly the given name, content and cases exists."""
        problem = self._by_name.get(name)
        return problem is not None and problem.sha256 == sha256 and self._missing(problem) is None

    def find(self, name: str) -> Problem | str:
        """Return the problem with the given name, or the reason why none can be graded."""
        problem = self.named(name)
        return problem if isinstance(problem, str) else self._sized(problem)

    def named(self, name: str) -> Problem | str:
        """Return the problem with the given name, maybe without the graded size, or the reason why none has the name.

        No code of a problem runs.
        """
        matches = [self._by_name[name]] if name in self._by_name else self._by_short_name.get(name, [])
        if len(matches) == 1:
            return matches[0]
        if matches:
            return f"{one_line(name, 80)!r} may mean {' or '.join(problem.name for problem in matches[:3])}"
        elsewhere = f"; {WHERE}" if self._shipped and looks_like_one(name) else ""
        broken = f"; {len(self._broken)} are broken, as `warpgrade problems list` says" if self._broken else ""
        return f"there is no problem named {one_line(name, 80)!r}{elsewhere or broken}"

    def refusal_of(self, name: str) -> UsageError | None:
        """Return the error of a name that means no problem, or several; None for any other name."""
        if "\n" in name:
            return UsageError("a problem's text is no name", hint="hand in ProblemText(source, name)")
        problem, shown_name = self.named(name), one_line(name, 80)
        if not isinstance(problem, str) or self._broken or self._by_short_name.get(name):
            return UsageError(problem) if isinstance(problem, str) else None
        return not_found(shown_name, nearest_names(shown_name, self._by_name.values()), shipped=self._shipped)

    def read(self, text: ProblemText) -> Problem | str:
        """Return the problem of a text, or the reason why the text cannot be graded at the size of the grades.

        Raises:
            ProblemError: the text is no problem.
        """
        return self._texts.get(text, lambda: self._checked(read_problem_text(text.source, text.name)))

    def _sized(self, problem: Problem) -> Problem | str:
        """Return the problem with the graded sizes, or an error message. The search for sizes runs once."""
        if problem.name not in self._sized_by_name:
            self._sized_by_name[problem.name] = checked = self._checked(problem)
            if isinstance(checked, Problem):
                self._by_name[problem.name] = checked
        return self._sized_by_name[problem.name]

    def _checked(self, problem: Problem) -> Problem | str:
        try:
            sized = with_sizes(problem, sought_sizes(self._sizes, self._cases))
        except ProblemError as error:
            return error.message
        if (missing := self._missing(sized)) is None:
            return sized
        return f"{problem.name} has no case {missing}" + (f"; {NO_SMALL}" if missing in set(SizeName) else "")

    def _missing(self, problem: Problem) -> CaseName | None:
        return missing_case(problem, self._sizes, self._cases)
