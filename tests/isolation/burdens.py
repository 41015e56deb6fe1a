"""Hostile entries that take more than their share, or leave somebody behind. See `probes`.

They are named `burdens:NAME` where a test spawns them.
"""

import contextlib
import errno
import mmap
import os
import signal
import socket
import threading
import time

from probes import answer, libc, outcome, question


def fill_private(sock, private):
    chunk = bytes(1 << 20)
    written = 0

    def fill():
        nonlocal written
        for index in range(64):
            with (private / str(index)).open("wb") as file:
                file.write(chunk)
            written += 1

    answer(sock, [outcome(fill), written])


def dig(sock, private):
    """Leave folders in each other, deeper than a stack, a path or a table of open files allows; the last is closed."""
    for _ in range(question(sock)):
        os.mkdir("d" * 10)
        os.chdir("d" * 10)
    os.chmod(".", 0)  # noqa: PTH101 - no path leads there
    answer(sock, "dug")


def write_large_file(sock, private):
    with (private / "large").open("wb") as file:
        answer(sock, outcome(lambda: [file.write(bytes(1 << 20)) for _ in range(16)] and file.flush()))


def fork_bomb(sock, private):
    children = 0
    while True:
        try:
            child = os.fork()
        except OSError as error:
            answer(sock, [errno.errorcode[error.errno], children])
            break
        if child == 0:
            time.sleep(60)
            os._exit(0)
        children += 1
    time.sleep(60)


def endless_fork_bomb(sock, private):
    answer(sock, "lit")
    while True:
        with contextlib.suppress(OSError):
            os.fork()


def allocate(sock, private):
    import torch

    try:
        held = torch.empty(question(sock), dtype=torch.uint8)
    except (MemoryError, RuntimeError) as error:
        answer(sock, type(error).__name__)
    else:
        answer(sock, f"allowed {held.nbytes}")


def flood(sock, private):
    total = question(sock)
    chunk = b"x" * (1 << 20)
    os.write(1, b"first words\n")
    for _ in range(total >> 20):
        os.write(1, chunk)
    os.write(2, b"\x1b[2Jlast words\n")
    answer(sock, "printed")


def counting_grandchild(sock, private):
    """Count in shared memory: a thread, a process that left its group, its session and its parent, and a child."""
    _, (descriptor,), _, _ = socket.recv_fds(sock, 1, 1)
    counters = memoryview(mmap.mmap(descriptor, 4096)).cast("Q")
    middle = os.fork()
    if middle == 0:
        libc.setsid()
        if os.fork() == 0:
            _count(counters, 1)
        os._exit(0)
    os.waitpid(middle, 0)
    if os.fork() == 0:
        _count(counters, 2)
    threading.Thread(target=_count, args=(counters, 0), daemon=True).start()
    answer(sock, "counting")
    time.sleep(60)


def _count(counters, place):
    while True:
        counters[place] += 1


def revived_by_orphanage(sock, private):
    """Get a SIGHUP and SIGCONT from the kernel while frozen: a group becomes orphaned when a slow exit ends."""
    _, (descriptor,), _, _ = socket.recv_fds(sock, 1, 1)
    counters = memoryview(mmap.mmap(descriptor, 4096)).cast("Q")
    middle = os.fork()
    if middle == 0:
        worker = os.fork()
        if worker == 0:
            os.setpgid(0, 0)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            _count(counters, 0)
        # Much memory to give back makes the exit slow: it begins before the freeze and ends after it.
        ballast = mmap.mmap(-1, 1 << 30)
        for page in range(0, len(ballast), 4096):
            ballast[page] = 1
        answer(sock, "ready")
        question(sock)
        os._exit(0)
    time.sleep(60)


def daemon(sock, private):
    """Leave a process behind that has no parent here, ignores what can be ignored, and holds nothing open."""
    middle = os.fork()
    if middle == 0:
        if os.fork() == 0:
            for number in set(range(1, 65)) - {signal.SIGKILL, signal.SIGSTOP, 32, 33}:
                signal.signal(number, signal.SIG_IGN)
            os.closerange(0, 100)
            time.sleep(300)
        os._exit(0)
    os.waitpid(middle, 0)
    answer(sock, "left")
