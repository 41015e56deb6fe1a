"""Who gets in, and how much a request may send: tokens, sizes, slow clients, other clients' grades."""

import contextlib
import http.client
import json
import select
import socket
import time
from pathlib import Path

import pytest

from evaluator.service.messages import MOST_BODY_BYTES, MOST_PROBLEM
from evaluator.service.tokens import revoke_tokens
from tests.service.conftest import soon

ROUTES = [
    ("POST", "/v1/grades"),
    ("GET", "/v1/grades/{grade}"),
    ("DELETE", "/v1/grades/{grade}"),
    ("GET", "/v1/grades/{grade}/card"),
    ("GET", "/v1/grades/{grade}/feedback"),
    ("GET", "/v1/grades?before={grade}"),
    ("GET", "/v1/grades"),
    ("GET", "/v1/problems"),
    ("GET", "/openapi.json"),
    ("GET", "/metrics"),
    ("GET", "/nothing"),
    ("GET", "/"),
]


@pytest.mark.parametrize(
    "authorization", [None, "Bearer", "Bearer wg_wrong", "Basic YWxpY2U6eA==", "bearer \xff", "Bearer {} x"]
)
def test_without_a_token_every_path_says_the_same(shared, authorization):
    grade = shared.submit(shared.alice, "# 0 seen")["id"]
    headers = {} if authorization is None else {"Authorization": authorization.format(shared.alice)}
    said = set()
    for method, path in ROUTES:
        status, found, body = shared.ask(method, path.format(grade=grade), **headers)
        found = {name: value for name, value in found.items() if name != "date"}
        said.add((status, tuple(sorted(found.items())), body))
    assert len(said) == 1
    assert next(iter(said))[0] == 401


def test_health_needs_no_token_and_tells_nothing(shared):
    status, headers, body = shared.ask("GET", "/healthz")
    assert (status, body) == (200, b"ok\n")
    assert "server" not in headers


def test_a_client_sees_nothing_of_another_client(shared):
    grade = shared.submit(shared.alice, "# 0 private", Idempotency_Key="one")["id"]
    assert shared.wait(shared.alice, grade)["state"] == "finished"
    for method, path in ROUTES[1:6]:
        assert shared.ask(method, path.format(grade=grade), shared.bob)[0] == 404
        assert shared.ask(method, path.format(grade="0" * 32), shared.bob)[0] == 404
    status, _, card = shared.ask("GET", f"/v1/grades/{grade}/card", shared.alice)
    assert (status, json.loads(card)["submission"]["source"]) == (200, "# 0 private")
    # The same idempotency key of another client is another grade.
    assert shared.submit(shared.bob, "# 0 private", Idempotency_Key="one")["id"] != grade


def test_a_revoked_token_ends_requests(service):
    served = service()
    assert served.ask("GET", "/metrics", served.alice)[0] == 200
    revoke_tokens(served.state / "tokens", "alice")
    assert served.ask("GET", "/metrics", served.alice)[0] == 401
    assert served.ask("GET", "/metrics", served.bob)[0] == 200


def test_a_token_file_that_others_can_read_has_no_valid_token(service):
    served = service()
    assert served.ask("GET", "/metrics", served.alice)[0] == 200
    (served.state / "tokens").chmod(0o644)
    assert served.ask("GET", "/metrics", served.alice)[0] == 401
    (served.state / "tokens").chmod(0o600)
    assert served.ask("GET", "/metrics", served.alice)[0] == 200


def test_a_large_body_is_refused_before_it_is_sent(shared):
    with socket.create_connection(("127.0.0.1", shared.port), timeout=60) as made:
        head = f"POST /v1/grades HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {shared.alice}\r\n"
        made.sendall(f"{head}Content-Length: {1 << 30}\r\n\r\n".encode())
        assert made.recv(12) == b"HTTP/1.1 413"


@pytest.mark.parametrize("has_token", [True, False])
def test_a_gigabyte_is_never_kept(process, has_token):
    served = process()
    before = served.peak_bytes
    token = served.alice if has_token else "wg_wrong"
    part = b"x" * (1 << 20)
    sent = 0
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as made:
        head = f"POST /v1/grades HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        made.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        try:
            for _ in range(1024):
                made.sendall(b"100000\r\n" + part + b"\r\n")
                sent += len(part)
        except OSError:  # The server has closed the connection.
            pass
    assert sent < 8 * MOST_BODY_BYTES  # Some bytes wait in buffers of the kernel.
    assert served.peak_bytes - before < 8 * MOST_BODY_BYTES
    assert served.ask("GET", "/healthz")[0] == 200


