"""The Python API with a ready judge: used where one runs, and told where not."""

import asyncio
import logging
import sys

import pytest

from evaluator.api import ready_client
from evaluator.batch.workers import worker_pool
from evaluator.commands.watch import WatchedGrades
from evaluator.grading.resolved_request import GradeArguments, request_for
from evaluator.records import Status
from tests.library import grade_many, grade_stream_async
from tests.serve.conftest import soon
from warpgrade import Candidate, Grader, grade


@pytest.fixture
def no_other(monkeypatch):
    """A local worker would be a fault."""

    def refuse(*_):
        raise AssertionError("a worker of its own")

    monkeypatch.setattr(worker_pool, "LocalWorker", refuse)


def test_the_ready_judge_grades(served, no_other, caplog):
    caplog.set_level(logging.INFO, "warpgrade")
    with served() as ready:
        assert grade("relu", "# right", device="emulated").status is Status.CORRECT
        with Grader(device="emulated") as grader:
            assert grader.at_once == 4
            assert grader.grade("relu", "# wrong").status is Status.WRONG_RESULT
        soon(lambda: len(ready.said) == 3)
    assert "graded by the ready judge" in caplog.text


def test_many_are_graded_by_the_ready_judge(served, no_other):
    given = [Candidate("relu", f"# {'right' if n % 3 else 'wrong'} {n}", str(n)) for n in range(24)]

    async def program():
        return [each async for each in grade_stream_async(given, device="emulated")]

    with served(jobs=3):
        together = grade_many(given, device="emulated")
        assert sorted(candidate.name for candidate, _ in asyncio.run(program())) == sorted(each.name for each in given)
    assert [card.status is Status.CORRECT for card in together] == [bool(n % 3) for n in range(24)]
    assert [card.submission.name for card in together] == [each.name for each in given]


def test_a_watch_uses_the_ready_judge(served, no_other, tmp_path):
    (tmp_path / "mine.py").write_text("# wrong")
    wanted = request_for(GradeArguments("relu", str(tmp_path / "mine.py")), {"device": "emulated"})
    with served() as ready, WatchedGrades(lambda: False, sys.stderr) as grades:
        for _ in range(2):
            assert grades.card_of(wanted, ready=True, quiet=True).status is Status.WRONG_RESULT
        soon(lambda: len(ready.said) == 3)


def test_own_workers_grade_where_asked_for(served, worker, monkeypatch):
    monkeypatch.setattr(worker_pool, "LocalWorker", worker)
    with served() as ready:
        soon(lambda: len(worker.started) == 2)
        assert grade("relu", "# right", device="emulated", ready=False).status is Status.CORRECT
        assert len(worker.started) == 3
        monkeypatch.setenv("WARPGRADE_READY", "0")
        assert grade("relu", "# right", device="emulated").status is Status.CORRECT
        assert len(worker.started) == 4
        assert grade("relu", "# right", device="emulated", ready=True).status is Status.CORRECT
        assert len(worker.started) == 4
        soon(lambda: len(ready.said) == 2)


def test_the_reason_against_is_told(served, worker, monkeypatch, caplog):
    monkeypatch.setattr(worker_pool, "LocalWorker", worker)
    with served():
        monkeypatch.setenv("OMP_NUM_THREADS", "77")
        assert grade("relu", "# right", device="emulated").status is Status.CORRECT
    assert "graded without the ready judge: the ready judge was started with another OMP_NUM_THREADS" in caplog.text


def test_a_server_that_is_gone_is_a_clear_error(served, worker, monkeypatch):
    with served(jobs=1) as ready:
        grader = Grader(device="emulated").start()
        assert grader.grade("relu", "# right").status is Status.CORRECT
        ready.stop()
        soon(lambda: not ready_client.is_running())
    card = grader.grade("relu", "# right")
    assert card.status is Status.INFRA_ERROR
    assert "the ready judge has ended" in card.reason.message
    grader.close()


def test_leaving_a_grader_ends_its_grade_on_the_server(served, worker):
    with served(jobs=1) as ready:
        with Grader(device="emulated") as grader:
            future = grader.submit("relu", "# hanging")
            soon(lambda: worker.graded["# hanging"])
        assert future.cancelled()
        soon(lambda: any("abandoned" in line for line in ready.said))
