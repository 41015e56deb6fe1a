"""The import graph of `evaluator`, read from its source by `ast`: every import counts, however late it runs.

A room is a folder of the package, or one of the modules beside the folders.
"""

import ast
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
PACKAGE = "evaluator"

Graph = Mapping[str, frozenset[str]]


def module_files(top: Path = TOP) -> dict[str, Path]:
    """Return the file of each module of the package, by dotted name."""
    return {_dotted(path.relative_to(top)): path for path in sorted((top / PACKAGE).rglob("*.py"))}


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def module_graph(top: Path = TOP) -> Graph:
    """Return which modules each module imports. An import under `TYPE_CHECKING`, or inside a function, counts too."""
    files = module_files(top)
    found = {name: set(_imports(ast.parse(path.read_bytes()))) for name, path in files.items()}
    return {name: frozenset(_known(wanted, files) - {name}) for name, wanted in found.items()}


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _known(wanted: Collection[str], files: Collection[str]) -> set[str]:
    """Return the modules that `wanted` names; a name inside of a module stands for the module."""
    return {name if name in files else name.rpartition(".")[0] for name in wanted} & set(files)


def reached(graph: Graph, start: str) -> frozenset[str]:
    """Return what `start` imports, directly or not, and the packages around each module."""
    found: set[str] = set()
    waiting = {start}
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= {*graph[name], name.rpartition(".")[0]} - found - {""}
    return frozenset(found - {start})


def room_of(module: str, files: Mapping[str, Path] | None = None) -> str:
    """Return the room of a module: the path of its folder below the package, or the module's own name."""
    path = (module_files() if files is None else files)[module].relative_to(TOP / PACKAGE)
    return path.parent.as_posix() if len(path.parts) > 1 else module.rpartition(".")[2]