@pytest.mark.parametrize("has_token", [True, False])
def test_a_chunked_body_is_refused_before_a_chunk_is_read(shared, has_token):
    """Chunks of one byte are parsed one by one: strangers stopped the service for a second with 60 kB."""
    token = shared.alice if has_token else "wg_wrong"
    with socket.create_connection(("127.0.0.1", shared.port), timeout=60) as made:
        head = f"POST /v1/grades HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        # The length of the first chunk is invalid: a server that reads the chunk refuses with another status.
        made.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\nno length\r\n".encode())
        assert made.recv(12) == b"HTTP/1.1 411"
        said = b""
        with contextlib.suppress(ConnectionError):
            while part := made.recv(1000):
                said += part
    assert b"send the body in one piece" in said


def test_waiting_requests_of_five_clients_leave_connections_for_a_sixth(service):
    served = service(connections=20)
    with contextlib.ExitStack() as held:
        for token in [served.token(f"greedy{number}") for number in range(5)]:
            grade = served.submit(token, "# gated")["id"]
            head = f"GET /v1/grades/{grade}?wait_s=60 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
            for _ in range(20):
                made = held.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=60))
                made.sendall(head.encode())
                soon(lambda made=made: served.has_read(made))
                if served.ask("GET", "/metrics", token)[0] == 429:
                    break
            else:
                raise AssertionError("no request is refused")
        assert served.ask("GET", "/healthz")[0] == 200
        grade = served.submit(served.alice, "# 0 beside them")["id"]
        served.open_gate()
        assert served.wait(served.alice, grade)["state"] == "finished"


def test_slow_clients_lose_their_connection(service):
    served = service(head_s=1.0, body_s=1.0)
    for sent in (b"", b"GET /healthz HTT"):
        assert loses_its_connection(served, sent)

    def has_a_second_head():  # It has the same limit. On a busy machine, already the first head may be late.
        with socket.create_connection(("127.0.0.1", served.port), timeout=60) as made:
            if first_of(made, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 15) != b"HTTP/1.1 200 OK":
                return False
            made.sendall(b"GET /hea")
            with contextlib.suppress(ConnectionError):
                while made.recv(1000):
                    pass
            return True

    def has_a_late_body():
        with socket.create_connection(("127.0.0.1", served.port), timeout=60) as made:
            head = f"POST /v1/grades HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.alice}\r\n"
            said = first_of(made, f"{head}Content-Length: 100\r\n\r\n{{".encode(), 12)
            assert said in (b"HTTP/1.1 408", b"")
            return said != b""

    soon(has_a_second_head)
    soon(has_a_late_body)


def loses_its_connection(served, sent):
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as made:
        return first_of(made, sent, 100) == b""


def first_of(made, sent, most):
    """Send, and return the first bytes of the response; none from a server that has closed the connection."""
    with contextlib.suppress(ConnectionError):
        made.sendall(sent)
        return made.recv(most)
    return b""


def test_a_stranger_writes_no_traceback_into_the_log(process):
    served = process()
    for authorization in ("", f"Authorization: Bearer {served.alice}\r\n"):
        path = "/v1/problems" if authorization else "/"
        with socket.create_connection(("127.0.0.1", served.port), timeout=60) as made:
            head = f"GET {path} HTTP/1.1\r\nHost: x\r\n{authorization}Transfer-Encoding: chunked\r\n\r\n"
            made.sendall(head.encode())
            assert made.recv(9) == b"HTTP/1.1 "
            made.sendall(b"not a chunk\r\n")  # The response has begun.
            until = time.monotonic() + 30
            with contextlib.suppress(ConnectionError):
                while made.recv(1000):
                    assert time.monotonic() < until
    assert "Traceback" not in served.said


