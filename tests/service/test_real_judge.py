"""The service of the command line with real workers, which are killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from evaluator.records import Status
from evaluator.submission.read import read_submission
from tests import once
from tests.batch.fake_cluster import ADDRESS
from tests.grading.folders import HALVES, write
from tests.service.conftest import MODEL, TOP, ServiceProcess, soon
from warpgrade import Candidate, RemoteGrader, UsageError


class RealService(ServiceProcess):
    """`warpgrade serve --http`."""

    program = ("cli.py",)
    options = ("--device", "cpu", "--require-own-kernel", "0.5")
    environment = None

    def launch(self):
        place = ["--http", f"127.0.0.1:{self.port}", "--state", str(self.state)]
        command = [sys.executable, *self.program, "serve", *place, *self.options]
        with (self.state / "stderr").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=TOP, stderr=log, env=self.environment)

    def workers(self):
        found = []
        for each in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # a dead worker, before or after its parent knows
                if "evaluator.batch.workers" in " ".join(each.cmdline()):
                    found.append(each)
        return found

    def wait(self, token, grade):
        """Wait for the end of a real grade, which takes long on a busy machine."""
        until = time.monotonic() + 600
        while (found := super().wait(token, grade))["state"] in ("queued", "grading"):
            assert time.monotonic() < until
        return found


class ClusterService(RealService):
    """The service in front of a fake cluster."""

    program = ("-m", "tests.batch.fake_cluster")
    options = ("--device", "emulated", "--ray", ADDRESS)


class RayService(RealService):
    """The service in front of a Ray cluster of this machine."""

    options = ("--device", "emulated", "--size", "awkward", "--ray", "local", "--jobs", "1")


class EmulatedService(RealService):
    """The service on the emulated device, with the builds of other tests."""

    options = ("--device", "emulated", "--size", "awkward")

    @property
    def environment(self):
        return os.environ | {"WARPGRADE_CACHE": str(once.folder_for("cache"))}


@pytest.fixture
def started(tmp_path):
    """Factory of started services."""
    made = []

    def start(kind):
        made.append(kind(tmp_path / "state"))
        made[0].alice = made[0].token("alice")
        return made[0].start()

    yield start
    for each in made:
        each.close()


def test_the_machines_of_a_cluster_grade_for_the_service(started):
    served = started(ClusterService)
    sources = [f"# {number}" for number in range(6)] + ["# power cut"]
    with RemoteGrader(served.url, served.alice) as grader:
        cards = grader.grade_many([Candidate("relu", source) for source in sources])
    assert [card.submission.source for card in cards] == sources
    assert {card.status.value for card in cards} == {"correct"}
    assert served.end() == 0


def test_the_service_ends_with_the_last_machine_and_keeps_the_grade(started):
    served = started(ClusterService)
    served.submit(served.alice, "x = 1  # all power cuts")
    assert served.process.wait(300) == 3
    assert "no machine is left" in served.said
    assert served.stored == [("queued", 0)]


@pytest.mark.slow
def test_an_actor_of_ray_grades_for_the_service(started):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'warpgrade[ray]'")
    served = started(RayService)
    with RemoteGrader(served.url, served.alice) as grader:
        card = grader.grade("relu", MODEL)
    assert (card.status.value, card.device.kind.value, card.submission.source) == ("correct", "emulated", MODEL)
    assert served.end() == 0


@pytest.mark.slow
def test_a_killed_worker_costs_no_grade(started):
    real = started(RealService)
    grade = real.submit(real.alice, MODEL)["id"]
    soon(lambda: real.state_of(real.alice, grade) == "grading" and real.workers())
    real.workers()[0].kill()
    final = real.wait(real.alice, grade)
    assert (final["state"], final["verdict"]) == ("finished", "rejected")  # It has no own kernel.
    card = json.loads(real.ask("GET", f"/v1/grades/{grade}/card", real.alice)[2])
    assert (card["required_own_kernel"], card["submission"]["source"]) == (0.5, MODEL)
    left = psutil.Process(real.process.pid).children(recursive=True)
    real.process.send_signal(signal.SIGTERM)
    assert real.process.wait(300) == 0
    assert psutil.wait_procs(left, 300)[1] == []


@pytest.mark.long
def test_workers_and_server_killed_in_turn_cost_no_grade(started):
    real = started(RealService)
    sources = [f"# {number}\n{MODEL}" for number in range(12)]
    with RemoteGrader(real.url, real.alice) as grader:
        futures = [grader.submit("relu", source) for source in sources]
        for turn in range(4):
            wanted = 2 * turn + 1
            soon(lambda wanted=wanted: sum(each.done() for each in futures) >= wanted and real.workers())
            if turn % 2:
                left = psutil.Process(real.process.pid).children(recursive=True)
                real.kill()
                assert psutil.wait_procs(left, 300)[1] == []
                real.start()
            else:
                real.workers()[0].kill()
        cards = [future.result(300) for future in futures]
    assert [card.submission.source for card in cards] == sources
    assert {card.status.value for card in cards} == {"rejected"}


@pytest.mark.long
def test_a_folder_is_graded_by_a_service_elsewhere(started, tmp_path):
    real = started(EmulatedService)
    folder = write(tmp_path / "right", HALVES)
    with RemoteGrader(real.url, real.alice) as grader:
        card = grader.grade("relu", folder)
        with pytest.raises(UsageError, match=r"csrc/-k\.cu"):
            grader.grade("relu", write(tmp_path / "wrong", HALVES | {"csrc/-k.cu": ""}))
    assert card.status is Status.CORRECT, card.reason
    assert card.submission.source == read_submission(folder).source
