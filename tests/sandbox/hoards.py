"""Hostile entries that hold memory where no other process may look. See `probes`.

They are named `hoards:NAME` where a test spawns them.
"""

import ctypes
import fcntl
import mmap
import os
import socket
import struct
import threading
import time

from probes import answer, libc, outcome, question

_PIECE = 16 << 20
_MADV_DONTNEED = 4
_EXIT_OF_A_THREAD = 60 if os.uname().machine == "x86_64" else 93
_CLONE_VM, _CLONE_SIGHAND, _CLONE_THREAD = 0x100, 0x800, 0x10000


def _write(held, start, end):
    for page in range(start, end, mmap.PAGESIZE):
        held[page] = 1


def unmapped_pages(sock, private):
    """Write shared memory a piece at a time, and take its pages out of the table: it stays, and none is resident."""
    held = mmap.mmap(-1, question(sock), mmap.MAP_ANONYMOUS | mmap.MAP_SHARED)
    for start in range(0, len(held), _PIECE):
        _write(held, start, start + _PIECE)
        held.madvise(_MADV_DONTNEED, start, _PIECE)
    answer(sock, "held")
    time.sleep(300)


def unmapped_files(sock, private):
    """Keep the first page of large pieces of shared memory: all of each stays."""
    raw = ctypes.CDLL(None)
    raw.mmap.restype = ctypes.c_void_p
    raw.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    raw.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    for _ in range(question(sock) // _PIECE):
        place = raw.mmap(None, _PIECE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_ANONYMOUS | mmap.MAP_SHARED, -1, 0)
        ctypes.memset(place, 1, _PIECE)
        raw.munmap(place + mmap.PAGESIZE, _PIECE - mmap.PAGESIZE)
    answer(sock, "held")
    time.sleep(300)


def mappings_of_many(sock, private):
    """Map many single pages, and start processes that have them too: at their end, the kernel frees all of them."""
    processes, mappings = question(sock)
    raw = ctypes.CDLL(None)
    raw.mmap.restype = ctypes.c_void_p
    raw.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    for number in range(mappings):
        # Neighbours with the same rights would be one mapping.
        right = mmap.PROT_READ if number % 2 else mmap.PROT_READ | mmap.PROT_WRITE
        raw.mmap(None, mmap.PAGESIZE, right, mmap.MAP_ANONYMOUS | mmap.MAP_PRIVATE, -1, 0)
    for _ in range(processes):
        if os.fork() == 0:
            time.sleep(300)
    answer(sock, "held")
    time.sleep(300)


def dead_first_thread(sock, private):
    """Hold memory in a process whose first thread has ended: /proc says nothing of its memory."""
    size_bytes = question(sock)

    def hold():
        held = mmap.mmap(-1, size_bytes, mmap.MAP_ANONYMOUS | mmap.MAP_PRIVATE)
        _write(held, 0, size_bytes)
        answer(sock, "held")
        time.sleep(300)

    if os.fork() == 0:
        threading.Thread(target=hold).start()
        libc.syscall(_EXIT_OF_A_THREAD, 0)
    time.sleep(300)


def queues(sock, private):
    """Let data of senders that have ended wait: in connections that are not accepted, and in datagrams."""
    address = private / "queue"
    listener = socket.socket(socket.AF_UNIX)

    def listen():
        listener.bind(str(address))
        listener.listen(4096)

    def connect():
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(address))
            client.sendall(bytes(65536))

    results = {"bound and listening": outcome(listen), "connected": outcome(connect)}
    results["datagram"] = outcome(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    results["pair of datagrams"] = outcome(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
    results["pair"] = outcome(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
    answer(sock, results)


def thread_with_files_of_its_own(sock, private):
    """Start a thread that shares memory, but no table of files."""
    raw = ctypes.CDLL(None, use_errno=True)
    raw.clone.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    stack = ctypes.create_string_buffer(1 << 16)
    top = (ctypes.addressof(stack) + len(stack) - 64) & ~15
    made = raw.clone(ctypes.cast(raw.pause, ctypes.c_void_p), top, _CLONE_VM | _CLONE_SIGHAND | _CLONE_THREAD, None)
    refused = os.strerror(ctypes.get_errno()) if made < 0 else "allowed"
    plain = threading.Thread(target=time.sleep, args=(0,))
    plain.start()
    plain.join()
    answer(sock, refused)


def locks_of_bytes(sock, private):
    """Lock every other byte of a file, and have a child count those that keep it out."""
    count = question(sock)
    with (private / "locked").open("wb+") as file:
        for place in range(count):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2 * place)
        reader, writer = os.pipe()
        if os.fork() == 0:
            about = [struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 2 * place, 1, 0) for place in range(count)]
            found = [struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, each))[0] for each in about]
            os.write(writer, bytes([sum(kind != fcntl.F_UNLCK for kind in found)]))
            os._exit(0)
        answer(sock, {"taken": count, "of another process": os.read(reader, 1)[0]})
