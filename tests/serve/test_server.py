"""A server and its clients: grades, refusals, broken messages, clients that vanish, and the end."""

import contextlib
import json
import socket
import threading

import msgspec
import pytest
from msgspec.structs import replace

from evaluator.api import ready_client, ready_socket
from evaluator.api.ready_protocol import GRADES, HELLO, MOST_REQUEST_BYTES, LocalOrder, Welcome, identity
from evaluator.batch.workers.messages import GradeFinished, NotGraded, StageEntered
from evaluator.errors import InfraError, UsageError
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind, SandboxMode, Status
from evaluator.service import gate as limits
from evaluator.service import server
from evaluator.service.local_door import DeviceGraders, local_door
from tests.serve.conftest import order, refusal, soon

EMULATED = GradeOptions(DeviceKind.EMULATED)


def silent(_):
    return None


def connected():
    return ready_socket.connect(60.0)


def send(made, body, path=GRADES, declared=None):
    made.sendall(b"POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (path.encode(), declared or len(body)))
    made.sendall(body)


def order_of(wanted):
    return msgspec.json.encode(LocalOrder(identity=identity(), order=wanted))


def answer_to(made):
    """Return the whole response: status and body."""
    with made.makefile("rb") as response:
        head, _, body = response.read().partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def in_background(work):
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    return thread, results


def test_a_grade_comes_with_its_stages(served):
    stages = []
    with served() as ready:
        result = ready_client.grade(order("# right"), stages.append)
        soon(lambda: len(ready.said) == 2)  # the server says the line after it has sent the result
        ready_client.grade(order("# wrong"), silent)
        soon(lambda: len(ready.said) == 3)
    assert isinstance(result, GradeFinished)
    assert (result.card.status, result.card.problem.name) == (Status.CORRECT, "relu")
    assert [each.name for each in stages] == ["build"]
    assert [line.rpartition(",")[0] for line in ready.said[1:3]] == ["relu mine: correct", "relu mine: wrong result"]


def test_a_broken_problem_is_told(served):
    with served():
        answer = ready_client.grade(order("# broken"), silent)
    assert answer == NotGraded("the problem is broken", again=False, hint="mend its get_inputs")


@pytest.fixture
def gate(worker, monkeypatch):
    """Grades of `# gated` wait until the gate is set."""
    opened, made = threading.Event(), worker.grade

    def grade(self, wanted, on_stage):
        result = made(self, wanted, on_stage)
        assert wanted.submission.source != "# gated" or opened.wait(60)
        return result

    monkeypatch.setattr(worker, "grade", grade)
    yield opened
    opened.set()


def test_two_clients_at_once_have_a_worker_each(served, worker, gate):
    with served(jobs=2):
        waiting = [in_background(lambda: ready_client.grade(order("# gated"), silent)) for _ in range(2)]
        soon(lambda: worker.graded["# gated"] == 2)
        third, results = in_background(lambda: ready_client.grade(order("# right"), silent))
        soon(lambda: json.loads(ready_client.status())["running"] == 3)
        assert worker.graded["# right"] == 0
        gate.set()
        third.join(60)
        assert results[0].card.status is Status.CORRECT
        for thread, found in waiting:
            thread.join(60)
            assert found[0].card.status is Status.CORRECT
    assert len(worker.started) == 2


def test_a_client_that_vanishes_frees_its_worker(served, worker):
    with served(jobs=1) as ready:
        with connected() as made:
            send(made, order_of(order("# hanging")))
            soon(lambda: worker.graded["# hanging"])
        soon(lambda: any("abandoned" in line for line in ready.said))
        assert ready_client.grade(order("# right"), silent).card.status is Status.CORRECT
    assert worker.graded["# hanging"] == 1


def test_an_exception_in_a_client_ends_its_grade(served, worker):
    def interrupt(_):
        raise KeyboardInterrupt

    with served(jobs=1) as ready:
        with pytest.raises(KeyboardInterrupt):
            ready_client.grade(order("# hanging"), interrupt)
        soon(lambda: any("abandoned" in line for line in ready.said))


@pytest.mark.parametrize(
    "body",
    [b"", b"\x00\xff", b"{}", b'{"identity":{}}', b'{"identity":1,"device":"cpu","order":2}', b"[" * 100_000],
    ids=["empty", "no text", "no fields", "few fields", "wrong fields", "nested"],
)
def test_a_broken_message_is_refused(served, body):
    with served():
        for path in (HELLO, GRADES):
            with connected() as made:
                send(made, body, path)
                status, said = answer_to(made)
                assert status == 400
                assert b"another version, or the message is invalid" in said
        assert isinstance(ready_client.reach(EMULATED), Welcome)


def test_an_order_without_a_submission_is_refused(served):
    with served(), connected() as made:
        send(made, order_of(replace(order("# right"), submission=None)))
        assert answer_to(made)[0] == 400


@pytest.mark.parametrize("path", ["/", "/v1/grades/1", "/v2/grades", "//v1/grades", "/metrics"])
def test_an_unknown_path_is_refused(served, path):
    with served(), connected() as made:
        send(made, b"{}", path)
        status, said = answer_to(made)
        assert status == 404
        assert b"another version" in said


def test_a_message_of_an_earlier_client_is_refused(served):
    """Earlier versions wrote a length of four bytes and a JSON text."""
    with served(), connected() as made:
        made.sendall(b'\x00\x00\x00\x12{"type":"AskStop"}\r\n\r\n')
        assert answer_to(made)[0] == 400
        assert ready_client.is_running()


def test_a_message_that_is_too_long_is_refused(served, monkeypatch):
    with served(), connected() as made, contextlib.suppress(ConnectionError):
        send(made, b"x" * (MOST_REQUEST_BYTES + 1))
        assert answer_to(made)[0] == 413
    with pytest.raises(UsageError):
        ready_client.status()


def test_half_a_message_harms_nobody(served, monkeypatch):
    monkeypatch.setattr(server, "HEAD_S", 0.2)
    monkeypatch.setattr(limits, "BODY_S", 0.2)
    with served():
        with connected() as gone:
            gone.sendall(b"POST ")
        with connected() as silent_one, contextlib.suppress(ConnectionError):
            silent_one.sendall(b"POST ")
            assert silent_one.recv(1) == b""
        with connected() as slow_one:
            send(slow_one, b"half", declared=16)
            assert answer_to(slow_one)[0] == 408
        assert ready_client.is_running()


def test_a_chunked_body_is_refused(served):
    with served(), connected() as made:
        made.sendall(b"POST /v1/grades HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
        assert b" 411 " in made.recv(100)


def test_a_connection_of_another_user_ends_before_any_answer(served, monkeypatch):
    with served():
        monkeypatch.setattr(server, "peer_uid", lambda _: 12345)
        with connected() as made, contextlib.suppress(ConnectionError):
            send(made, order_of(order("# right")))
            assert made.recv(1) == b""


def test_another_version_is_refused(served, monkeypatch):
    with served():
        other = replace(identity(), version="0.0.1")
        monkeypatch.setattr(ready_client, "identity", lambda: other)
        for ask in ((ready_client.reach, EMULATED), (ready_client.grade, order("# right"), silent)):
            assert refusal(*ask) == "the ready judge is of another version: restart it"
        assert json.loads(ready_client.status())["grades"] == 0


def test_other_variables_are_refused(served, monkeypatch):
    with served():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
        assert "another CUDA_VISIBLE_DEVICES" in refusal(ready_client.reach, EMULATED)


def test_without_the_sandbox_nothing_is_graded(served, worker):
    unconfined = order("# right", sandbox=SandboxMode.NONE.value)
    with served():
        for ask in ((ready_client.reach, unconfined.options), (ready_client.grade, unconfined, silent)):
            assert refusal(*ask) == ready_client.NO_SANDBOX
    assert not worker.graded


def test_a_gpu_that_the_server_lacks_is_refused(served):
    with served():
        reason = refusal(ready_client.grade, order("# right", gpu="GPU-x"), silent)
    assert reason == "the ready judge has no GPU GPU-x"


def test_a_missing_device_is_refused(served, monkeypatch):
    monkeypatch.setattr("evaluator.devices.gpu._listed", lambda _: [])
    with served():
        assert "cannot use cuda" in refusal(ready_client.reach, GradeOptions(DeviceKind.CUDA))


def test_the_status_is_json(served, folder):
    with served(idle_minutes=7.0):
        ready_client.grade(order("# right"), silent)
        soon(lambda: [json.loads(ready_client.status())[name] for name in ("grades", "running")] == [1, 0])
        # The second worker may start late.
        soon(lambda: {each["problem"] for each in json.loads(ready_client.status())["workers"]} == {"relu", None})
        found = json.loads(ready_client.status())
    assert (found["idle_minutes"], found["devices"], found["running"]) == (7.0, ["emulated"], 0)
    assert found["socket"] == str(folder / ready_socket.SOCKET)


def opened(worker):
    with local_door(DeviceGraders(1, 60.0, worker), DeviceKind.EMULATED, 1.0, silent):
        raise AssertionError("the door is open")


def test_a_second_server_is_refused(served, worker):
    with served(), pytest.raises(UsageError, match="running already") as caught:
        opened(worker)
    assert "--stop" in caught.value.hint


def test_the_end_waits_for_the_grade(served, worker, gate):
    with served():
        grading, results = in_background(lambda: ready_client.grade(order("# gated"), silent))
        soon(lambda: worker.graded["# gated"])
        stopping, _ = in_background(ready_client.stop)
        soon(lambda: json.loads(ready_client.status())["ending"])
        assert refusal(ready_client.reach, EMULATED) == "the ready judge is ending"
        assert refusal(ready_client.grade, order("# right"), silent) == "the ready judge is ending"
        assert stopping.is_alive()
        gate.set()
        grading.join(60)
        stopping.join(60)
        assert results[0].card.status is Status.CORRECT
        assert not ready_client.is_running()
    assert all(each.closed for each in worker.started)


def test_idle_workers_are_released(served, worker):
    with served(idle_minutes=0.001):
        ready_client.grade(order("# right"), silent)
        soon(lambda: worker.started and all(each.closed for each in worker.started))
        assert ready_client.grade(order("# right"), silent).card.status is Status.CORRECT


def test_of_too_many_connections_those_without_a_request_end(served, worker, gate, monkeypatch):
    monkeypatch.setattr(server, "_MOST_LOCAL", 3)
    with served(jobs=2):
        waiting = [in_background(lambda: ready_client.grade(order("# gated"), silent)) for _ in range(2)]
        soon(lambda: worker.graded["# gated"] == 2)
        with connected() as first, contextlib.suppress(ConnectionError):
            assert json.loads(ready_client.status())["running"] == 2  # one more connection
            assert first.recv(1) == b""
        gate.set()
        for thread, found in waiting:
            thread.join(60)
            assert found[0].card.status is Status.CORRECT


def test_a_client_that_does_not_read_loses_its_grade(served, worker, monkeypatch):
    monkeypatch.setattr(server, "STALL_S", 1.0)
    text = "x" * (1 << 20)

    def grade(self, _order, on_stage):
        for _ in range(9):
            on_stage(StageEntered("build", text))
        assert self.interrupted.wait(60)
        return NotGraded("the process that made the grade died", again=True)

    monkeypatch.setattr(worker, "grade", grade)
    with served(jobs=1) as ready, connected() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        send(made, order_of(order("# right")))
        soon(lambda: any("abandoned" in line for line in ready.said))


def test_a_worker_that_cannot_start_is_an_answer_and_costs_no_later_grade(served, worker, monkeypatch):
    made = worker.__init__

    def refuse(*_):
        raise OSError(12, "Cannot allocate memory")

    with served(jobs=1):
        soon(lambda: len(worker.started) == 1)
        soon(lambda: not json.loads(ready_client.status())["running"])
        assert ready_client.grade(order("# lost 1"), silent).card.status is Status.CORRECT
        monkeypatch.setattr(worker, "__init__", refuse)
        result = ready_client.grade(order("# lost 9"), silent)
        assert result == NotGraded("no worker process could start: Cannot allocate memory", again=True)
        monkeypatch.setattr(worker, "__init__", made)
        assert ready_client.grade(order("# right"), silent).card.status is Status.CORRECT


def test_nobody_is_asked_where_nobody_runs(folder):
    for ask in (ready_client.status, ready_client.stop):
        with pytest.raises(UsageError, match="no ready judge runs"):
            ask()


def test_every_version_may_stop_the_server(served):
    with served() as ready, connected() as made:
        made.sendall(b"POST /v1/stop HTTP/1.0\r\n\r\n")
        assert answer_to(made)[0] == 200
        soon(lambda: ready.said[-1] == "ended after 0 grades")


def test_a_lock_that_is_no_file_is_told(folder, worker):
    folder.mkdir(parents=True, mode=0o700)
    (folder / ready_socket.LOCK).symlink_to(folder / "elsewhere")
    with pytest.raises(InfraError, match="cannot use"):
        opened(worker)
