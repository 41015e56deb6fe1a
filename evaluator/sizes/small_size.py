"""A small size for a problem without one: a file in KernelBench's form outside the shipped table.

The search reduces the file's constants while the reference still runs (`size_search.py`), once per text; the result is
stored in the cache folder.
"""

import sys
from pathlib import Path

from msgspec.structs import replace

from evaluator.catalog.origin import Origin
from evaluator.records import Constant, Problem, Record, SizeName

_LIMIT_S = 600.0
"""A usual search takes the time of importing PyTorch plus a second."""
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from evaluator.sizes import size_search; size_search.main()"
_TOP = Path(__file__).resolve().parents[2]
_VERSION = 1
NO_SMALL = "no smaller constants were found: --size full, or `warpgrade new problem` for sizes of your own"


class SmallFound(Record, frozen=True):
    """The constants found, or None if no smaller constants work."""

    constants: dict[str, Constant] | None


class _NotFoundOut(Exception):
    """The search was ended by its time limit or by the machine."""


def with_small_size(problem: Problem, size: SizeName) -> Problem:
    """Add a small size to `problem` if requested and missing, and if the search finds constants."""
    if size is not SizeName.SMALL or size in problem.sizes or problem.origin != Origin.KERNELBENCH:
        return problem
    from evaluator.cache.measurements import measured_once

    try:
        found = measured_once(["small size", _VERSION, problem.sha256], SmallFound, lambda: _search(problem))
    except _NotFoundOut:
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
    """Run the search process. Raises _NotFoundOut after an end without a result; such a failure is not cached."""
    import json
    import subprocess

    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _BOOT, str(_TOP)],
            input=problem.source.encode(),
            capture_output=True,
            timeout=_LIMIT_S,
            check=True,
        )
        return SmallFound(constants=json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise _NotFoundOut from error
