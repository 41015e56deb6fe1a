"""A real server with real workers: the same card, and each killed process costs one grade at most."""

import json
import signal
import subprocess

import pytest

from evaluator.records import Status
from tests.grading.harness import module
from tests.serve.conftest import soon
from tests.serve.judge import COMMAND, LIMIT_S, assert_that_a_killed_worker_costs_no_grade, facts, started

pytestmark = pytest.mark.slow

RIGHT = module()
WRONG = module(forward=("return torch.relu(x) + 1",))
ENDLESS = module("import time", forward=("time.sleep(3600)",))
CRASHING = module("import os", forward=("os.abort()",))
KNOCKING = module(
    "import os, socket",
    "def reached(path):",
    "    try:",
    "        with socket.socket(socket.AF_UNIX) as made: made.connect(path)",
    "    except OSError:",
    "        return 0",
    "    return 1",
    forward=("return torch.relu(x) + reached(PATH)",),
)


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """A ready judge that stays."""
    with started(tmp_path_factory.mktemp("judge")) as made:
        yield made


def test_the_card_is_the_same(judge):
    for source, status in ((RIGHT, Status.CORRECT), (WRONG, Status.WRONG_RESULT), (CRASHING, Status.RUNTIME_ERROR)):
        ready, its_card = judge.grade(source)
        alone, own_card = judge.grade(source, "--no-ready")
        assert "graded by the ready judge" in ready.stderr
        assert "ready judge" not in alone.stderr
        assert its_card.status is status
        assert facts(its_card) == facts(own_card)
        assert ready.returncode == alone.returncode
    assert "relu mine: wrong result" in judge.log.read_text()


def test_what_the_ready_judge_cannot_do_is_done_here(judge):
    grades = judge.status()["grades"]
    _, card = judge.grade(RIGHT, name="first")
    unconfined, _ = judge.grade(RIGHT, "--sandbox", "none")
    replayed, _ = judge.grade(RIGHT, "--replay", "first.json")
    elsewhere, _ = judge.grade(RIGHT, OMP_NUM_THREADS="1")
    for done, reason in (
        (unconfined, "only in the sandbox"),
        (replayed, "the seeds of its card"),
        (elsewhere, "another OMP_NUM_THREADS"),
    ):
        assert "graded without the ready judge: " in done.stderr
        assert reason in done.stderr
        assert done.returncode == 0, done.stderr
    assert card.status is Status.CORRECT
    assert judge.status()["grades"] == grades + 1


@pytest.mark.long
def test_a_killed_worker_costs_no_grade(judge):
    judge.grade(RIGHT)
    assert_that_a_killed_worker_costs_no_grade(judge, ENDLESS, RIGHT)


def test_ctrl_c_in_a_client_ends_its_grade(judge):
    (judge.folder / "endless.py").write_text(ENDLESS)
    with subprocess.Popen(
        [*COMMAND, "grade", "relu", "endless.py", "--device", "cpu", "--size", "awkward"],
        cwd=judge.folder,
        env=judge.environment,
    ) as process:
        soon(judge.busy_workers)
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
    soon(lambda: "relu endless: abandoned" in judge.log.read_text())
    _, card = judge.grade(RIGHT)
    assert card.status is Status.CORRECT


def test_a_second_server_is_refused(judge):
    assert json.loads(judge.run("serve", "--status").stdout)["pid"] == judge.process.pid
    second = judge.run("serve", "--device", "cpu")
    assert second.returncode == 2
    assert f"running already (process {judge.process.pid})" in second.stderr
    assert judge.run("serve", "--stop", "--status").returncode == 2


def test_a_submission_does_not_reach_the_socket(judge):
    path = judge.status()["socket"]
    done, card = judge.grade(KNOCKING.replace("PATH", repr(path)))
    assert "graded by the ready judge" in done.stderr
    assert card.status is Status.CORRECT, card.reason
