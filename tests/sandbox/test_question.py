"""A child hangs, floods, forks, daemonizes and lies: every process of the child ends with the question."""

import functools
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import msgspec
import psutil
import pytest

from evaluator.errors import SandboxUnavailable
from evaluator.protocol.frames import Scalar
from evaluator.records import SandboxMode
from evaluator.sandbox import ForkServer, fork_server_client, question
from evaluator.sandbox.question import PROBLEM_ANSWER_BYTES, PROBLEM_LIMITS, NoAnswer, Question

_RUN = """\
import msgspec
from evaluator.sandbox.question import Question


class Content(msgspec.Struct):
    content: bytes


def answer(asked):
    question = asked.content
    exec({source!r}, {{"question": question}})
    return Content(ANSWERED)


run = Question("", Content, Content, 0.0).answered_by(answer)
"""


class Content(msgspec.Struct):
    content: bytes


def answer_of(module, content, limit_s):
    """Ask `run` in `module`, as `problems show` asks the count."""
    asked = Question(f"{module}:run", Content, Content, limit_s, PROBLEM_LIMITS, PROBLEM_ANSWER_BYTES)
    answer = asked.ask_in_new_sandbox(Content(content))
    return answer if isinstance(answer, NoAnswer) else answer.content


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that stands for a count: `module("source")` returns the name for `answer_of`."""
    monkeypatch.setattr(question, "ForkServer", functools.partial(ForkServer, extra_sys_path=[tmp_path]))

    def write(source, answered="question"):
        (tmp_path / "counts.py").write_text(_RUN.format(source=source).replace("ANSWERED", answered))
        return "counts"

    return write


@pytest.fixture
def mark():
    """A number of seconds for `sleep` that no other process has."""
    return f"600.{uuid.uuid4().int % 10**12:012d}"


def daemon(mark):
    """Source that starts a daemon: two forks, a session of its own, no open pipe, another program."""
    return (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        os.closerange(0, 64)\n"
        f"        os.execvp('sleep', ['sleep', {mark!r}])\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "def sleepers():\n"
        "    for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "        try:\n"
        f"            if {mark.encode()!r} in open(f'/proc/{{pid}}/cmdline', 'rb').read(): return True\n"
        "        except OSError: pass\n"
        "while not sleepers(): time.sleep(0.01)\n"
    )


def peak_kib(*, anew=False):
    """The most memory of this process so far; `anew`, since now: an earlier test may have needed more."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM:"))
    return int(line.split()[1])


def alive(mark):
    return [each.pid for each in psutil.process_iter(["cmdline"]) if mark in (each.info["cmdline"] or ())]


def test_the_answer_comes_back_and_printed_text_does_not(module, capfd):
    echo = module("import sys; print('to stdout'); print('to stderr', file=sys.stderr)", "question * 2")
    question = b"ab" * 200_000  # more than a socket holds
    assert answer_of(echo, question, 600.0) == question * 2
    assert capfd.readouterr() == ("", "")


def test_a_daemon_ends_with_the_answer(module, mark):
    """The source waits for its daemon, so the daemon was alive when the process answered."""
    assert answer_of(module(daemon(mark)), b"answer", 600.0) == b"answer"
    assert alive(mark) == []


def test_where_no_layer_is_permitted_a_daemon_ends_too(module, mark, monkeypatch):
    def refused(mode, machine):
        if mode is not SandboxMode.NONE:
            raise SandboxUnavailable("neither a private mount namespace nor Landlock")
        return choose(mode, machine)

    choose = fork_server_client.choose_layers
    monkeypatch.setattr(fork_server_client, "choose_layers", refused)
    assert answer_of(module(daemon(mark)), b"answer", 600.0) == b"answer"
    assert alive(mark) == []


def test_a_process_that_hangs_ends_with_its_daemon(module, mark):
    hangs = module(f"{daemon(mark)}time.sleep(600)")
    assert answer_of(hangs, b"question", 5.0) == NoAnswer("the process took longer than 5 s", timed_out=True)
    assert alive(mark) == []


def test_the_code_runs_in_the_sandbox(module, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    source = f"try: open({str(secret)!r})\nexcept OSError: pass\nelse: raise SystemExit(3)"
    assert answer_of(module(source), b"answer", 600.0) == b"answer"


def test_a_flood_is_cut(module):
    flood = module("", f"bytes({PROBLEM_ANSWER_BYTES})")
    assert answer_of(flood, b"", 300.0) == NoAnswer("the process gave no valid answer of at most 1 MiB")


def test_an_answer_of_another_type_is_none(module):
    assert answer_of(module("", "'text'"), b"", 300.0) == NoAnswer("the process gave no valid answer of at most 1 MiB")


def test_a_number_of_more_than_64_bits_is_not_sent(module):
    asked = Question(f"{module('')}:run", Scalar, Content, 300.0)
    assert "64 bits" in asked.ask_in_new_sandbox(Scalar(1 << 64)).reason


def test_printed_text_is_dropped(module):
    """A gibibyte on each stream: a pipe that is not read would stop the process."""
    flood = "import os\nfor stream in (1, 2):\n    for _ in range(1 << 10): os.write(stream, bytes(1 << 20))"
    before = peak_kib(anew=True)
    assert answer_of(module(flood), b"answer", 300.0) == b"answer"
    assert peak_kib() - before < 1 << 18  # less than a quarter of it


@pytest.mark.parametrize(
    ("source", "end"),
    [("raise SystemExit(3)", "status 3"), ("import os; os.kill(os.getpid(), 9)", "SIGKILL"), ("1 / 0", "status 1")],
)
def test_a_failure_is_no_answer(module, source, end):
    assert answer_of(module(source), b"q" * (1 << 20), 600.0) == NoAnswer(f"the process ended with {end}")


@pytest.mark.slow
def test_an_interrupted_command_leaves_no_process(tmp_path, mark):
    """`problems show` of a problem that hangs, ended by Ctrl-C: the code's processes are gone."""
    folder = tmp_path / "problems" / "hangs"
    folder.mkdir(parents=True)
    hangs = f"{daemon(mark)}time.sleep(600)\n"
    (folder / "reference.py").write_text(
        "import torch\nfrom torch import nn\n\nROWS = 4\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
        "        return x\n\n\ndef get_inputs():\n"
        + "".join(f"    {line}\n" for line in hangs.splitlines())
        + "    return [torch.rand(ROWS)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    (folder / "problem.toml").write_text(
        'title = "Hangs"\nlevel = 1\ndescription = "Hangs."\n\n[sizes.full]\nROWS = 4\n\n[sizes.small]\nROWS = 4\n'
    )
    command = [sys.executable, str(Path(__file__).parents[2] / "cli.py"), "problems", "show", "hangs"]
    shown = subprocess.Popen(
        [*command, "--problems", str(tmp_path / "problems")],
        env={**os.environ, "WARPGRADE_CACHE": str(tmp_path / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with shown:
        until_s = time.monotonic() + 120
        while not alive(mark):
            assert time.monotonic() < until_s, shown.poll()
            assert shown.poll() is None, shown.stdout.read()
            time.sleep(0.05)
        shown.send_signal(signal.SIGINT)
        shown.wait(60)
    assert alive(mark) == []
