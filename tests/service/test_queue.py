"""The queue: idempotency keys, turns of clients, limits, the end and the death of the server."""

import contextlib
import http.client
import json
import signal
import socket
import threading

import msgspec
import pytest

from evaluator.api.scorecard import Scorecard
from tests.service.conftest import TOP, soon


def test_a_repeated_request_is_graded_once(shared):
    first = shared.submit(shared.alice, "# 5 once", Idempotency_Key="once")
    again = [shared.submit(shared.alice, "# 5 once", Idempotency_Key="once") for _ in range(5)]
    shared.wait(shared.alice, first["id"])
    later = shared.submit(shared.alice, "# 5 once", Idempotency_Key="once")
    assert {each["id"] for each in [*again, later]} == {first["id"]}
    assert later["state"] == "finished"
    assert shared.graded.count("# 5 once") == 1
    body = {"problem": "relu", "source": "# 5 other"}
    status, _, _ = shared.ask("POST", "/v1/grades", shared.alice, body, Idempotency_Key="once")
    assert status == 422
    assert "# 5 other" not in shared.graded


def test_the_same_request_from_many_threads_is_graded_once(shared):
    found = []

    def submit():
        found.append(shared.submit(shared.alice, "# 5 together", Idempotency_Key="together")["id"])

    threads = [threading.Thread(target=submit) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    shared.wait(shared.alice, found[0])
    assert (len(found), len(set(found))) == (16, 1)
    assert shared.graded.count("# 5 together") == 1


def test_a_client_with_many_grades_does_not_delay_another(service):
    served = service(at_once=1)
    served.submit(served.alice, "# gated")
    for number in range(30):
        served.submit(served.alice, f"# 0 many {number}")
    own = served.submit(served.bob, "# 0 single")["id"]
    served.open_gate()
    served.wait(served.bob, own)
    assert served.graded.index("# 0 single") <= 2


def test_a_full_queue_refuses_and_still_knows_earlier_requests(service):
    served = service(at_once=1, most_waiting=3)
    for number in range(3):
        served.submit(served.alice, f"# gated {number}", Idempotency_Key=str(number))
    body = {"problem": "relu", "source": "# 0 more"}
    status, headers, said = served.ask("POST", "/v1/grades", served.alice, body)
    assert (status, headers["retry-after"]) == (429, "1"), said
    assert served.submit(served.alice, "# gated 2", Idempotency_Key="2")["state"] in ("queued", "grading")
    served.submit(served.bob, "# 0 other client")


def test_cancelled_grades_are_not_graded(service):
    served = service(at_once=1)
    running = served.submit(served.alice, "# gated running")["id"]
    waiting = served.submit(served.alice, "# 0 waiting")["id"]
    soon(lambda: served.state_of(served.alice, running) == "grading")
    assert json.loads(served.ask("DELETE", f"/v1/grades/{waiting}", served.alice)[2])["state"] == "cancelled"
    assert json.loads(served.ask("DELETE", f"/v1/grades/{running}", served.alice)[2])["state"] == "grading"
    assert served.ask("GET", f"/v1/grades/{waiting}/card", served.alice)[0] == 409
    served.open_gate()
    assert served.wait(served.alice, running)["verdict"] == "correct"
    assert served.graded == ["# gated running"]


def test_a_waiting_request_returns_at_the_end_of_the_grade(service):
    served = service(at_once=1)
    grade = served.submit(served.alice, "# gated")["id"]
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=50)) as waiting:
        headers = {"Authorization": f"Bearer {served.alice}"}
        waiting.request("GET", f"/v1/grades/{grade}?wait_s=60", headers=headers)
        soon(lambda: served.has_read(waiting.sock))
        served.open_gate()
        assert json.loads(waiting.getresponse().read())["state"] == "finished"


def test_nothing_is_lost_when_the_server_is_killed(process):
    served = process(at_once=2)
    ids = []
    for attempt in range(3):
        for n in range(8):
            source = f"# 10 {attempt} {n}"
            ids.append(served.submit(served.alice, source, Idempotency_Key=f"{attempt}-{n}")["id"])
        for grade in ids[-8:-5]:
            served.wait(served.alice, grade)
        served.kill()
        served.start()
    assert all(served.wait(served.alice, grade)["state"] == "finished" for grade in ids)
    repeated = [served.submit(served.alice, f"# 10 0 {n}", Idempotency_Key=f"0-{n}") for n in range(8)]
    assert [each["id"] for each in repeated] == ids[:8]
    assert len(served.graded) <= len(ids) + 3 * 2  # Only grades in progress at a kill are graded again.
    for number, grade in enumerate(ids):
        status, _, card = served.ask("GET", f"/v1/grades/{grade}/card", served.alice)
        assert (status, json.loads(card)["submission"]["source"]) == (200, f"# 10 {number // 8} {number % 8}")


def test_a_queue_with_too_many_bytes_refuses(service):
    served = service(at_once=1, bytes_of_a_client=100_000)
    served.submit(served.alice, "# gated first")
    large = {"problem": "relu", "source": "# 0 " + "x" * 60_000}
    assert served.ask("POST", "/v1/grades", served.alice, large)[0] == 202
    assert served.ask("POST", "/v1/grades", served.alice, large)[0] == 429
    assert served.ask("POST", "/v1/grades", served.bob, large)[0] == 202


