"""The end of a real server: by a signal, by a command, and by its death, none of which costs a grade.

Not beside the tests with a server that stays: its processes would count as left behind.
"""

import pytest

from evaluator.records import Status
from tests.grading.harness import module
from tests.serve.conftest import soon
from tests.serve.judge import LIMIT_S, assert_that_a_killed_worker_costs_no_grade, started

pytestmark = pytest.mark.slow

RIGHT = module()
ENDLESS = module("import time", forward=("time.sleep(3600)",))


@pytest.fixture
def judge(tmp_path):
    with started(tmp_path) as made:
        yield made


@pytest.mark.long
def test_a_killed_server_costs_no_grade_and_another_may_start_and_stop(judge):
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


@pytest.mark.long
def test_a_signal_ends_the_server_after_its_grade(judge):
    assert_that_a_killed_worker_costs_no_grade(judge, ENDLESS, RIGHT)  # one that has graded nothing yet
    result = judge.in_background(RIGHT, "mine")
    soon(lambda: judge.busy_workers() or "mine" in judge.log.read_text())
    judge.process.terminate()
    done, card = result()
    assert card.status is Status.CORRECT, done.stderr
    assert judge.process.wait(LIMIT_S) == 0
    assert judge.run("serve", "--stop").returncode == 2
