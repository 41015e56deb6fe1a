"""A small size for a problem without one: a file in KernelBench's form outside the shipped table.

The search reduces the file's constants while the reference still runs (`size_search.py`), once per text; the result is
stored in the cache folder.
"""

from msgspec.structs import replace

from evaluator.catalog.origin import Origin
from evaluator.records import Constant, Problem, Record, SizeName

_LIMIT_S = 600.0
"""A usual search takes the time of importing PyTorch plus a second."""
_PROCESS = "evaluator.sizes.size_search"
_VERSION = 1
NO_SMALL = "no smaller constants were found: --size full, or `warpgrade new problem` for sizes of your own"


class SmallFound(Record, frozen=True):
    """The constants found, or None if no smaller constants work."""

    constants: dict[str, Constant] | None


def with_small_size(problem: Problem, size: SizeName) -> Problem:
    """Add a small size to `problem` if requested and missing, and if the search finds constants."""
    if size is not SizeName.SMALL or size in problem.sizes or problem.origin != Origin.KERNELBENCH:
        return problem
    from evaluator.cache.measurements import measured_once
    from evaluator.problem_process import NoAnswer

    try:
        found = measured_once(["small size", _VERSION, problem.sha256], SmallFound, lambda: _search(problem))
    except NoAnswer:
        return problem
    if found.constants is None:
        return problem
    return replace(problem, sizes={**problem.sizes, SizeName.SMALL: found.constants})


def found_small(problem: Problem, size: SizeName) -> str | None:
    """Return a description of the constants that the search changed; None if the small size comes from elsewhere."""
    if size is not SizeName.SMALL or problem.origin != Origin.KERNELBENCH or size not in problem.sizes:
        return None
    from evaluator.catalog.kernelbench import shipped_small_sizes

    if problem.sha256 in shipped_small_sizes():
        return None
    full = problem.sizes[SizeName.FULL]
    changed = [
        f"{name} = {value}, not {full[name]}" for name, value in problem.sizes[size].items() if value != full[name]
    ]
    return "; ".join(changed) or "the file's own constants are small"


def _search(problem: Problem) -> SmallFound:
    """Run the search process. Raises NoAnswer after an end without a result. Failures are not cached."""
    import json

    from evaluator.problem_process import NoAnswer, answer_of

    try:
        return SmallFound(constants=json.loads(answer_of(_PROCESS, problem.source.encode(), _LIMIT_S)))
    except ValueError as error:
        raise NoAnswer("the process gave no constants") from error