def test_the_server_ends_after_the_grades_in_progress_and_keeps_the_queue(process):
    served = process(at_once=1)
    first = served.submit(served.alice, "# gated first")["id"]
    second = served.submit(served.alice, "# 0 second")["id"]
    soon(lambda: served.state_of(served.alice, first) == "grading")
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)) as waiting:
        headers = {"Authorization": f"Bearer {served.alice}"}
        waiting.request("GET", f"/v1/grades/{second}?wait_s=60", headers=headers)
        soon(lambda: served.has_read(waiting.sock))
        served.process.send_signal(signal.SIGTERM)
        assert json.loads(waiting.getresponse().read())["state"] == "queued"
    served.open_gate()
    assert served.process.wait(300) == 0
    assert served.graded == ["# gated first"]
    served.start()
    assert served.wait(served.alice, second)["verdict"] == "correct"
    assert served.wait(served.alice, first)["verdict"] == "correct"
    assert served.graded == ["# gated first", "# 0 second"]


def test_a_second_signal_ends_the_grades_too(process):
    served = process(at_once=1)
    grade = served.submit(served.alice, "# gated")["id"]
    soon(lambda: served.state_of(served.alice, grade) == "grading")
    served.process.send_signal(signal.SIGINT)
    soon(lambda: "a second signal" in served.said)
    served.process.send_signal(signal.SIGINT)
    soon(lambda: "the service has ended" in served.said)
    served.open_gate()  # for the thread of the fake grade
    assert served.process.wait(300) == 0
    served.start()
    assert served.wait(served.alice, grade)["verdict"] == "correct"


def test_a_second_signal_amid_a_request_writes_no_traceback_into_the_log(process):
    served = process()
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as made:
        head = f"POST /v1/grades HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.alice}\r\n"
        made.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        soon(lambda: served.has_read(made))
        served.process.send_signal(signal.SIGINT)
        soon(lambda: "a second signal" in served.said)
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(300) == 0
    assert "the service has ended" in served.said
    assert "Traceback" not in served.said


def test_a_service_without_workers_ends_and_stores_no_card(process):
    served = process(at_once=1)
    served.submit(served.alice, "# broken")
    assert served.process.wait(300) == 3
    assert "no worker starts" in served.said
    assert served.stored == [("queued", 0)]


def test_a_text_that_nothing_can_read_fails_alone(shared):
    final = shared.wait(shared.alice, shared.submit(shared.alice, "# unreadable")["id"])
    assert (final["state"], final["verdict"]) == ("failed", None)
    assert final["reason"]
    assert shared.ask("GET", f"/v1/grades/{final['id']}/card", shared.alice)[0] == 409
    assert shared.wait(shared.alice, shared.submit(shared.alice, "# 0 next")["id"])["verdict"] == "correct"


def test_problem_text_is_accepted_where_the_operator_allows_it(service):
    served = service(problem_text="yes")
    text = (
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n\n\n"
        "def get_inputs():\n    return [torch.rand(4)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    grade = served.submit(served.alice, "# 0 x", problem={"name": "mine", "source": text})["id"]
    assert served.wait(served.alice, grade)["problem"] == "mine"
    body = {"problem": {"name": "mine", "source": "print('no problem')"}, "source": "# 0 y"}
    assert served.ask("POST", "/v1/grades", served.alice, body)[0] == 422
    assert "any code" in served.said


def listed(service, token, query=""):
    status, _, body = service.ask("GET", f"/v1/grades{query}", token)
    assert status == 200, body
    return json.loads(body)


def test_a_client_pages_through_its_own_grades(service):
    served = service()
    made = [served.submit(served.alice, f"# 0 number {number}")["id"] for number in range(5)]
    other = served.submit(served.bob, "# 0 of bob")["id"]
    first = listed(served, served.alice, "?limit=2")
    assert [each["id"] for each in first["grades"]] == made[:2:-1]
    second = listed(served, served.alice, f"?limit=2&before={first['next']}")
    assert [each["id"] for each in second["grades"]] == made[2:0:-1]
    last = listed(served, served.alice, f"?limit=2&before={second['next']}")
    assert ([each["id"] for each in last["grades"]], last["next"]) == (made[:1], None)
    assert [each["id"] for each in listed(served, served.alice)["grades"]] == made[::-1]
    assert [each["id"] for each in listed(served, served.bob)["grades"]] == [other]
    assert listed(served, served.alice, f"?before={made[0]}") == {"grades": [], "next": None}


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=x", "limit=-1", "limit=1e2", "limit=" + "9" * 5000])
def test_a_page_has_a_sensible_length(shared, query):
    status, _, body = shared.ask("GET", f"/v1/grades?{query}", shared.alice)
    assert (status, json.loads(body)["error"]) == (400, "limit is not a number from 1 to 500")


def test_feedback_is_that_of_the_card(shared):
    grade = shared.submit(shared.alice, "# 0 said")["id"]
    shared.wait(shared.alice, grade)
    card = msgspec.json.decode(shared.ask("GET", f"/v1/grades/{grade}/card", shared.alice)[2], type=Scorecard)
    status, headers, body = shared.ask("GET", f"/v1/grades/{grade}/feedback?characters=700", shared.alice)
    assert (status, headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert body.decode() == card.feedback(characters=700)
    assert shared.ask("GET", f"/v1/grades/{grade}/feedback?characters=9", shared.alice)[0] == 400


def test_the_problems_are_listed_without_paths(shared):
    status, _, body = shared.ask("GET", "/v1/problems", shared.alice)
    found = {each["name"]: each for each in json.loads(body)["problems"]}
    assert status == 200
    assert found["relu"].keys() == {"name", "title", "level", "sha256"}
    assert str(TOP) not in body.decode()
