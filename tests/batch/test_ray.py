"""A batch on a Ray cluster: several nodes of one machine, made by `ray start`, one of them killed in the middle.

WARPGRADE_RAY_SUBMISSIONS says how many submissions the large test hands in; 12 if it says nothing.
"""

import contextlib
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from evaluator.files.card_files import read_card
from evaluator.records import Status
from tests.grading.harness import TOP, module, passable_folder

pytest.importorskip("ray", reason="Ray is not installed: pip install 'warpgrade[ray]'")
pytestmark = pytest.mark.slow

COUNT = int(os.environ.get("WARPGRADE_RAY_SUBMISSIONS", "12"))
RIGHT = module()
WRONG = module(forward=("return torch.relu(x) + 1",))
CRASHING = module("import os", forward=("os.abort()",))
KINDS = [(RIGHT, Status.CORRECT), (WRONG, Status.WRONG_RESULT), (CRASHING, Status.RUNTIME_ERROR)]
_START_S = 120
_LIMIT_S = 3000


def free_port():
    """Find a port above those of Ray's workers, and below those that the kernel gives to programs without a choice."""
    for port in random.SystemRandom().sample(range(20000, 32000), 100):
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


class Nodes:
    """Nodes of a cluster, each a `ray start --block` of its own."""

    def __init__(self, folder, environment):
        self._folder, self._environment = folder, environment
        self.address = f"127.0.0.1:{free_port()}"
        self.processes = []

    def start(self, cpus=1):
        """Start one; the first is the head. It has joined when this returns."""
        ray = [str(Path(sys.executable).with_name("ray")), "start", "--block", f"--num-cpus={cpus}", "--num-gpus=0"]
        ray += [f"--object-store-memory={100 << 20}", "--disable-usage-stats"]
        if self.processes:
            ray.append(f"--address={self.address}")
        else:
            port = self.address.rpartition(":")[2]
            ray += ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={self._folder}"]
        log = (self._folder / f"node-{len(self.processes)}.log").open("wb")
        with log:
            process = subprocess.Popen(
                ray, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.processes.append(process)
        deadline = time.monotonic() + _START_S
        while not self._has_joined(process):
            assert process.poll() is None, (self._folder / f"node-{len(self.processes) - 1}.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def _has_joined(self, process):
        with contextlib.suppress(psutil.Error):
            below = psutil.Process(process.pid).children(recursive=True)
            return any("raylet" in " ".join(each.cmdline()[:1]) for each in below)
        return False

    def kill(self, process):
        """Kill a node and everything on it, as a machine that loses its power."""
        with contextlib.suppress(psutil.Error):
            below = psutil.Process(process.pid).children(recursive=True)
            for each in [psutil.Process(process.pid), *below]:
                with contextlib.suppress(psutil.Error):
                    each.send_signal(signal.SIGKILL)
        process.wait()

    def close(self):
        for process in reversed(self.processes):
            self.kill(process)


@pytest.fixture(scope="module")
def environment():
    with passable_folder() as cache, passable_folder() as temporary:
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("WARPGRADE", "RAY"))}
        # Said outright: some versions of Ray start a head that wants a token, and nodes that have none.
        ray = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        yield {**keep, **ray, "WARPGRADE_CACHE": str(cache), "TMPDIR": str(temporary), "PYTHONPATH": str(TOP)}


@pytest.fixture
def nodes(environment):
    # Ray's sockets have names of at most 107 bytes, so not pytest's folder.
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    made = Nodes(folder, environment)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def hand_in(tmp_path, count):
    expected = {}
    (tmp_path / "submissions/relu").mkdir(parents=True)
    for number in range(count):
        source, expected[f"s{number:03}"] = KINDS[number % len(KINDS)]
        (tmp_path / f"submissions/relu/s{number:03}.py").write_text(f"{source}# {number}\n")
    return expected


@contextlib.contextmanager
def batch(tmp_path, environment, *options):
    """Start a batch. Its stderr is a file: a full pipe would block the batch while the test reads stdout."""
    words = "batch submissions --run run --jsonl --timeout 60 --device emulated --size awkward"
    with (
        (tmp_path / "said").open("wb") as said,
        subprocess.Popen(
            [sys.executable, str(TOP / "cli.py"), *words.split(), *options],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as process,
    ):
        yield process


def said_in(tmp_path):
    return (tmp_path / "said").read_text()


def cards(tmp_path):
    return {path.stem: read_card(path).status for path in (tmp_path / "run/cards").glob("relu/*.json")}


def test_a_node_that_is_lost_costs_only_what_it_was_doing(nodes, environment, tmp_path):
    expected = hand_in(tmp_path, COUNT)
    for _ in range(3):
        nodes.start()
    with batch(tmp_path, environment, "--ray", nodes.address) as process:
        lines = []
        for line in process.stdout:
            lines.append(json.loads(line))
            if len(lines) == COUNT // 4:
                nodes.kill(nodes.processes[-1])
        process.wait(_LIMIT_S)
    assert process.returncode == 1, said_in(tmp_path)
    assert cards(tmp_path) == expected
    graded = Counter(line["card"] for line in lines)
    assert len(graded) == COUNT
    assert set(graded.values()) == {1}


def test_a_cluster_of_this_machine_alone(environment, tmp_path):
    expected = hand_in(tmp_path, 3)
    with batch(tmp_path, environment, "--ray", "local", "--jobs", "1") as process:
        process.communicate(timeout=_LIMIT_S)
    assert process.returncode == 1, said_in(tmp_path)
    assert cards(tmp_path) == expected


def test_a_cluster_that_is_not_there_is_told(environment, tmp_path):
    hand_in(tmp_path, 1)
    with batch(tmp_path, environment, "--ray", f"127.0.0.1:{free_port()}") as process:
        process.communicate(timeout=_LIMIT_S)
    assert process.returncode == 3
    assert "no Ray cluster answers at" in said_in(tmp_path)
    assert "Traceback" not in said_in(tmp_path)


def test_a_program_keeps_its_own_output(environment, tmp_path):
    program = "from warpgrade import Grader\nwith Grader(device='emulated', ray='local', jobs=1): print('own')"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "own\n"
