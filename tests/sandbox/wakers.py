"""Hostile entries that resist freezing, and one that connects to sockets outside. See `probes`.

A test spawns an entry as `wakers:NAME`.
"""

import contextlib
import ctypes
import mmap
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from probes import answer, outcome, question, system_call

_X86 = os.uname().machine == "x86_64"
_CLONE_VFORK = 0x4000
_UPPER_HALF = 1 << 32


def signal_by_every_call(sock, private):
    """Send a signal to the own process through every system call, with all 64 bits of the number given."""
    number = question(sock)
    about = ctypes.create_string_buffer(128)
    fields = (ctypes.c_int * 3).from_buffer(about)
    fields[0], fields[2] = number & 0xFF, -1  # from rt_sigqueueinfo
    me, thread, this = os.getpid(), threading.get_native_id(), os.pidfd_open(os.getpid())
    answer(
        sock,
        {
            "kill": system_call(62 if _X86 else 129, me, number),
            "tkill": system_call(200 if _X86 else 130, thread, number),
            "tgkill": system_call(234 if _X86 else 131, me, thread, number),
            "rt_sigqueueinfo": system_call(129 if _X86 else 138, me, number, about),
            "rt_tgsigqueueinfo": system_call(297 if _X86 else 240, me, thread, number, about),
            "pidfd_send_signal": system_call(424, this, number, about, 0),
        },
    )


def woken_again(sock, private):
    """Count in shared memory, in a process to which two other processes keep sending SIGCONT."""
    _, (descriptor,), _, _ = socket.recv_fds(sock, 1, 1)
    counters = memoryview(mmap.mmap(descriptor, 4096)).cast("Q")
    counting = os.fork()
    if counting == 0:
        while True:
            counters[0] += 1
    for _ in range(2):
        if os.fork() == 0:
            while True:
                with contextlib.suppress(PermissionError):
                    os.kill(counting, signal.SIGCONT)
    answer(sock, "counting")
    time.sleep(60)


def stuck_in_a_second_process(sock, private):
    """Leave a process in vfork, waiting for a child that never ends: a stop signal has no effect in vfork."""
    if os.fork() == 0:
        _vfork(60, first=lambda: answer(sock, "stuck"))
    time.sleep(60)


def _vfork(its_life_s, first=lambda: None):
    """Wait in vfork until the child ends. The child calls `first` while the parent is in vfork.

    `PyDLL` keeps the interpreter lock. A lock held by another thread would never be released in the child.
    """
    flags = _CLONE_VFORK | int(signal.SIGCHLD)
    call = [ctypes.c_long(each) for each in (56 if _X86 else 220, flags, 0, 0, 0, 0)]
    if ctypes.PyDLL(None).syscall(*call) == 0:
        first()
        time.sleep(its_life_s)
        os._exit(0)
    os.wait()


def starts_programs(sock, private):
    """Start programs in a thread, each by a vfork prolonged so that a freeze is likely to occur inside."""

    def work():
        while True:
            _vfork(0.05)
            time.sleep(0.02)

    # A waiting thread requests the interpreter lock after the switch interval. A child forked meanwhile would hand the
    # lock to a thread that does not exist in the child, and wait for ever.
    sys.setswitchinterval(3600.0)
    threading.Thread(target=work, daemon=True).start()
    answer(sock, "starting")
    time.sleep(60)


def threads_of_a_second_process(sock, private):
    """Leave a process of several sleeping threads behind."""
    if os.fork() == 0:
        for _ in range(3):
            threading.Thread(target=time.sleep, args=(60,)).start()
        answer(sock, "there")
        time.sleep(60)
    time.sleep(60)


def unix_sockets_of_all_kinds(sock, private):
    """Create AF_UNIX sockets of each kind and try to connect to a service, at the path in the question."""
    path = question(sock)
    results = {}
    for name in ("SOCK_STREAM", "SOCK_SEQPACKET", "SOCK_DGRAM", "SOCK_RAW"):
        kind = getattr(socket, name)
        made = results[name] = {
            "made": outcome(lambda kind=kind: socket.socket(socket.AF_UNIX, kind).close()),
            "made with flags": outcome(
                lambda kind=kind: socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK).close()
            ),
        }
        if made["made"] != "allowed":
            continue
        with socket.socket(socket.AF_UNIX, kind) as one:
            made["listened"] = outcome(lambda one=one, at=str(private / name): (one.bind(at), one.listen()))
        for where, address in (("a path", path), ("an abstract name", "\0" + Path(path).name)):
            with socket.socket(socket.AF_UNIX, kind) as one:
                made[f"connected to {where}"] = outcome(lambda one=one, address=address: one.connect(address))
                made[f"sent to {where}"] = outcome(lambda one=one, address=address: one.sendto(b"x", address))
                made[f"sent a message to {where}"] = outcome(
                    lambda one=one, address=address: one.sendmsg([b"x"], [], 0, address)
                )
    for name in ("SOCK_STREAM", "SOCK_SEQPACKET", "SOCK_DGRAM"):
        results[f"pair of {name}"] = outcome(lambda name=name: socket.socketpair(type=getattr(socket, name)))
    results["TCP"] = outcome(lambda: socket.socket(socket.AF_INET).close())
    answer(sock, results)
