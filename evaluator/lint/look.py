"""Look at a submission's text, Python and the C++ inside, and say what was noticed and what it will have built."""

import ast
import warnings

import msgspec

from evaluator.lint import addressed, cpp_calls, launches, library, surroundings
from evaluator.lint.embedded import pieces
from evaluator.lint.foresee import foreseen_builds
from evaluator.lint.reach import Module, in_forward, take_apart
from evaluator.lint.remark import MAX_MESSAGE, Looked, Remark, thinned
from evaluator.protocol.frames import BuildRequest
from evaluator.protocol.frames.bounds import MAX_FRAME_BYTES
from evaluator.protocol.frames.oversize import unsendable_request

_MAX_BUILDS_BYTES = MAX_FRAME_BYTES // 2


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
        noticed = thinned(_remarks(source, module))
    except (RecursionError, MemoryError) as error:
        return Looked([], f"{type(error).__name__} while looking at it"[:MAX_MESSAGE])
    return Looked(noticed, builds=_builds(module))


def _builds(module: Module) -> list[BuildRequest]:
    """Foresee builds. Whatever a text does to that, what was noticed of it stands, and the judge can be told so."""
    try:
        builds = foreseen_builds(module.nodes, module.names)
        # What the judge would not take from a runner, it does not build ahead either.
        builds = [build for build in builds if unsendable_request(build) is None]
        return builds if len(msgspec.msgpack.encode(builds)) <= _MAX_BUILDS_BYTES else []
    except Exception:  # noqa: BLE001 - there is no list of what a hostile text may lead to
        return []


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
