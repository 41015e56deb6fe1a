"""`--strict` by the command line: a grade with every layer of the sandbox, or a refusal that names the missing ones."""

import pytest

from evaluator.records import Status
from evaluator.sandbox import ForkServer
from tests.grading.harness import module


@pytest.fixture(scope="module")
def missing():
    with ForkServer(preload=()) as fork_server:
        return fork_server.facts.missing


def test_it_grades_with_every_wall_or_names_what_is_missing(grade, missing):
    run = grade(module(forward=("return x.clone()",)), "--strict")
    if missing:
        assert run.code == 3
        assert all(layer in run.err for layer in missing)
    else:
        assert run.card.status is Status.WRONG_RESULT
        assert run.card.sandbox.missing == []
