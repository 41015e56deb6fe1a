"""Who imports whom: a runner imports nothing of the judge, and the judge nothing of a runner."""

import json
import subprocess
import sys

import pytest

from benchmarks.import_graph import TOP, module_graph, reached, room_of
from evaluator.isolation import DEFAULT_PRELOAD
from evaluator.judge.counters import own_parts

OF_A_RUNNER = {"runner", "protocol", "protocol/frames", "devices", "errors", "evaluator"}
"""The rooms that a submission's process may have in memory."""
RUNNER = "evaluator.runner.main"
STANDALONE = "evaluator.runner.alone"


@pytest.mark.parametrize("start", [RUNNER, STANDALONE])
def test_a_runner_imports_nothing_of_the_judge(start):
    assert {room_of(name) for name in reached(module_graph(), start)} <= OF_A_RUNNER


def test_nothing_but_a_runner_imports_a_runner():
    graph = module_graph()
    importers = {name for name in graph if any(room_of(other) == "runner" for other in graph[name])}
    assert {room_of(name) for name in importers} == {"runner"}


def test_a_starter_loads_what_a_runner_needs_before_the_walls_hide_it():
    """Behind the walls no file of the package can be read, so a late import would fail there."""
    code = (
        f"import json, sys, {RUNNER}; print(json.dumps([name for name in sys.modules if name.startswith('evaluator')]))"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True, check=True).stdout
    assert RUNNER in DEFAULT_PRELOAD
    assert set(json.loads(said)) == reached(module_graph(), RUNNER) | {RUNNER}


def test_a_program_under_ncu_sees_what_it_imports_and_no_judge(tmp_path):
    (tmp_path / "evaluator").mkdir()
    for part in own_parts():
        (tmp_path / "evaluator" / part.name).symlink_to(part)
    code = f"import sys; sys.path.insert(0, sys.argv[1]); import {STANDALONE}; import evaluator.judge"
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-c", code, str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'evaluator.judge'", done.stderr
