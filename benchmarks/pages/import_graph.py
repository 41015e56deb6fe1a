"""The import graph of `evaluator`, read from its source by `ast`: every import counts, however late it runs.

A room is a folder of the package, or one of the modules beside the folders. `FLOORS` is the order of the rooms: a room
imports rooms of lower floors alone. `tests/unit/test_import_graph.py` holds the source against that order.

    python -m benchmarks.pages.import_graph            counts of modules, rooms, arrows, circles and upward arrows
    python -m benchmarks.pages.import_graph --write    the picture in docs/architecture.md, made again
"""

import argparse
import ast
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PAGE = TOP / "docs" / "architecture.md"
PACKAGE = "evaluator"
FLOORS = (
    ("commands",),
    ("agents", "view"),
    ("service",),
    ("api",),
    ("batch",),
    ("batch/workers", "schema"),
    ("batch/runs",),
    ("grading",),
    ("judge",),
    ("judge/exhibits",),
    ("judge/context",),
    ("admission", "judge/trial"),
    ("judge/answer",),
    ("judge/setup",),
    ("judge/clock", "report"),
    ("doctor", "judge/runners"),
    ("compile",),
    ("emulator/parsing", "grade_options", "judge/numerics", "lint", "report/page", "sizes"),
    ("emulator/frontend", "judge/reference", "report/ci", "report/run", "roofline", "scaffold", "submission"),
    (
        "cache",
        "cards",
        "catalog",
        "emulator",
        "judge/compare",
        "progress",
        "report/card",
        "runner",
        "sandbox/init",
        "signatures",
    ),
    ("deadline", "files", "judge/tensors", "problem_code", "runner/triton", "sandbox", "timing", "toolchain"),
    ("cuda_source", "devices", "findings", "languages", "paths", "protocol", "report/layout", "tensor_files"),
    ("errors", "interrupts", "protocol/frames", "records", "sandbox/kernel", "text", "version"),
)
"""The rooms from top to bottom; those of one floor import nothing of each other."""
_BEGIN = "<!-- rooms: made by `python -m benchmarks.pages.import_graph --write` -->\n"
_END = "<!-- end of the rooms -->\n"

Graph = Mapping[str, frozenset[str]]


@cache
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


def room_of(module: str, files: Mapping[str, Path] | None = None, top: Path = TOP) -> str:
    """Return the room of a module: the path of its folder below the package, or the module's own name."""
    path = (module_files(top) if files is None else files)[module].relative_to(top / PACKAGE)
    return path.parent.as_posix() if len(path.parts) > 1 else module.rpartition(".")[2]


@cache
def room_graph(top: Path = TOP) -> Graph:
    """Return which rooms each room imports. The package's own `__init__` is in no room: it imports nothing."""
    graph, files = module_graph(top), module_files(top)
    found: dict[str, set[str]] = {room_of(name, files, top): set() for name in files if name != PACKAGE}
    for name, imported in graph.items():
        room = room_of(name, files, top)
        found.setdefault(room, set()).update(room_of(other, files, top) for other in imported)
        found[room].discard(room)
    return {room: frozenset(others) for room, others in found.items() if room != PACKAGE or others}


def folder_graph(rooms: Graph) -> Graph:
    """Return which folders each folder imports. A folder holds all rooms with the same first part of the path."""
    folders: dict[str, set[str]] = {}
    for room, imported in rooms.items():
        folder = room.partition("/")[0]
        folders.setdefault(folder, set()).update(other.partition("/")[0] for other in imported)
    return {folder: frozenset(imported - {folder}) for folder, imported in folders.items()}


def circle_in(graph: Graph) -> list[str]:
    """Return the members of one circle, each imported by the next; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def upward(graph: Graph) -> list[tuple[str, str]]:
    """List the arrows between rooms that do not go to a lower floor."""
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    return [(room, other) for room in graph for other in sorted(graph[room]) if floor[room] >= floor[other]]


def picture(graph: Graph) -> str:
    """Draw the rooms, floor by floor, as Mermaid text. An arrow that others imply is left out."""
    lines = ["```mermaid", "flowchart TB"]
    for number, rooms in enumerate(FLOORS):
        inside = [f'        {_node(room)}["{room}"]' for room in rooms]
        lines += [f"    subgraph floor{len(FLOORS) - 1 - number}", *inside, "    end"]
    for rooms in FLOORS:
        for room in rooms:
            implied = {far for near in graph[room] for far in reached(graph, near)}
            lines += [f"    {_node(room)} --> {_node(other)}" for other in sorted(graph[room] - implied)]
    return "\n".join([*lines, "```", ""])


def _node(room: str) -> str:
    return room.replace("/", "_")


def with_picture(page: str) -> str:
    """Return the page with the picture of today's rooms between its two marks."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{picture(room_graph())}{_END}{after}"


def main() -> None:
    """Print the counts, and write the picture where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="make the picture in docs/architecture.md again")
    modules, rooms = module_graph(), room_graph()
    for name, graph in (("modules", modules), ("rooms", rooms), ("folders", folder_graph(rooms))):
        arrows = sum(len(imported) for imported in graph.values())
        print(f"{name}: {len(graph)}, arrows: {arrows}, a circle: {' <- '.join(circle_in(graph)) or 'none'}")
    print(f"floors: {len(FLOORS)}, upward arrows: {len(upward(rooms))}")
    if parser.parse_args().write:
        PAGE.write_text(with_picture(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
