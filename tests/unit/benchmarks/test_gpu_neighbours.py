"""The comparison of victims with and without hostile neighbours: what counts as a fault."""

import ast
import itertools

from benchmarks.batch.gpu_neighbours import EVERYWHERE, ON_GPU, Graded, faults_of, hand_in
from evaluator.records import Status
from tests import cards


def test_hostile_submissions_stand_between_the_victims(tmp_path):
    expected = hand_in(tmp_path, ["silu"], EVERYWHERE, rights=2)
    names = sorted(path.stem.partition("_")[2] for path in tmp_path.glob("silu/*.py"))
    assert names == sorted([*EVERYWHERE, "right", "right", "wrong"])
    victims = [number for number, status in enumerate(expected.values()) if status is not None]
    assert all(later - earlier > 1 for earlier, later in itertools.pairwise(victims))
    sources = [path.read_text() for path in tmp_path.glob("silu/*.py")]
    assert len(set(sources)) == len(sources)


def test_the_hostile_submissions_are_python(tmp_path):
    """Also the statements that they execute from texts."""
    hand_in(tmp_path, ["silu"], EVERYWHERE | ON_GPU, rights=2)
    texts = 0
    for path in tmp_path.glob("silu/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "exec":
                ast.parse(node.args[0].value)
                texts += 1
    assert texts == 2


def test_a_victim_needs_its_verdict_and_a_hostile_submission_any_but_a_failure_of_the_machine():
    expected = {"a": Status.CORRECT, "b": None, "c": None, "d": Status.CORRECT, "e": Status.CORRECT}
    infra = cards.card(status=Status.INFRA_ERROR, reason=cards.wrong_card().reason)
    found = {"a": cards.card(), "b": cards.wrong_card(), "c": infra, "d": cards.wrong_card()}
    faults = faults_of(expected, Graded(found, {}))
    assert [fault.partition(" ")[0] for fault in faults] == ["c", "d", "e"]
