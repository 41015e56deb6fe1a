"""The server of a live page: accepted and refused requests."""

import http.client
import socket
import threading
import time

import pytest

from evaluator.errors import CardError, UsageError
from evaluator.service import server as service
from evaluator.view.server import MOST_CONNECTIONS, ViewServer


class Live:
    """A page that a test can break."""

    fault = None

    def page(self):
        if self.fault is not None:
            raise self.fault
        return "<p>é</p>".encode()

    def version(self):
        return "7"


@pytest.fixture
def served(monkeypatch):
    monkeypatch.setattr(service, "HEAD_S", 60.0)
    said = []
    with ViewServer(Live(), 0, said.append) as server:
        server.said = said
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server, path=None, method="GET", **headers):
    connection = http.client.HTTPConnection(*server.server_address, timeout=30)
    connection.request(method, f"/{server.secret}/" if path is None else path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def raw(server, sent):
    with socket.create_connection(server.server_address, timeout=30) as connection:
        connection.sendall(sent)
        received = b""
        while piece := connection.recv(1 << 16):
            received += piece
        return received


def test_the_page_and_its_version_are_served(served):
    answer, content = ask(served)
    assert (answer.status, content.decode()) == (200, "<p>é</p>")
    assert answer.getheader("Content-Type") == "text/html; charset=utf-8"
    assert answer.getheader("Cache-Control") == "no-store"
    assert answer.getheader("Content-Security-Policy") == "frame-ancestors 'none'"
    assert answer.getheader("Referrer-Policy") == "no-referrer"
    assert answer.getheader("Server") is None
    answer, content = ask(served, f"/{served.secret}/version")
    assert (answer.status, content, answer.getheader("Content-Type")) == (200, b"7", "text/plain; charset=utf-8")


def test_it_listens_on_this_machine_alone(served):
    assert served.server_address[0] == "127.0.0.1"
    assert served.address == f"http://127.0.0.1:{served.server_address[1]}/{served.secret}/"


@pytest.mark.parametrize("path", ["/", "/version", "/wrong/", "/%2e%2e/", "/%ff/", "//127.0.0.1/", "/../../etc/passwd"])
def test_without_the_secret_nothing_is_served(served, path):
    got = raw(served, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode("latin-1"))
    assert got.startswith(b"HTTP/1.1 404 ")
    assert served.secret.encode() not in got


def test_two_servers_have_two_secrets(served):
    with ViewServer(Live(), 0, print) as other:
        assert other.secret != served.secret
        assert len(other.secret) >= 24


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1234", "LOCALHOST", "127.0.0.1:80"])
def test_names_of_this_machine_are_answered(served, host):
    assert ask(served, Host=host)[0].status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "", "127.0.0.1@evil", "127.0.0.1:x", "[::1]"]
)
def test_a_page_under_another_name_is_not_answered(served, host):
    answer, content = ask(served, Host=host)
    assert (answer.status, b"<p>" in content) == (403, False)


@pytest.mark.parametrize(
    ("version", "hosts", "status"),
    [
        (b"1.1", b"", b" 400 "),
        (b"1.1", b"Host: 127.0.0.1\r\nHost: evil.example\r\n", b" 400 "),
        (b"1.0", b"", b" 403 "),
    ],
    ids=["none", "two", "none in HTTP/1.0"],
)
def test_a_request_has_one_host(served, version, hosts, status):
    head = b"GET /%s/ HTTP/%s\r\nConnection: close\r\n%s\r\n"
    got = raw(served, head % (served.secret.encode(), version, hosts))
    assert status in got.partition(b"\r\n")[0]
    assert b"<p>" not in got


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_only_get_is_answered(served, method):
    got = raw(served, f"{method} /{served.secret}/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert got.startswith(b"HTTP/1.1 405 ")
    assert b"allow: GET\r\n" in got


@pytest.mark.parametrize(
    "sent",
    [
        b"<img>\r\n\r\n",
        b"<script> / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=["no request", "no method", "a long path"],
)
def test_what_is_not_a_request_is_refused(served, sent):
    got = raw(served, sent)
    assert got.startswith(b"HTTP/1.1 400 ")
    assert b"<" not in got
    assert ask(served)[0].status == 200


def test_a_fault_of_the_run_is_told_to_the_page(served):
    served.live.fault = CardError("run is not a run folder")
    answer, content = ask(served)
    assert (answer.status, content) == (503, b"run is not a run folder\n")
    assert served.said == []


def test_a_surprise_is_one_line_and_ends_nothing(served):
    served.live.fault = ZeroDivisionError("x\n\x1b[2J")
    assert ask(served)[0].status == 500
    served.live.fault = None
    assert ask(served)[0].status == 200
    assert served.said == [r"error: a request was not answered: ZeroDivisionError('x\n\x1b[2J')"]


def test_silent_clients_keep_nobody_out_and_are_bounded(served, monkeypatch):
    monkeypatch.setattr(service, "HEAD_S", 600.0)
    silent = [socket.create_connection(served.server_address, timeout=60) for _ in range(2 * MOST_CONNECTIONS)]
    try:
        for _ in range(3):
            assert ask(served)[0].status == 200
        assert silent[0].recv(1) == b""  # the oldest made room
    finally:
        for connection in silent:
            connection.close()


def test_a_client_that_sends_a_byte_now_and_then_is_closed(served, monkeypatch):
    def drip(slow):
        for _ in range(2000):
            slow.sendall(b"G")
            time.sleep(0.05)

    with monkeypatch.context() as hasty:
        hasty.setattr(service, "HEAD_S", 0.3)
        address = served.server_address
        with socket.create_connection(address, timeout=60) as slow, pytest.raises(OSError, match=r"Errno"):
            drip(slow)
    assert ask(served)[0].status == 200


def test_a_complete_request_is_not_closed_for_another_connection(served, monkeypatch):
    asked, answered = threading.Event(), threading.Event()

    def page():
        asked.set()
        assert answered.wait(60)
        return b"late"

    served.live.page = page
    found = []
    thread = threading.Thread(target=lambda: found.append(ask(served)[1]))
    thread.start()
    assert asked.wait(60)
    others = [socket.create_connection(served.server_address) for _ in range(2 * MOST_CONNECTIONS)]
    assert ask(served, "/")[0].status == 404
    answered.set()
    thread.join(60)
    for connection in others:
        connection.close()
    assert found == [b"late"]


def test_a_large_page_arrives_whole(served):
    large = bytes(range(256)) * (32 << 10)
    served.live.page = lambda: large
    answer, content = ask(served)
    assert content == large
    assert int(answer.getheader("Content-Length")) == 8 << 20


def test_a_used_port_is_named(served):
    port = served.server_address[1]
    with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
        ViewServer(Live(), port, print)
