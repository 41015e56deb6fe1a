"""Sizes for a problem without them: a file in KernelBench's form has the constants in its text alone.

The search reduces the constants while the reference still runs, for a small size, and makes extents odd for an awkward
one (`size_search.py`), once per text; the result is stored in the cache folder.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from evaluator.catalog.text import Origin
from evaluator.errors import ProblemError
from evaluator.records import CaseName, Constant, Problem, Record, SizeName, cases_of

if TYPE_CHECKING:
    from evaluator.sandbox.question import NoAnswer, Question

_LIMIT_S = 600.0
"""A usual search takes the time of importing PyTorch plus a second."""
_VERSION = 5
NO_SMALL = "no smaller constants were found: --size full, or `warpgrade new problem` for sizes of your own"
_NO_CONSTANTS = "its extents are numbers; named at the top of the file, as in `rows = 512`, they can be changed"
_HINT = "the fault is in the problem, not in the submission: fix its file"


class SizeQuestion(Record, frozen=True):
    """Source of a reference, and the constants of its small size, if known."""

    source: str
    small: dict[str, Constant] | None


class SizesFound(Record, frozen=True):
    """The constants found; None if no constants work. `why_broken` says why the reference does not run."""

    small: dict[str, Constant] | None = None
    awkward: dict[str, Constant] | None = None
    why_broken: str | None = None


def with_sizes(problem: Problem, sizes: Sequence[CaseName]) -> Problem:
    """Add a small and an awkward size to `problem` if requested and missing, and if the search finds constants.

    Raises:
        ProblemError: the reference does not run, or returns nothing that can be compared.
    """
    missing = {SizeName.SMALL, SizeName.AWKWARD}.intersection(sizes) - problem.cases.keys()
    if not missing or problem.origin != Origin.KERNELBENCH:
        return problem
    from evaluator.cache.build_cache import measured_once

    small = problem.cases.get(SizeName.SMALL)
    question = SizeQuestion(problem.source, None if small is None else small.axes)
    parts = ["sizes", _VERSION, problem.sha256, question.small]
    sizes_found = measured_once(parts, SizesFound, lambda: _search(problem, question))
    if not isinstance(sizes_found, SizesFound):
        return problem
    constants: dict[str, dict[str, Constant] | None] = {
        SizeName.SMALL: sizes_found.small,
        SizeName.AWKWARD: sizes_found.awkward,
    }
    more = {name: values for name, values in constants.items() if values is not None and name not in problem.cases}
    return replace(problem, cases={**problem.cases, **cases_of(more)})


def about_sizes(problem: Problem, sizes: Sequence[CaseName]) -> list[str]:
    """Return a sentence about each of Warpgrade's own `sizes`, and about a missing awkward size."""
    if problem.origin != Origin.KERNELBENCH:
        return []
    from evaluator.catalog.kernelbench import shipped_small_sizes

    sentences, before = [], problem.cases[SizeName.FULL].axes
    for size in sizes:
        case = problem.cases.get(size)
        if case is None:
            reason = "the reference needs its extents" if problem.cases[SizeName.FULL].axes else _NO_CONSTANTS
            sentences.append(f"{problem.name} has no {size} size: {reason}")
        elif size == SizeName.AWKWARD or (size == SizeName.SMALL and problem.sha256 not in shipped_small_sizes()):
            changed = changes(before, case.axes)
            sentences += [f"{size} size of {problem.name}: {changed}"] if changed else []
        before = before if case is None else case.axes
    return sentences


def changes(before: dict[str, Constant], after: dict[str, Constant]) -> str:
    """Return the changed constants.

    >>> changes({"n": 64, "dim": 1}, {"n": 61, "dim": 1})
    'n = 61, not 64'
    """
    return "; ".join(
        f"{name} = {value}" + (f", not {before[name]}" if name in before else "")
        for name, value in after.items()
        if name not in before or value != before[name]
    )


def search_question() -> "Question[SizeQuestion, SizesFound]":
    """Return the question of the search. A command that searches nothing does not import the sandbox."""
    from evaluator.sandbox.question import PROBLEM_ANSWER_BYTES, PROBLEM_LIMITS, Question

    entry = "evaluator.sizes.size_search:run"
    return Question(entry, SizeQuestion, SizesFound, _LIMIT_S, PROBLEM_LIMITS, PROBLEM_ANSWER_BYTES)


def _search(problem: Problem, question: SizeQuestion) -> "SizesFound | NoAnswer":
    """Run the search process.

    Raises:
        ProblemError: as for `with_sizes`; not cached.
    """
    answer = search_question().ask_in_new_sandbox(question)
    if isinstance(answer, SizesFound) and answer.why_broken is not None:
        raise ProblemError(f"{problem.path}{answer.why_broken}", hint=_HINT)
    return answer
