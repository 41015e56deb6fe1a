"""A correct submission that attacks the sandbox at every import, and raises an error that lists every success.

The test replaces TARGETS by paths, a port and names. Each runner of the grade imports the submission once, so a
later runner would find the files that an earlier runner left.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import time
from pathlib import Path

import torch
from torch import nn

TARGETS = json.loads("""TARGETS""")
NAME = TARGETS["name"]
PR_SET_NAME = 15
reached = []


def attempt(what, action, *arguments):
    with contextlib.suppress(OSError):
        action(*arguments)
        reached.append(what)


def plant(folder):
    Path(folder, NAME).write_text("planted")


def look_into(path):
    os.close(os.open(path, os.O_RDONLY))


def send_a_datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"the inputs", ("127.0.0.1", TARGETS["port"]))


def connect():
    with socket.socket() as sock:
        sock.connect(("127.0.0.1", TARGETS["port"]))


def stay_behind():
    """Leave an orphaned process in a new session that ignores every signal it can."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in set(range(1, 65)) - {signal.SIGKILL, signal.SIGSTOP, 32, 33}:
                signal.signal(number, signal.SIG_IGN)
            ctypes.CDLL(None).prctl(PR_SET_NAME, NAME.encode(), 0, 0, 0)
            os.write(writer, b"!")
            os.closerange(0, 100)
            time.sleep(300)
        os._exit(0)
    os.close(writer)
    if os.read(reader, 1) != b"!":
        raise RuntimeError("the daemon did not start")


for secret in TARGETS["secrets"]:
    attempt(f"read {secret}", look_into, secret)
for folder in TARGETS["folders"]:
    attempt(f"wrote {folder}", plant, folder)
attempt("connected", connect)
attempt("sent a datagram", send_a_datagram)
for file in ("environ", "mem"):
    attempt(f"opened another's {file}", look_into, f"/proc/{TARGETS['bystander']}/{file}")
attempt("signalled another", os.kill, TARGETS["bystander"], 0)
for folder in (*TARGETS["own_folders"], str(Path.home())):
    if Path(folder, NAME).exists():
        reached.append(f"found what an earlier runner left in {folder}")
    with contextlib.suppress(OSError):
        plant(folder)
status = dict(line.split(":\t", 1) for line in Path("/proc/thread-self/status").read_text().splitlines())
for field, wanted in (("NoNewPrivs", "1"), ("Seccomp", "2"), ("CapPrm", "0" * 16), ("CapEff", "0" * 16)):
    if status[field] != wanted:
        reached.append(f"has {field} {status[field]}")
limits = ("RLIMIT_AS", "RLIMIT_NPROC", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_CORE")
unlimited = [name for name in limits if resource.getrlimit(getattr(resource, name))[1] == resource.RLIM_INFINITY]
reached.extend(f"has no {name}" for name in unlimited)
stay_behind()
if reached:
    raise RuntimeError("REACHED: " + "; ".join(reached))


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x)
