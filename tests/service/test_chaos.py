"""A hundred clients, two thousand submissions, a server that is killed, and hostile clients beside: nothing is lost."""

import http.client
import random
import socket
import threading
import time
from collections import Counter

import pytest

from warpgrade import Candidate, RemoteGrader

SLOW, WRONG, LARGE = 20, 4, 2


class Hostile:
    """Threads of clients that hold connections, guess tokens and send large bodies, until `end`."""

    def __init__(self, served, *, slow=SLOW, wrong=WRONG, large=LARGE):
        self.served = served
        self.ending = threading.Event()
        self.statuses = Counter()
        targets = [self._hold] * slow + [self._guess] * wrong + [self._flood] * large
        self.threads = [threading.Thread(target=self._repeat, args=(each,)) for each in targets]
        for thread in self.threads:
            thread.start()

    def end(self):
        self.ending.set()
        for thread in self.threads:
            thread.join(60)

    def _repeat(self, target):
        while not self.ending.is_set():
            try:
                target()
            except (OSError, http.client.HTTPException):  # The server was killed, or has closed the connection.
                self.ending.wait(0.05)

    def _hold(self):
        with socket.create_connection(("127.0.0.1", self.served.port), timeout=60) as made:
            for letter in "POST /v1/grades HTTP/1.1\r\n":
                made.sendall(letter.encode())
                if self.ending.wait(0.3):
                    return

    def _guess(self):
        token = f"wg_{random.randbytes(32).hex()}"
        self.statuses[self.served.ask("GET", "/metrics", token)[0]] += 1
        self.ending.wait(0.05)

    def _flood(self):
        with socket.create_connection(("127.0.0.1", self.served.port), timeout=60) as made:
            head = f"POST /v1/grades HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.served.bob}\r\n"
            made.sendall(f"{head}Content-Length: {1 << 30}\r\n\r\n".encode())
            for _ in range(1 << 10):
                made.sendall(b"x" * (1 << 20))


def graded_by_all(served, clients, each, kills, pause_s):
    """Let each client grade `each` submissions while the server is killed; return the sources of cards by client."""
    found = {}

    def client(name, token):
        candidates = [Candidate("relu", f"# 5 {name} {number}") for number in range(each)]
        with RemoteGrader(served.url, token) as grader:
            found[name] = [card.submission.source for card in grader.grade_many(candidates)]

    tokens = {f"client-{number}": served.token(f"client-{number}") for number in range(clients)}
    threads = [threading.Thread(target=client, args=pair) for pair in tokens.items()]
    for thread in threads:
        thread.start()
    for _ in range(kills):
        time.sleep(pause_s)
        served.kill()
        served.start()
    for thread in threads:
        thread.join(600)
    return found


def check(served, found, clients, each, kills, at_once):
    wanted = {f"client-{number}": [f"# 5 client-{number} {n}" for n in range(each)] for number in range(clients)}
    assert found == wanted
    times = Counter(served.graded)
    assert times.keys() == {source for sources in wanted.values() for source in sources}
    assert times.total() - len(times) <= kills * at_once  # Only grades in progress at a kill are graded again.


def test_a_few_clients_lose_nothing(process):
    served = process(at_once=4, head_s=0.5)
    hostile = Hostile(served, slow=4, wrong=1, large=1)
    try:
        found = graded_by_all(served, clients=6, each=25, kills=1, pause_s=0.3)
    finally:
        hostile.end()
    check(served, found, clients=6, each=25, kills=1, at_once=4)
    assert hostile.statuses.keys() <= {401}


@pytest.mark.long
def test_a_hundred_clients_lose_nothing(process):
    served = process(at_once=8, head_s=2.0)
    hostile = Hostile(served)
    try:
        found = graded_by_all(served, clients=100, each=20, kills=8, pause_s=2.0)
        peak_bytes = served.peak_bytes
    finally:
        hostile.end()
    check(served, found, clients=100, each=20, kills=8, at_once=8)
    assert hostile.statuses[401] > 0
    assert hostile.statuses.keys() <= {401}
    assert peak_bytes < 512 << 20
    assert "Traceback" not in served.said
