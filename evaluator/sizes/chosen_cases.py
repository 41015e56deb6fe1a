"""The cases of a grade: named by the user, or the sizes of the device."""

from collections.abc import Sequence

from evaluator.records import CaseName, Problem

ALL, HIDDEN = "all", "hidden"
"""Words of `--case` beside names."""


def chosen_cases(problem: Problem, sizes: Sequence[CaseName], words: Sequence[CaseName]) -> tuple[CaseName, ...]:
    """Return the names of the graded cases, the card's own first. The problem may lack some.

    `words` are the words of `--case`. A number from 0 means a case of the workload by its place; `all` means the cases
    of the workload, or the sizes of a problem without a workload. Without another word than `hidden`, the only case is
    the first of `sizes`. Without words, further sizes of the problem count too.
    """
    if not words:
        return (sizes[0], *(size for size in sizes[1:] if size in problem.cases))
    names: list[CaseName] = []
    for word in words:
        if word == ALL:
            names += problem.workload or problem.cases
        elif word not in problem.cases and word.isdecimal() and int(word) < len(problem.workload):
            names.append(problem.workload[int(word)])
        elif word != HIDDEN:
            names.append(word)
    return tuple(dict.fromkeys(names)) or (sizes[0],)


def missing_case(problem: Problem, sizes: Sequence[CaseName], words: Sequence[CaseName]) -> CaseName | None:
    """Return the first necessary case without a definition in the problem, maybe `hidden`; None if all exist."""
    if HIDDEN in words and not problem.hidden:
        return HIDDEN
    return next((name for name in chosen_cases(problem, sizes, words) if name not in problem.cases), None)


def sought_sizes(sizes: Sequence[CaseName], words: Sequence[CaseName]) -> tuple[CaseName, ...]:
    """Return the names of all sizes for a bare file: the sizes of the device, or the sizes among `words`."""
    return tuple(words) if words and HIDDEN not in words else (*words, *sizes)
