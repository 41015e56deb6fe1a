"""Hostile entries that exceed a limit or leave a process behind. See `probes`.

A test spawns an entry as `burdens:NAME`.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import signal
import socket
import threading
import time
from pathlib import Path

from probes import answer, libc, outcome, question, system_call


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
    """Leave nested folders, too deep for a stack, a path or a table of open files; the innermost has mode 0."""
    for _ in range(question(sock)):
        os.mkdir("d" * 10)  # noqa: PTH102 - no path leads there
        os.chdir("d" * 10)
    os.chmod(".", 0)  # noqa: PTH101
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
    size = question(sock)
    answer(sock, outcome(lambda: mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)))


def flood(sock, private):
    total = question(sock)
    chunk = b"x" * (1 << 20)
    os.write(1, b"first words\n")
    for _ in range(total >> 20):
        os.write(1, chunk)
    os.write(2, b"\x1b[2Jlast words\n")
    answer(sock, "printed")


def counting_grandchild(sock, private):
    """Count in shared memory: in a thread, in a child, and in a process without group, session and parent of ours."""
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
    """Receive SIGHUP and SIGCONT from the kernel while frozen: a slow exit leaves an orphaned process group."""
    _, (descriptor,), _, _ = socket.recv_fds(sock, 1, 1)
    counters = memoryview(mmap.mmap(descriptor, 4096)).cast("Q")
    middle = os.fork()
    if middle == 0:
        worker = os.fork()
        if worker == 0:
            os.setpgid(0, 0)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            _count(counters, 0)
        # Freeing much memory makes the exit slow: the exit begins before the freeze and ends after the freeze.
        ballast = mmap.mmap(-1, 1 << 30)
        for page in range(0, len(ballast), 4096):
            ballast[page] = 1
        answer(sock, "ready")
        question(sock)
        os._exit(0)
    time.sleep(60)


def daemon(sock, private):
    """Leave an orphaned process behind that ignores every signal it can and holds no descriptor open."""
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


def take_other_cores(sock, private):
    """Request every core and a higher priority through every system call; answer the effect on thread and child."""
    everywhere = set(range(os.cpu_count()))
    batch, idle, best = os.sched_param(0), os.SCHED_IDLE, (1 << 13) | 0
    x86 = os.uname().machine == "x86_64"
    attributes = (ctypes.c_uint32 * 12)(48, os.SCHED_BATCH, 0, 0, 19)

    def try_all():
        own = threading.get_native_id()
        return {
            "cores": outcome(lambda: os.sched_setaffinity(0, everywhere)),
            "cores of a thread": outcome(lambda: os.sched_setaffinity(own, everywhere)),
            "class": outcome(lambda: os.sched_setscheduler(0, idle, batch)),
            "class of a thread": outcome(lambda: os.sched_setscheduler(own, idle, batch)),
            "attributes": system_call(314 if x86 else 274, 0, attributes, 0),
            "nice": outcome(lambda: os.setpriority(os.PRIO_PROCESS, 0, 19)),
            "disk": system_call(251 if x86 else 30, 1, 0, best),
        }

    def seen():
        status = Path("/proc/thread-self/status").read_text().splitlines()
        cores = next(line.split()[1] for line in status if line.startswith("Cpus_allowed_list"))
        disk = libc.syscall(252 if x86 else 31, 1, 0)
        return [cores, os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), disk]

    before = seen()
    said = try_all()
    found = [seen()]
    thread = threading.Thread(target=lambda: (try_all(), found.append(seen())))
    thread.start()
    thread.join()
    if os.fork() == 0:
        try_all()
        os._exit(0 if seen() == before else 1)
    answer(sock, [before, said, found, os.wait()[1]])


def hide_memory(sock, private):
    """Allocate memory outside of every address space, through every system call."""
    x86 = os.uname().machine == "x86_64"
    one, other = socket.socketpair()
    reader, writer = os.pipe()
    before = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, before * 2)
    enlarged = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) != before
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.create_string_buffer(64)), 64)
    answer(
        sock,
        {
            "memfd": outcome(lambda: os.close(os.memfd_create("hidden"))),
            "secret": system_call(447, 0),
            "descriptor in a message": outcome(lambda: socket.send_fds(one, [b"x"], [reader])),
            "messages": system_call(307 if x86 else 269, other.fileno(), 0, 0, 0),
            "pages to a pipe": system_call(278 if x86 else 75, writer, vector, 1, 0),
            "queue of a socket": "larger" if enlarged else "unchanged",
            "larger pipe": outcome(lambda: fcntl.fcntl(writer, 1031, 1 << 20)),
            "SysV": system_call(29 if x86 else 194, 0, 4096, 0o1600),
            "queue": system_call(240 if x86 else 180, b"queue", os.O_CREAT | os.O_RDWR, 0o600, 0),
            "keys": system_call(248 if x86 else 217, b"user", b"k", b"v", 1, -3),
            "io_uring": system_call(425, 1, 0),
            "plain message": outcome(lambda: one.sendall(b"x")),
            "pipe": outcome(lambda: os.write(writer, b"x")),
        },
    )


def share_the_load(sock, private):
    """Hold memory in several small processes: private pages, unshared mappings, and files in memory."""
    count, size_bytes, hidden_bytes = question(sock)
    for index in range(count):
        if os.fork() == 0:
            flags = mmap.MAP_ANONYMOUS | (mmap.MAP_SHARED if index % 2 else mmap.MAP_PRIVATE)
            held = mmap.mmap(-1, size_bytes, flags)
            for page in range(0, size_bytes, mmap.PAGESIZE):
                held[page] = 1
            time.sleep(300)
    if hidden_bytes:
        hidden = os.memfd_create("hidden")
        for _ in range(hidden_bytes >> 20):
            os.write(hidden, bytes(1 << 20))
    answer(sock, "held")
    time.sleep(300)


def hold_a_file(sock, private):
    """Keep a file of /dev/shm open."""
    with Path("/dev/shm/held").open("wb") as file:
        file.write(bytes(question(sock)))
        file.flush()
        answer(sock, "held")
        time.sleep(300)


def output_pipe_in_a_message(sock, private):
    socket.send_fds(sock, [b"x"], [1])
    time.sleep(300)
