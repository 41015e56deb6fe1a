"""A server in a process of its own, for tests with real grades."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
from unittest import mock

import msgspec

from evaluator.api import ready_client
from evaluator.errors import WarpgradeError
from evaluator.files.card_files import read_card
from evaluator.records import Scorecard, Status
from tests import once
from tests.grading.harness import COMMAND as PRELOADED
from tests.grading.harness import TOP, nobody_left_behind, passable_folder
from tests.serve.conftest import soon

PATIENT = f"""
import sys
sys.path.insert(0, {str(TOP)!r})
from evaluator.commands import main
from evaluator.api import ready_client
ready_client._GREETING_S = 300.0
main.main()
"""
COMMAND = (sys.executable, "-P", "-c", PATIENT)
"""The command line, with patience for a ready judge on a busy machine: after 5 s, a client would grade itself."""
LIMIT_S = 300
_OF_ONE_GRADE = {"seeds", "graded_at", "stages_s", "wall_s", "checks", "timing", "roofline"}
"""Fields of a card with times, seeds, and the random choice of input distributions."""


class Judge:
    """A server in a process of its own, and clients."""

    size = "awkward"

    def __init__(self, device, folder, cache, temporary):
        self.device = device
        self.folder = folder
        runtime = temporary / "runtime"  # Not `temporary` itself, in which other tests of the session look for remains.
        runtime.mkdir(mode=0o700, exist_ok=True)
        keep = {name: value for name, value in os.environ.items() if not name.startswith("WARPGRADE")}
        self.environment = {
            **keep,
            "WARPGRADE_CACHE": str(cache),
            "TMPDIR": str(temporary),
            "XDG_RUNTIME_DIR": str(runtime),
        }
        self.log = folder / "serve.log"
        self.process = None

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "serve", "--device", self.device], env=self.environment, stderr=log
            )
        soon(lambda: self.status() is not None or self.process.poll() is not None)

    def status(self):
        """Return the status, None without a server. Asked here, because a command may start later than a grade ends."""
        patient = mock.patch.object(ready_client, "_GREETING_S", float(LIMIT_S))
        with patient, mock.patch.dict(os.environ, self.environment), contextlib.suppress(WarpgradeError):
            return json.loads(ready_client.status())
        return None

    def run(self, *arguments, **variables):
        """Run a command to its end. Without a GPU, it is forked from a process that has imported PyTorch."""
        if self.device == "cuda":
            return self.run_alone(*arguments, **variables)
        environment = {**self.environment, **variables}
        done = PRELOADED.run(arguments, cwd=self.folder, env=environment, stdin=None, timeout_s=LIMIT_S)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def run_alone(self, *arguments, **variables):
        """Run a command in a process of its own, beside others."""
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def grade(self, source, *options, name="mine", **variables):
        """Grade; return the finished process and the card."""
        return self._graded(self.run, source, options, name, variables)

    def _graded(self, run, source, options, name, variables):
        (self.folder / f"{name}.py").write_text(source)
        target = self.folder / f"{name}.json"
        target.unlink(missing_ok=True)
        device = ("--device", self.device, "--size", self.size)
        done = run("grade", "relu", f"{name}.py", *device, "--output", str(target), *options, **variables)
        return done, read_card(target) if target.exists() else None

    def in_background(self, source, name, *options):
        """Start a grade; return a function that waits for the result."""
        results = []
        grade = functools.partial(self._graded, self.run_alone, source, options, name, {})
        thread = threading.Thread(target=lambda: results.append(grade()))
        thread.start()

        def result():
            thread.join(LIMIT_S)
            return results[0]

        return result

    def busy_workers(self):
        status = self.status()
        return [each["pid"] for each in status["workers"] if each["busy"] and each["problem"]] if status else []

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(LIMIT_S)
            self.process.kill()
            self.process.wait()


def facts(card: Scorecard):
    found = {name: value for name, value in msgspec.to_builtins(card).items() if name not in _OF_ONE_GRADE}
    found["build"] = {name: value for name, value in found["build"].items() if name == "ok"}
    found["device"] = {name: value for name, value in found["device"].items() if name != "gpu"}
    found["findings"] = [each["code"] for each in found["findings"] if each["code"][0] != "T"]  # noise of the clock
    found["reason"] = found["reason"] and found["reason"]["code"]
    return found | {"timed": card.timing is not None, "checked": bool(card.checks)}


@contextlib.contextmanager
def started(folder):
    """Start a ready judge for the CPU; nothing of it may be left at the end."""
    PRELOADED.start("cpu")
    with nobody_left_behind(), passable_folder() as temporary:
        made = Judge("cpu", folder, once.folder_for("cache"), temporary)
        made.start()
        try:
            yield made
        finally:
            made.end()


def assert_that_a_killed_worker_costs_no_grade(judge, endless, right):
    """Kill the worker of an endless grade: the grade is made again, and another grade meanwhile."""
    result = judge.in_background(endless, "endless", "--timeout", "3")
    soon(judge.busy_workers)
    for pid in judge.busy_workers():
        os.kill(pid, signal.SIGKILL)
    after, card = judge.grade(right, name="after")
    assert card.status is Status.CORRECT
    assert "graded by the ready judge" in after.stderr
    done, card = result()
    assert card.status is Status.TIMEOUT, done.stderr
