"""Attempts: a grade that ends the server each time gets a card at the bound, and costs no other grade."""

import asyncio
import json
import signal
import threading
from concurrent.futures import Future

from msgspec.json import encode

from evaluator.errors import InfraError
from evaluator.service.dispatcher import MOST_ATTEMPTS, Dispatcher
from evaluator.service.http_door import LIMITS
from evaluator.service.journal import Arrival, Journal
from evaluator.service.messages import GradeOrder
from evaluator.service.metrics import Metrics


def killed(served, times):
    """Start the service until its grades have killed it `times` times."""
    for _ in range(times):
        assert served.process.wait(300) == -signal.SIGKILL
        served.launch()
    return served


def test_a_grade_that_kills_the_server_gets_a_card_and_its_neighbours_are_graded(process):
    served = process(at_once=4)
    # The neighbours take longer than the culprit: each death finds all of them in progress.
    neighbours = [served.submit(served.alice, f"# 900 neighbour {number}")["id"] for number in range(2)]
    culprit = served.submit(served.alice, "# 300 deadly")["id"]
    killed(served, MOST_ATTEMPTS)
    served.until_up()
    final = served.wait(served.alice, culprit)
    assert (final["state"], final["verdict"]) == ("finished", "infra_error")
    card = json.loads(served.ask("GET", f"/v1/grades/{culprit}/card", served.alice)[2])
    assert card["submission"]["source"] == "# 300 deadly"
    assert f"the service ended during {MOST_ATTEMPTS} attempts" in json.dumps(card)
    for grade in neighbours:
        assert served.wait(served.alice, grade)["verdict"] == "correct"
    assert set(served.graded) == {"# 900 neighbour 0", "# 900 neighbour 1"}
    assert served.process.poll() is None


def test_a_grade_whose_card_kills_the_server_fails_with_a_reason(process):
    served = process()
    grade = served.submit(served.alice, "# 0 deadly card")["id"]
    killed(served, MOST_ATTEMPTS + 1)
    served.until_up()
    final = served.wait(served.alice, grade)
    assert final["state"] == "failed"
    assert f"{MOST_ATTEMPTS} attempts" in final["reason"]


class StuckGrading:
    """A grader whose grades never end, or end with the given error of the machine."""

    at_once = 2

    def __init__(self):
        self.failure = None
        self.futures = []

    def submit(self, problem, source, *, name):
        self.futures.append(Future())
        return self.futures[-1]


def attempts_after(tmp_path, end):
    """Return the counted attempts of two grades after `end(dispatcher, grading)` and the end of the dispatcher."""

    async def program(journal):
        grading = StuckGrading()
        dispatcher = Dispatcher(journal, grading, Metrics(), print, keep_s=1e9)
        for source in ("one", "two"):
            request = encode(GradeOrder("relu", source))
            await dispatcher.accept(Arrival("alice", None, request, source, "relu", source))
        running = asyncio.create_task(dispatcher.run())
        while len(grading.futures) < 2:
            await asyncio.sleep(0.01)
        end(dispatcher, grading)
        await asyncio.wait([running])
        return [each.attempts for each in await journal.waiting()], running.exception()

    journal = Journal(tmp_path, LIMITS)
    try:
        return asyncio.run(program(journal))
    finally:
        journal.close()


def test_a_signal_is_no_attempt(tmp_path):
    assert attempts_after(tmp_path, lambda dispatcher, _: dispatcher.abort()) == ([0, 0], None)


def test_a_signal_before_the_journal_has_begun_a_grade_is_no_attempt(tmp_path):
    """The journal counts the attempt in a thread of the journal, also if the dispatcher's task is cancelled."""
    busy = threading.Event()

    async def program(journal):
        dispatcher = Dispatcher(journal, StuckGrading(), Metrics(), print, keep_s=1e9)
        running = asyncio.create_task(dispatcher.run())
        await asyncio.sleep(0)  # It reads the journal before the grade arrives.
        await dispatcher.accept(Arrival("alice", None, encode(GradeOrder("relu", "one")), "one", "relu", "one"))
        waiting = asyncio.create_task(journal.do(lambda: busy.wait(60)))
        while not dispatcher._in_progress:
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # The grade's task asks the journal.
        dispatcher.abort()
        await asyncio.sleep(0)
        busy.set()
        await asyncio.wait([running, waiting])
        return [each.attempts for each in await journal.waiting()]

    journal = Journal(tmp_path, LIMITS)
    try:
        assert asyncio.run(program(journal)) == [0]
    finally:
        journal.close()


def test_a_failure_of_the_machine_is_no_attempt(tmp_path):
    def fail(_, grading):
        grading.failure = InfraError("no GPU")
        grading.futures[0].set_result(None)

    attempts, error = attempts_after(tmp_path, fail)
    assert attempts == [0, 0]
    assert isinstance(error, InfraError)


def test_an_unknown_error_of_a_grade_is_an_attempt(tmp_path):
    attempts, error = attempts_after(tmp_path, lambda _, grading: grading.futures[0].set_exception(OSError("unknown")))
    assert sorted(attempts) == [0, 1]
    assert isinstance(error, OSError)
