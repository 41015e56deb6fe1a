"""The plugin of pytest, in sessions of its own, with workers that grade in no time."""

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

import evaluator.api.pytest_plugin
from tests.grading.folders import HALVES, write

pytest_plugins = ["pytester"]

TESTS = """
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def kernel_options():
    return {"device": "emulated", "jobs": 1, "require_own_kernel": 0.25}


def test_right(kernel_grade):
    card = kernel_grade("relu", Path("mine.py"))
    assert card.correct
    assert (card.submission.name, card.required_own_kernel) == ("mine", 0.25)


def test_folder(kernel_grade):
    card = kernel_grade("relu", Path("parts"))
    assert (card.submission.name, "#@ file" in card.submission.source) == ("parts", True)


def test_wrong(kernel_grade):
    assert kernel_grade("relu", "# wrong").correct


def test_lost(kernel_grade):
    kernel_grade("relu", "# lost 9")
"""


@pytest.fixture
def session(pytester, monkeypatch, worker):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makefile(".py", mine="# right")
    write(pytester.path / "parts", HALVES)
    pytester.makepyfile(test_kernels=TESTS)
    return pytester.runpytest_inprocess("-p", evaluator.api.pytest_plugin.__name__)


def test_a_session_shares_its_workers_and_shows_feedback(session, worker):
    session.assert_outcomes(passed=2, failed=2)
    text = session.stdout.str()
    assert "where False = Scorecard(wrong_result: relu/test_wrong, on emulated, C405" in text
    assert "> at [0, 3]: expected 0.0, got -0.5123" in text
    assert "InfraError: the process that made the grade died" in text
    assert all(each.closed or each.interrupted.is_set() for each in worker.started)


def test_the_package_registers_it():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (place,) = project["entry-points"]["pytest11"].values()
    point = importlib.metadata.EntryPoint("warpgrade", place, "pytest11")
    assert point.load() is evaluator.api.pytest_plugin
