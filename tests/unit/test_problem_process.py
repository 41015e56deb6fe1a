"""A problem's code hangs, floods and forks: the process that runs the code ends, with all of its group."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from evaluator import problem_process
from evaluator.problem_process import ANSWER_BYTES, NoAnswer, TookTooLong, answer_of

_FORKED = """\
import os, sys, time
child = os.fork()
if child == 0:
    time.sleep(600)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that stands for a count: `module("source")` returns the name for `answer_of`."""
    monkeypatch.setattr(problem_process, "_TOP", tmp_path)

    def write(source):
        (tmp_path / "counts.py").write_text(f"def main():\n    exec({source!r})\n")
        return "counts"

    return write


def group_is_gone(told):
    pid = int(told.read_text())
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(30)
    return not psutil.pid_exists(pid)


def test_the_answer_comes_back_and_printed_text_does_not(module, capfd):
    echo = module("import sys; print('to stderr', file=sys.stderr); sys.stdout.write(sys.stdin.read() * 2)")
    question = b"ab" * 100_000  # more than a pipe holds
    assert answer_of(echo, question, 60.0) == question * 2
    assert capfd.readouterr() == ("", "")


def test_a_process_that_hangs_ends_with_its_children(module, tmp_path):
    told = tmp_path / "pid"
    with pytest.raises(TookTooLong, match="longer than 2 s"):
        answer_of(module(f"{_FORKED}\nopen({str(told)!r}, 'w').write(str(child))\ntime.sleep(600)"), b"", 2.0)
    assert group_is_gone(told)


def test_a_child_that_outlives_the_answer_is_killed_and_delays_nothing(module, tmp_path):
    told = tmp_path / "pid"
    source = f"{_FORKED}\nopen({str(told)!r}, 'w').write(str(child))\nos.write(1, b'answer')\nos._exit(0)"
    assert answer_of(module(source), b"", 300.0) == b"answer"
    assert group_is_gone(told)


def test_a_flood_is_cut(module):
    with pytest.raises(NoAnswer, match="longer than 1 MiB"):
        answer_of(module(f"import os\nwhile True: os.write(1, bytes({ANSWER_BYTES >> 4}))"), b"", 300.0)
    with pytest.raises(TookTooLong):  # dropped, and never stored
        answer_of(module("import os\nwhile True: os.write(2, bytes(1 << 20))"), b"", 1.0)


@pytest.mark.parametrize("source", ["raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)", "1 / 0"])
def test_a_failure_is_no_answer(module, source):
    with pytest.raises(NoAnswer, match="ended with status"):
        answer_of(module(f"import os; os.write(1, b'half')\n{source}"), b"q" * (1 << 20), 60.0)


@pytest.mark.slow
def test_an_interrupted_command_leaves_no_process(tmp_path):
    """`problems show` of a problem that hangs, ended by Ctrl-C: the code's process is gone."""
    told = tmp_path / "pid"
    folder = tmp_path / "problems" / "hangs"
    folder.mkdir(parents=True)
    hangs = f"{_FORKED}\nopen({str(told)!r}, 'w').write(str(child))\ntime.sleep(600)\n"
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
        while not told.exists() or not told.read_text():
            assert time.monotonic() < until_s, shown.poll()
            assert shown.poll() is None, shown.stdout.read()
            time.sleep(0.05)
        shown.send_signal(signal.SIGINT)
        shown.wait(60)
    assert group_is_gone(told)
