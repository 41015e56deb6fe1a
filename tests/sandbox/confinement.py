"""Helpers of the sandbox tests: create a fork server, exchange messages with a probe."""

import json
import os
import time
from pathlib import Path

import msgspec
import psutil

from evaluator.sandbox import ForkServer, Limits
from evaluator.sandbox.kernel.privileges import Namespaces

HERE = Path(__file__).parent
SMALL = Limits(processes=50)


def make_fork_server(**options):
    options.setdefault("environment", {"OMP_NUM_THREADS": "2"})
    options.setdefault("preload", ("probes", "burdens", "hoards", "wakers"))
    options.setdefault("extra_sys_path", [HERE])
    return ForkServer(**options)


def without_namespaces(fork_server):
    """Make a fork server treat the machine as one without namespaces, like most containers."""
    fork_server._machine = msgspec.structs.replace(fork_server.machine, namespaces=Namespaces.NONE, private_view=False)


def tell(child, value):
    child.socket.sendall(json.dumps(value).encode() + b"\n")


def stop(child, timeout_s=60.0):
    """Freeze all processes of a runner, with a generous time limit for a busy machine."""
    deadline = time.monotonic() + timeout_s
    while not child.freeze():
        assert time.monotonic() < deadline, "it did not stop"


def hear(child):
    line = b""
    while not line.endswith(b"\n"):
        piece = child.socket.recv(65536)
        assert piece, f"the probe ended: {child.wait_exit(60)} {child.output().text}"
        line += piece
    return json.loads(line)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # ended meanwhile
        return False
    return not any(f"State:\t{dead}" in status for dead in "ZX")


def below_the_starter(fork_server, before):
    """Return supervisor, warden and runner of the only runner that was started since `before`."""
    starter = psutil.Process(fork_server._process.pid)
    line, at = [], starter
    for _ in range(3):
        (at,) = set(at.children()) - before
        line.append(at)
    return line
