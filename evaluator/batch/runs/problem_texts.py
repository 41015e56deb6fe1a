"""Problems as text, and the results of the texts used last: a service reads any number of different texts."""

import reprlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from evaluator.records import Problem

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
