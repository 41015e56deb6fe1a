"""Services with a fake judge, in a thread of this process or in a process, and raw requests to them."""

import contextlib
import http.client
import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra warpgrade[http]")
pytest.importorskip("httpx", reason="needs the extra warpgrade[http]")
pytest.importorskip("prometheus_client", reason="needs the extra warpgrade[http]")

from evaluator.service.server import Program
from evaluator.service.tokens import add_token
from tests.service import fake_service

TOP = Path(__file__).parents[2]
MODEL = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"


class Service:
    """A service in a thread of this process."""

    def __init__(self, state, **named):
        self.state = state
        self.named = named
        self.port = None
        self._lines = []
        self._program = None
        self._thread = threading.Thread(target=self._serve)
        state.mkdir(mode=0o700, exist_ok=True)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        self._thread.start()
        soon(lambda: self.port is not None or not self._thread.is_alive())
        return self.until_up()

    def _serve(self):
        with fake_service.opened(self.state, 0, self._lines.append, self.named) as door:
            self._program = Program(door, self._lines.append)
            self.port = door.listener.getsockname()[1]
            self._program.run()

    @property
    def said(self):
        return "\n".join(self._lines)

    @property
    def is_alive(self):
        return self._thread.is_alive()

    def until_up(self):
        until = time.monotonic() + 300
        while True:
            try:
                if self.ask("GET", "/healthz")[0] == 200:
                    return self
            except OSError:
                pass
            assert self.is_alive, self.said
            assert time.monotonic() < until
            time.sleep(0.02)

    def close(self):
        self.open_gate()
        if self._program is not None:
            self._program.stop()
        self._thread.join(300)

    def token(self, client):
        return add_token(self.state / "tokens", client)

    @property
    def graded(self):
        path = self.state / "graded"
        return path.read_text().splitlines() if path.exists() else []

    def open_gate(self):
        (self.state / "gate").touch()

    def state_of(self, token, grade):
        return json.loads(self.ask("GET", f"/v1/grades/{grade}", token)[2])["state"]

    def has_connection(self, made):
        """Return whether the server's end of a socket is open."""
        return self._queues(made, at_server=True) is not None

    def has_read(self, made):
        """Return whether the server has read all that was sent on a socket."""
        own, its = self._queues(made, at_server=False), self._queues(made, at_server=True)
        empty = "0" * 8
        return own is not None and own.startswith(empty) and its is not None and its.endswith(empty)

    def _queues(self, made, *, at_server):
        """Return the kernel's `SENT:RECEIVED` of one end of an open connection; None without one."""
        ends = [f"0100007F:{port:04X}" for port in (self.port, made.getsockname()[1])]
        wanted = [*(ends if at_server else ends[::-1]), "01"]
        lines = map(str.split, Path("/proc/net/tcp").read_text().splitlines())
        return next((line[4] for line in lines if line[1:4] == wanted), None)

    def ask(self, method, path, token=None, body=None, **headers):
        """Return status, headers and body of a response."""
        made = http.client.HTTPConnection("127.0.0.1", self.port, timeout=180)  # longer than any `wait_s`
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        try:
            made.request(method, path, body if isinstance(body, bytes | None) else json.dumps(body), headers)
            response = made.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            made.close()

    def submit(self, token, source, problem="relu", **headers):
        status, _, body = self.ask("POST", "/v1/grades", token, {"problem": problem, "source": source}, **headers)
        assert status in (200, 202), body
        return json.loads(body)

    def wait(self, token, grade):
        status, _, body = self.ask("GET", f"/v1/grades/{grade}?wait_s=60", token)
        assert status == 200, body
        return json.loads(body)


class ServiceProcess(Service):
    """A process of the service. `start` after `kill` continues with the same state and port."""

    def __init__(self, state, **named):
        super().__init__(state, **named)
        self._held = held_port()
        self.port = self._held.getsockname()[1]
        self.process = None

    def launch(self):
        """Start the process without waiting for a response."""
        named = [f"{name}={value}" for name, value in self.named.items()]
        command = [sys.executable, "-m", "tests.service.fake_service", str(self.state), str(self.port), *named]
        with (self.state / "stderr").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=TOP, stderr=log)

    def start(self):
        self.launch()
        return self.until_up()

    @property
    def is_alive(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(300)

    def close(self):
        if self.process is not None:
            self.kill()
        self._held.close()

    @property
    def said(self):
        return (self.state / "stderr").read_text()

    @property
    def stored(self):
        """States of all grades in the journal of an ended service, and whether they have a card."""
        with contextlib.closing(sqlite3.connect(self.state / "journal.sqlite")) as connection:
            return connection.execute("SELECT state, card IS NOT NULL FROM grades").fetchall()

    @property
    def peak_bytes(self):
        return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())[1]) << 10


@contextlib.contextmanager
def started(kind, tmp_path):
    """Factory of started services of a kind, with the clients alice and bob."""
    made = []

    def start(**named):
        found = kind(tmp_path / f"state{len(made)}", **named)
        made.append(found)
        found.alice, found.bob = found.token("alice"), found.token("bob")
        return found.start()

    try:
        yield start
    finally:
        for each in made:
            each.close()


@pytest.fixture
def service(tmp_path, monkeypatch):
    """Factory of started services in this process: `service(at_once=1)`."""
    with started(Service, tmp_path) as start:

        def start_with_limits(**named):
            fake_service.set_limits(monkeypatch.setattr, named)
            return start(**named)

        yield start_with_limits


@pytest.fixture
def process(tmp_path):
    """Factory of started processes: `process(at_once=1)`."""
    with started(ServiceProcess, tmp_path) as start:
        yield start


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A service that the tests share."""
    with started(Service, tmp_path_factory.mktemp("service")) as start:
        yield start()


def held_port():
    """Return a socket with a port of its own, on which a service may listen, and no other program until its close."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def soon(what):
    until = time.monotonic() + 300
    while not what():
        assert time.monotonic() < until
        time.sleep(0.01)
