"""A real server with real workers: the same card, and each killed process costs one grade at most."""

import contextlib
import json
import os
import signal
import subprocess

import pytest

from evaluator.records import Status
from tests import once
from tests.grading.harness import COMMAND as PRELOADED
from tests.grading.harness import module, nobody_left_behind, passable_folder
from tests.serve.conftest import soon
from tests.serve.judge import COMMAND, LIMIT_S, Judge, facts

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


@contextlib.contextmanager
def started(folder):
    PRELOADED.start("cpu")
    with nobody_left_behind(), passable_folder() as temporary:
        made = Judge("cpu", folder, once.folder_for("cache"), temporary)
        made.start()
        try:
            yield made
        finally:
            made.end()


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """A ready judge that stays."""
    with started(tmp_path_factory.mktemp("judge")) as made:
        yield made


@pytest.fixture
def mortal_judge(tmp_path):
    """A ready judge that the test ends."""
    with started(tmp_path) as made:
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


def assert_that_a_killed_worker_costs_no_grade(judge):
    result = judge.in_background(ENDLESS, "endless", "--timeout", "3")
    soon(judge.busy_workers)
    for pid in judge.busy_workers():
        os.kill(pid, signal.SIGKILL)
    after, card = judge.grade(RIGHT, name="after")
    assert card.status is Status.CORRECT
    assert "graded by the ready judge" in after.stderr
    done, card = result()
    assert card.status is Status.TIMEOUT, done.stderr


def test_a_killed_worker_costs_no_grade(judge):
    judge.grade(RIGHT)
    assert_that_a_killed_worker_costs_no_grade(judge)


def test_a_killed_server_costs_no_grade_and_another_may_start_and_stop(mortal_judge):
    judge = mortal_judge
    judge.grade(RIGHT)
    result = judge.in_background(ENDLESS, "endless", "--timeout", "3")
    soon(judge.busy_workers)
    judge.process.kill()  # `nobody_left_behind` sees to the workers
    judge.process.wait()
    done, card = result()
    assert "the ready judge ended during the grade" in done.stderr
    assert card.status is Status.TIMEOUT
    alone, card = judge.grade(RIGHT)
    assert (card.status, "ready judge" in alone.stderr) == (Status.CORRECT, False)
    judge.start()
    again, card = judge.grade(RIGHT)
    assert card.status is Status.CORRECT
    assert "graded by the ready judge" in again.stderr
    stopped = judge.run("serve", "--stop")
    assert (stopped.returncode, stopped.stderr.strip()) == (0, "the ready judge has ended")
    assert judge.process.wait(LIMIT_S) == 0


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


def test_a_signal_ends_the_server_after_its_grade(mortal_judge):
    judge = mortal_judge
    assert_that_a_killed_worker_costs_no_grade(judge)  # one that has graded nothing yet
    result = judge.in_background(RIGHT, "mine")
    soon(lambda: judge.busy_workers() or "mine" in judge.log.read_text())
    judge.process.terminate()
    done, card = result()
    assert card.status is Status.CORRECT, done.stderr
    assert judge.process.wait(LIMIT_S) == 0
    assert judge.run("serve", "--stop").returncode == 2


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