def test_strangers_with_many_connections_do_not_keep_a_client_out(service):
    served = service(connections=20, head_s=600)
    gated = served.submit(served.alice, "# gated")["id"]
    with contextlib.ExitStack() as held:
        waiting = held.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", served.port)))
        waiting.request("GET", f"/v1/grades/{gated}?wait_s=60", headers={"Authorization": f"Bearer {served.alice}"})
        soon(lambda: served.has_read(waiting.sock))
        for number in range(60):
            made = held.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=60))
            if number % 2:
                made.sendall(b"POST /v1/grades HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
        served.open_gate()
        # The request of a client with a token stays.
        assert json.loads(waiting.getresponse().read())["state"] == "finished"
        soon(lambda: open_connections(served.port) <= 21)


def open_connections(port):
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return sum(local.endswith(f":{port:04X}") and state == "01" for _, local, _, state, *_ in lines[1:])


def test_an_address_with_a_slash_is_unknown_and_no_redirect(shared):
    status, headers, _ = shared.ask("GET", "/v1/grades/x/", shared.alice, Host="evil.example")
    assert (status, "location" in headers) == (404, False)


def test_two_authorization_headers_are_refused(shared):
    """A proxy in front may have checked the other one."""
    with socket.create_connection(("127.0.0.1", shared.port), timeout=60) as made:
        headers = "".join(f"Authorization: Bearer {token}\r\n" for token in (shared.alice, shared.bob))
        made.sendall(f"GET /metrics HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())
        assert made.recv(12) == b"HTTP/1.1 401"


def unfinished(served):
    """Return a connection of bob's with most of a large body."""
    made = socket.create_connection(("127.0.0.1", served.port), timeout=60)
    head = f"POST /v1/grades HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.bob}\r\n"
    made.sendall(f"{head}Content-Length: 1000000\r\n\r\n".encode() + b"x" * 900_000)
    return made


def test_the_memory_of_large_bodies_has_a_limit(service):
    served = service(large_bytes=1 << 20, body_s=600)  # longer than the test on a busy machine
    large, small = {"problem": "relu", "source": "# 0 " + "x" * (600 << 10)}, {"problem": "relu", "source": "# 0 s"}
    with contextlib.ExitStack() as bobs:
        open_bodies = [bobs.enter_context(unfinished(served))]

        def refuses_alice():
            if select.select(open_bodies[-1:], [], [], 0)[0]:  # Both bodies arrived at once, and bob's was refused.
                open_bodies.append(bobs.enter_context(unfinished(served)))
            return served.ask("POST", "/v1/grades", served.alice, large)[0] == 429

        soon(refuses_alice)
        assert served.ask("POST", "/v1/grades", served.alice, small)[0] == 202
    soon(lambda: served.ask("POST", "/v1/grades", served.alice, large)[0] == 202)


def test_a_reader_that_reads_nothing_loses_its_connection(service):
    served = service(stall_s=0.3)
    grade = served.submit(served.alice, "# 0 " + "x" * (3 << 20))["id"]
    served.wait(served.alice, grade)
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.settimeout(60)
        made.connect(("127.0.0.1", served.port))
        soon(lambda: served.has_connection(made))
        head = f"GET /v1/grades/{grade}/card HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.alice}\r\n\r\n"
        made.sendall(8 * head.encode())  # more than the kernel's buffers hold
        soon(lambda: not served.has_connection(made))
    assert served.ask("GET", f"/v1/grades/{grade}/card", served.alice)[0] == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        ({"problem": "relu"}, 400),
        ({"problem": "relu", "source": 5}, 400),
        ({"problem": "relu", "source": "x", "device": "cpu"}, 400),
        ({"problem": "relu", "source": "x", "name": "a\nb"}, 400),
        ({"problem": "", "source": "x"}, 400),
        (b'{"problem": "relu", "source": "\\ud800"}', 400),
        ({"problem": "../../etc/passwd", "source": "x"}, 422),
        ({"problem": {"name": "mine", "source": "import os"}, "source": "x"}, 403),
        ({"problem": {"name": "mine", "source": "#" * (MOST_PROBLEM + 1)}, "source": "x"}, 400),
        ({"problem": "relu", "source": "x", "more": [[[[]]]]}, 400),
        (b'{"problem": {"name": ' + b'{"a":' * 1_000_000, 400),
        (b'{"problem": ' + b"9" * 5_000_000 + b"}", 400),
    ],
)
def test_an_invalid_submission_is_refused_with_a_reason(shared, body, status):
    found, _, said = shared.ask("POST", "/v1/grades", shared.alice, body)
    assert (found, bool(json.loads(said)["error"])) == (status, True)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/grades/x?wait_s=nan", {}, 400),
        ("/v1/grades/x?wait_s=1e9", {}, 400),
        ("/v1/grades?limit=0", {}, 400),
        ("/v2", {}, 404),
    ],
)
def test_an_invalid_question_is_refused_with_a_reason(shared, caplog, path, headers, status):
    found, _, said = shared.ask("GET", path, shared.alice, **headers)
    assert (found, bool(json.loads(said)["error"])) == (status, True)
    assert not caplog.records


def test_no_token_is_in_the_log_or_in_the_state(process):
    served = process()
    served.wait(served.alice, served.submit(served.alice, "# 0 a")["id"])
    served.ask("GET", f"/v1/grades?token={served.alice}", "wg_wrong")
    assert served.end() == 0
    for path in served.state.iterdir():
        content = path.read_bytes()
        assert served.alice.encode() not in content, path
        assert b"wg_wrong" not in content, path
        assert path.stat().st_mode & 0o077 == 0 or path.name == "stderr", path
