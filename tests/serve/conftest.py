"""A ready judge in this process, with workers that grade in no time, behind a socket in a folder of the test."""

import contextlib
import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest

from evaluator.api import ready_client
from evaluator.batch.workers import worker_pool
from evaluator.batch.workers.messages import WorkerOrder
from evaluator.batch.workers.worker_handle import NoWorker
from evaluator.catalog import find_problem
from evaluator.grade_options import GradeOptions
from evaluator.grading import card
from evaluator.records import DeviceKind
from evaluator.service.local_door import DeviceGraders, local_door
from evaluator.service.server import Program
from tests.batch.fakes import FakeWorker, text_submission


class FakeReadyWorker(FakeWorker):
    """A fake worker that can be prepared."""

    pid = 1 << 30

    def prepare(self, request):
        self.prepared = request
        return True


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the socket."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.delenv("WARPGRADE_READY", raising=False)
    monkeypatch.setattr(ready_client, "_GREETING_S", 300.0)  # on a busy machine, a client would grade itself
    return tmp_path / "runtime" / "warpgrade"


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(FakeWorker, "graded", Counter(), raising=False)
    monkeypatch.setattr(FakeWorker, "started", [], raising=False)
    monkeypatch.setattr(worker_pool, "BACKOFF_S", (0.0, 0.0))
    monkeypatch.setattr(card, "_cpu_name", lambda: "a processor")
    return FakeReadyWorker


@pytest.fixture
def served(folder, worker):
    """Starts a server: `with served() as server`. `said` has its lines, `stop` ends it."""

    @contextlib.contextmanager
    def start(*, jobs=2, idle_minutes=10.0):
        said, programs = [], []

        def serve():
            graders = DeviceGraders(jobs, idle_minutes * 60, worker)
            with local_door(graders, DeviceKind.EMULATED, idle_minutes, said.append) as door:
                programs.append(Program(door, said.append))
                programs[0].run()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            soon(lambda: programs and programs[0]._loop is not None and ready_client.is_running())
            yield SimpleNamespace(said=said, stop=programs[0].stop)
        finally:
            programs[0].stop()
            thread.join(300)
            assert not thread.is_alive()

    return start


def soon(what):
    deadline = time.monotonic() + 300
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def refusal(ask, *arguments):
    """Return why no ready judge grades; an empty text without a ready judge."""
    with pytest.raises(NoWorker) as refused:
        ask(*arguments)
    return str(refused.value)


def order(source, problem="relu", **options):
    submission = text_submission(source)
    named = {"device": DeviceKind.EMULATED, **options}
    return WorkerOrder(find_problem(problem), submission, None, GradeOptions(**named))
