"""The cases of a grade: those that the user names, or the sizes of the device."""

from collections.abc import Sequence

from evaluator.records import CaseName, Problem

ALL, HIDDEN = "all", "hidden"
"""Words of `--case` beside the names of cases."""


def chosen_cases(problem: Problem, sizes: Sequence[CaseName], words: Sequence[CaseName]) -> tuple[CaseName, ...]:
    """Return the names of the graded cases, the card's own first. The problem may lack some.

    `words` are those of `--case`: `all` are the cases of the workload, or the sizes of a problem without one. Without
    another word than `hidden`, the first is the first of `sizes`. Without any, its further sizes count where the
    problem has them.
    """
    if not words:
        return (sizes[0], *(size for size in sizes[1:] if size in problem.cases))
    names: list[CaseName] = []
    for word in words:
        if word == ALL:
            names += problem.workload or problem.cases
        elif word != HIDDEN:
            names.append(word)
    return tuple(dict.fromkeys(names)) or (sizes[0],)


def missing_case(problem: Problem, sizes: Sequence[CaseName], words: Sequence[CaseName]) -> CaseName | None:
    """Return a case that a grade needs and the problem lacks, maybe `hidden`; None without one."""
    if HIDDEN in words and not problem.hidden:
        return HIDDEN
    return next((name for name in chosen_cases(problem, sizes, words) if name not in problem.cases), None)


def sought_sizes(sizes: Sequence[CaseName], words: Sequence[CaseName]) -> tuple[CaseName, ...]:
    """Return the names of the sizes that a bare file may need: those of the device, or those among `words`."""
    return tuple(words) if words and HIDDEN not in words else (*words, *sizes)
