"""Submissions that would not stand still between two calls, or bring the judge down; and their honest twins."""

import pytest

from evaluator.findings import Code
from evaluator.judge.runners import runner_client
from evaluator.records import Status
from tests.grading.harness import module

FORWARD = ["return torch.relu(x)"]
WAKING = module(
    "import os, signal, time",
    "counting = os.fork()",
    "if counting == 0:",
    "    while True: time.sleep(0.001)",
    "for _ in range(2):",
    "    if os.fork() == 0:",
    "        while True:",
    "            try: os.kill(counting, signal.SIGCONT)",
    "            except OSError: time.sleep(0.001)",
    "            else: print('woken', flush=True)",
    forward=FORWARD,
)
STUCK = (
    "import ctypes, os, platform, threading, time",
    "clone = 56 if platform.machine() == 'x86_64' else 220",
    "def wait_in_vfork():",
    "    if ctypes.CDLL(None).syscall(*map(ctypes.c_long, (clone, 0x4000 | 17, 0, 0, 0, 0))) == 0:",
    "        while True: time.sleep(1)",
    "def parent(pid):",
    "    try: return int(open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[1])",
    "    except OSError: return 0",
    "def has_child():",
    "    return os.getpid() in [parent(pid) for pid in os.listdir('/proc') if pid.isdigit()]",
)
START = (  # The child exists, so the thread is in vfork.
    "threading.Thread(target=wait_in_vfork, daemon=True).start()",
    "while not has_child(): time.sleep(0.01)",
)
NEVER_STOPS = {
    "before the first call": module(*STUCK, *START, forward=["return -x"]),
    "in a call": module(*STUCK, forward=[*START, "return -x"]),
}
STARTING = module(
    "import subprocess, sys, threading",
    "def work():",
    "    while True: subprocess.run([sys.executable, '-S', '-c', ''])",
    "threading.Thread(target=work, daemon=True).start()",
    forward=FORWARD,
)
FLOOD = module(
    "import gc, sys, threading",
    "runner = next(o for o in gc.get_objects() if type(o).__name__ == 'Runner' and hasattr(o, '_channel'))",
    "socket = runner._channel._socket",
    "body = runner._channel._encoder.encode(sys.modules['evaluator.protocol.frames'].BuildRequest(name='1'))",
    "def drain():",
    "    while True: socket.recv(1 << 20)",
    "threading.Thread(target=drain, daemon=True).start()",
    "while True: socket.sendall((len(body).to_bytes(4, 'big') + body) * 2000)",
    forward=FORWARD,
)
WORDLESS = module(forward=["raise RuntimeError('emulator[trap]: ')"])


def test_waking_one_another_is_refused(judged):
    """It is right otherwise, and none of it is what `correct` speaks of."""
    outcome = judged(WAKING)
    assert outcome.status is Status.CORRECT
    assert "woken" not in outcome.output.text


@pytest.mark.parametrize("source", NEVER_STOPS.values(), ids=NEVER_STOPS)
def test_what_never_stops_is_no_fault_of_the_machine(judged, monkeypatch, source):
    monkeypatch.setattr(runner_client, "_STOP_S", 0.3)
    outcome = judged(source)
    assert (outcome.status, outcome.reason.code) == (Status.RUNTIME_ERROR, Code.NOT_STOPPED.value)


def test_programs_beside_forward_are_no_fault(judged, monkeypatch):
    monkeypatch.setattr(runner_client, "_STOP_S", 60.0)  # a child before its execve needs a core
    assert judged(STARTING).status is Status.CORRECT


def test_a_flood_of_build_requests_is_rejected(judged):
    outcome = judged(FLOOD)
    assert (outcome.status, outcome.reason.code) == (Status.REJECTED, Code.TOO_MANY_BUILDS.value)


def test_an_emulators_word_without_more_is_a_failure(judged):
    outcome = judged(WORDLESS)
    assert (outcome.status, outcome.reason.code) == (Status.RUNTIME_ERROR, Code.DEVICE_ASSERT.value)
