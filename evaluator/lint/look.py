"""Look at a submission's text, Python and the C++ inside, and say what was noticed and what it will have built."""

import ast
import warnings

from evaluator.lint import addressed, cpp_calls, launches, library, surroundings
from evaluator.lint.embedded import pieces
from evaluator.lint.foresee import foreseen_builds
from evaluator.lint.reach import Module, in_forward, take_apart
from evaluator.lint.remark import MAX_MESSAGE, Looked, Remark, thinned


def look(source: str) -> Looked:
    """Read `source` and list what was noticed. A text that is no Python is left to the build, which says where.

    It may take long, much memory and deep recursion: the caller sets limits, and expects this process to die of them.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return Looked(thinned(list(addressed.addressed(source, [], []))))
    except (RecursionError, MemoryError):
        return Looked([], f"it is nested too deeply for Python's parser, or too large: {len(source)} characters")
    try:
        module = take_apart(tree)
        return Looked(thinned(_remarks(source, module)), builds=foreseen_builds(module.nodes, module.names))
    except (RecursionError, MemoryError) as error:
        return Looked([], f"{type(error).__name__} while looking at it"[:MAX_MESSAGE])


def _remarks(source: str, module: Module) -> list[Remark]:
    bodies = in_forward(module)
    found = pieces(module.nodes, source)
    return [
        *library.library_calls(module, bodies),
        *library.fallbacks(module, bodies),
        *surroundings.surroundings(module),
        *surroundings.patches(module, bodies),
        *cpp_calls.cpp_rules(found),
        *launches.never_launched(module.nodes, found),
        *addressed.addressed(source, module.nodes, found),
    ]
