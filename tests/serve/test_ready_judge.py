"""A real server with real workers: the same card, and whatever is killed costs one grade at most."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

import msgspec
import pytest

from evaluator.files.card_files import read_card
from evaluator.records import Scorecard, Status
from tests.grading.harness import TOP, module, nobody_left_behind, passable_folder
from tests.serve.conftest import soon

RIGHT = module()
WRONG = module(forward=("return torch.relu(x) + 1",))
ENDLESS = module("import time", forward=("time.sleep(3600)",))
CRASHING = module("import os", forward=("os.abort()",))
KNOCKING = module(
    "import os, socket",
    "def reached(path):",
    "    try:",
    "        with socket.socket(socket.AF_UNIX) as made: made.connect(path)",
    "    except OSError:",
    "        return 0",
    "    return 1",
    forward=("return torch.relu(x) + reached(PATH)",),
)
OPTIONS = ("--device", "cpu", "--size", "awkward")
_LIMIT_S = 300
_COMMAND = (sys.executable, str(TOP / "cli.py"))
_OF_ONE_GRADE = {"seeds", "graded_at", "stages_s", "wall_s", "checks", "timing"}
"""Fields of a card with times, seeds, and the random choice of input distributions."""


class Judge:
    """A server in a process of its own, and clients."""

    def __init__(self, folder, cache, temporary):
        self.folder = folder
        keep = {name: value for name, value in os.environ.items() if not name.startswith("WARPGRADE")}
        self.environment = {
            **keep,
            "WARPGRADE_CACHE": str(cache),
            "TMPDIR": str(temporary),
            "XDG_RUNTIME_DIR": str(temporary),
        }
        self.log = folder / "serve.log"
        self.process = None

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*_COMMAND, "serve", "--device", "cpu"], env=self.environment, stderr=log
            )
        soon(lambda: self.status() is not None or self.process.poll() is not None)

    def status(self):
        done = self.run("serve", "--status")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def run(self, *arguments, **variables):
        return subprocess.run(
            [*_COMMAND, *arguments],
            cwd=self.folder,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )

    def grade(self, source, *options, name="mine", **variables):
        """Grade; return the finished process and the card."""
        (self.folder / f"{name}.py").write_text(source)
        target = self.folder / f"{name}.json"
        target.unlink(missing_ok=True)
        done = self.run("grade", "relu", f"{name}.py", *OPTIONS, "--output", str(target), *options, **variables)
        return done, read_card(target) if target.exists() else None

    def in_background(self, source, name, *options):
        """Start a grade; return a function that waits for the result."""
        results = []
        thread = threading.Thread(target=lambda: results.append(self.grade(source, *options, name=name)))
        thread.start()

        def result():
            thread.join(_LIMIT_S)
            return results[0]

        return result

    def busy_workers(self):
        status = self.status()
        return [each["pid"] for each in status["workers"] if each["busy"] and each["problem"]] if status else []

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(60)
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def cache():
    with passable_folder() as folder:
        yield folder


@pytest.fixture
def judge(tmp_path, cache):
    with nobody_left_behind(), passable_folder() as temporary:
        made = Judge(tmp_path, cache, temporary)
        made.start()
        try:
            yield made
        finally:
            made.end()


def facts(card: Scorecard):
    found = {name: value for name, value in msgspec.to_builtins(card).items() if name not in _OF_ONE_GRADE}
    found["build"] = {name: value for name, value in found["build"].items() if name != "import_s"}
    found["findings"] = [each["code"] for each in found["findings"] if each["code"][0] != "T"]  # noise of the clock
    found["reason"] = found["reason"] and found["reason"]["code"]
    return found | {"timed": card.timing is not None, "checked": bool(card.checks)}


@pytest.mark.slow
def test_the_card_is_the_same(judge):
    for source, status in ((RIGHT, Status.CORRECT), (WRONG, Status.WRONG_RESULT), (CRASHING, Status.RUNTIME_ERROR)):
        ready, its_card = judge.grade(source)
        alone, own_card = judge.grade(source, "--no-ready")
        assert "graded by the ready judge" in ready.stderr
        assert "ready judge" not in alone.stderr
        assert its_card.status is status
        assert facts(its_card) == facts(own_card)
        assert ready.returncode == alone.returncode
    assert "relu mine: wrong result" in judge.log.read_text()


@pytest.mark.slow
def test_what_the_ready_judge_cannot_do_is_done_here(judge):
    _, card = judge.grade(RIGHT, name="first")
    unconfined, _ = judge.grade(RIGHT, "--sandbox", "none")
    replayed, _ = judge.grade(RIGHT, "--replay", "first.json")
    elsewhere, _ = judge.grade(RIGHT, OMP_NUM_THREADS="1")
    for done, reason in (
        (unconfined, "only in the sandbox"),
        (replayed, "the seeds of its card"),
        (elsewhere, "another OMP_NUM_THREADS"),
    ):
        assert "not graded by the ready judge, but here: " in done.stderr
        assert reason in done.stderr
        assert done.returncode == 0, done.stderr
    assert card.status is Status.CORRECT
    assert judge.status()["grades"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("kept", [False, True], ids=["new", "kept"])
def test_a_killed_worker_costs_no_grade(judge, kept):
    if kept:
        judge.grade(RIGHT)
    result = judge.in_background(ENDLESS, "endless", "--timeout", "3")
    soon(judge.busy_workers)
    for pid in judge.busy_workers():
        os.kill(pid, signal.SIGKILL)
    after, card = judge.grade(RIGHT, name="after")
    assert card.status is Status.CORRECT
    assert "graded by the ready judge" in after.stderr
    done, card = result()
    assert card.status is Status.TIMEOUT, done.stderr


@pytest.mark.slow
def test_a_killed_server_costs_no_grade_and_may_start_again(judge):
    judge.grade(RIGHT)
    result = judge.in_background(ENDLESS, "endless", "--timeout", "3")
    soon(judge.busy_workers)
    judge.process.kill()  # `nobody_left_behind` sees to the workers
    judge.process.wait()
    done, card = result()
    assert "the ready judge ended during the grade" in done.stderr
    assert card.status is Status.TIMEOUT
    alone, card = judge.grade(RIGHT)
    assert (card.status, "ready judge" in alone.stderr) == (Status.CORRECT, False)
    judge.start()
    again, card = judge.grade(RIGHT)
    assert card.status is Status.CORRECT
    assert "graded by the ready judge" in again.stderr


@pytest.mark.slow
def test_ctrl_c_in_a_client_ends_its_grade(judge):
    (judge.folder / "endless.py").write_text(ENDLESS)
    with subprocess.Popen(
        [*_COMMAND, "grade", "relu", "endless.py", *OPTIONS], cwd=judge.folder, env=judge.environment
    ) as process:
        soon(judge.busy_workers)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    soon(lambda: "relu endless: abandoned" in judge.log.read_text())
    _, card = judge.grade(RIGHT)
    assert card.status is Status.CORRECT


@pytest.mark.slow
def test_a_signal_ends_the_server_after_its_grade(judge):
    result = judge.in_background(RIGHT, "mine")
    soon(lambda: judge.busy_workers() or "mine" in judge.log.read_text())
    judge.process.terminate()
    done, card = result()
    assert card.status is Status.CORRECT, done.stderr
    assert judge.process.wait(60) == 0
    assert judge.run("serve", "--stop").returncode == 2


@pytest.mark.slow
def test_a_second_server_is_refused_and_stop_ends_the_first(judge):
    second = judge.run("serve", "--device", "cpu")
    assert second.returncode == 2
    assert f"running already (process {judge.process.pid})" in second.stderr
    assert judge.run("serve", "--stop", "--status").returncode == 2
    stopped = judge.run("serve", "--stop")
    assert (stopped.returncode, stopped.stderr.strip()) == (0, "the ready judge has ended")
    assert judge.process.wait(60) == 0


@pytest.mark.slow
def test_a_submission_does_not_reach_the_socket(judge):
    path = judge.status()["socket"]
    done, card = judge.grade(KNOCKING.replace("PATH", repr(path)))
    assert "graded by the ready judge" in done.stderr
    assert card.status is Status.CORRECT, card.reason
