"""Imports of rooms: few modules in a room, no circle, each room above its floor; and modules in a runner's memory."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from benchmarks.pages.import_graph import (
    FLOORS,
    PAGE,
    TOP,
    circle_in,
    folder_graph,
    module_files,
    module_graph,
    reached,
    room_graph,
    room_of,
    upward,
    with_picture,
)
from evaluator.compile.builder import builder_sources
from evaluator.judge.exhibits.hardware_counters import own_parts
from evaluator.sandbox import DEFAULT_PRELOAD

OF_A_RUNNER = {
    "runner",
    "runner/emulated",
    "runner/instrumentation",
    "runner/triton",
    "protocol",
    "protocol/frames",
    "devices",
    "errors",
    "evaluator",
}
"""The rooms that a submission's process may have in memory."""
NOT_IN_A_KEY = {
    "cache",
    "errors",
    "evaluator",
    "findings",
    "interrupts",
    "languages",
    "paths",
    "protocol",
    "records",
    "sandbox",
    "version",
}
"""Folders of messages, records, the cache and the sandbox. Keys hold the include folders found by `languages`."""
RUNNER = "evaluator.runner.main"
STANDALONE = "evaluator.runner.standalone"
MOST_IN_A_FOLDER = 15
MOST_LINES = 400


@pytest.mark.parametrize("start", [RUNNER, STANDALONE])
def test_a_runner_imports_nothing_of_the_judge(start):
    assert {room_of(name) for name in reached(module_graph(), start)} <= OF_A_RUNNER


def test_nothing_but_a_runner_imports_a_runner():
    graph = module_graph()
    importers = {name for name in graph if any(room_of(other).startswith("runner") for other in graph[name])}
    assert {room_of(name).split("/")[0] for name in importers} == {"runner"}


@pytest.mark.process
def test_a_fork_server_preloads_the_modules_of_a_runner():
    """In the sandbox no file of the package is readable, so a late import would fail."""
    code = (
        f"import json, sys, {RUNNER}; print(json.dumps([name for name in sys.modules if name.startswith('evaluator')]))"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True, check=True).stdout
    assert RUNNER in DEFAULT_PRELOAD
    assert set(json.loads(said)) == reached(module_graph(), RUNNER) | {RUNNER}


@pytest.mark.process
def test_a_program_under_ncu_sees_what_it_imports_and_no_judge(tmp_path):
    (tmp_path / "evaluator").mkdir()
    for part in own_parts():
        (tmp_path / "evaluator" / part.name).symlink_to(part)
    code = f"import sys; sys.path.insert(0, sys.argv[1]); import {STANDALONE}; import evaluator.judge"
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-c", code, str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'evaluator.judge'", done.stderr


def test_every_room_is_on_one_floor():
    assert sorted(room for rooms in FLOORS for room in rooms) == sorted(room_graph())


@pytest.mark.parametrize("package", ["benchmarks", "evaluator"])
def test_a_folder_has_few_modules(package):
    counts = Counter(path.parent.relative_to(TOP).as_posix() for path in (TOP / package).rglob("*.py"))
    assert len(counts) > 1
    assert {folder: count for folder, count in counts.items() if count > MOST_IN_A_FOLDER} == {}


def test_a_module_has_at_most_400_lines():
    lines = {name: len(path.read_bytes().splitlines()) for name, path in module_files().items()}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_every_import_goes_down():
    assert not upward(room_graph())
    assert not circle_in(module_graph())


def test_no_circle_joins_folders():
    """A circle of folders needs no circle of rooms: `files` and `text` below."""
    crossing = {"files": {"text/lines"}, "text": {"files"}, "text/lines": set()}
    rooms = {room: frozenset(imported) for room, imported in crossing.items()}
    assert not circle_in(rooms)
    assert set(circle_in(folder_graph(rooms))) == {"files", "text"}
    assert not circle_in(folder_graph(room_graph()))


def test_an_import_for_a_type_checker_closes_a_circle_too(tmp_path):
    room = tmp_path / "evaluator" / "room"
    room.mkdir(parents=True)
    for folder in (room, room.parent):
        (folder / "__init__.py").touch()
    (room / "first.py").write_text("from evaluator.room import second\n")
    (room / "second.py").write_text("if TYPE_CHECKING:\n    from evaluator.room.first import Name\n")
    (room.parent / "other.py").write_text("def late():\n    import evaluator.room.first\n")
    assert set(circle_in(module_graph(tmp_path))) == {"evaluator.room.first", "evaluator.room.second"}
    assert room_graph(tmp_path) == {"room": frozenset(), "other": {"room"}}


def test_an_upward_import_is_found():
    assert upward({"records": frozenset({"judge"}), "judge": frozenset({"records"})}) == [("records", "judge")]
    assert upward({"errors": frozenset({"records"})}) == [("errors", "records")]


def test_the_picture_of_the_rooms_is_of_today():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_picture(page), "python -m benchmarks.pages.import_graph --write"
    assert "```mermaid" in page


@pytest.mark.parametrize(
    "start",
    [
        "evaluator.compile.builder",
        "evaluator.compile.cuda_builder",
        "evaluator.compile.emulated_builder",
    ],
)
def test_a_key_of_a_build_holds_all_that_decides_what_is_built(start):
    """The cache would go on serving libraries of an earlier version of a module that no key holds."""
    hashed, files = set(builder_sources()), module_files()
    unhashed = {name for name in reached(module_graph(), start) | {start} if files[name] not in hashed}
    assert {name for name in unhashed if room_of(name).partition("/")[0] not in NOT_IN_A_KEY} == set()
    assert {"warpgrade_host.h", "warpgrade_bind.h", "support.cpp", "front_ends.sh", "cuda_runtime.h"} <= {
        path.name for path in hashed
    }
