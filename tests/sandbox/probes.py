"""Hostile entries: each tries an action and answers one line of JSON over its socket.

The fork server imports the module before any layer of the sandbox is active; runners call an entry by name. The first
line from a test is the question. The answer is "allowed", the name of the error, or other facts for the test.
"""

import ctypes
import errno
import fcntl
import gc
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)


def answer(sock, value):
    sock.sendall(json.dumps(value).encode() + b"\n")


def question(sock):
    line = b""
    while not line.endswith(b"\n"):
        line += sock.recv(1)
    return json.loads(line)


def outcome(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    return "allowed"


def system_call(number, *arguments):
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = libc.syscall(ctypes.c_long(number), *wide)
    return "allowed" if result >= 0 else errno.errorcode[ctypes.get_errno()]


def identity(sock, private):
    answer(
        sock,
        {
            "uid": os.getresuid(),
            "gid": os.getresgid(),
            "groups": os.getgroups(),
            "status": dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines()),
            "environ": dict(os.environ),
            "initial_environ": Path("/proc/self/environ").read_text(),
            "cwd": str(Path.cwd()),
            "private": str(private),
            "path": sys.path,
            "descriptors": sorted((path.name for path in Path("/proc/self/fd").iterdir()), key=int),
            "core": resource.getrlimit(resource.RLIMIT_CORE),
        },
    )


def read_files(sock, private):
    answer(
        sock,
        {
            path: outcome(
                lambda path=path: list(Path(path).iterdir()) if Path(path).is_dir() else Path(path).open().close()
            )
            for path in question(sock)
        },
    )


def write_files(sock, private):
    answer(sock, {path: outcome(lambda path=path: Path(path, "planted").write_text("x")) for path in question(sock)})


def network(sock, private):
    port = question(sock)
    results = {}
    for name, family, kind in (
        ("tcp", socket.AF_INET, socket.SOCK_STREAM),
        ("udp", socket.AF_INET, socket.SOCK_DGRAM),
        ("tcp6", socket.AF_INET6, socket.SOCK_STREAM),
        ("raw", socket.AF_PACKET, socket.SOCK_RAW),
        ("netlink", socket.AF_NETLINK, socket.SOCK_RAW),
        ("vsock", socket.AF_VSOCK, socket.SOCK_STREAM),
    ):
        results[name] = outcome(lambda family=family, kind=kind: socket.socket(family, kind))
    results["connect"] = outcome(lambda: socket.socket().connect(("127.0.0.1", port)))
    answer(sock, results)


def unix_sockets(sock, private):
    path = question(sock)

    def connect(address):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(address)

    answer(sock, {"path": outcome(lambda: connect(path)), "abstract": outcome(lambda: connect("\0" + Path(path).name))})


def signal_processes(sock, private):
    answer(sock, {str(pid): outcome(lambda pid=pid: os.kill(pid, 0)) for pid in question(sock)})


def kill_everything(sock, private):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    result = outcome(lambda: os.kill(-1, signal.SIGKILL))
    result = [result, outcome(lambda: os.kill(os.getppid(), signal.SIGKILL)) if os.getppid() else "no parent"]
    time.sleep(0.1)
    answer(sock, result)
    time.sleep(60)


def processes(sock, private):
    pids = [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]
    mine = {str(os.getpid())}
    environs, memories = {}, {}
    for pid in set(pids) - mine:
        environs[pid] = outcome(lambda pid=pid: Path("/proc", pid, "environ").read_bytes())
        memories[pid] = outcome(lambda pid=pid: Path(f"/proc/{pid}/mem").open("rb").close())
    answer(sock, {"pids": pids, "pid": os.getpid(), "environ": environs, "mem": memories})


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def other_memory(sock, private):
    pid = question(sock) or os.getppid()
    buffer = ctypes.create_string_buffer(8)
    vector = _Vector(ctypes.addressof(buffer), 8)
    x86 = os.uname().machine == "x86_64"
    answer(
        sock,
        {
            "ptrace": system_call(101 if x86 else 117, 16, pid, 0, 0),
            "process_vm_readv": system_call(
                310 if x86 else 270, pid, ctypes.byref(vector), 1, ctypes.byref(vector), 1, 0
            ),
            "pidfd_getfd": system_call(438, 0, 0, 0),
        },
    )


def namespaces(sock, private):
    x86 = os.uname().machine == "x86_64"
    clone = 56 if x86 else 220
    results = {
        "unshare user": system_call(272 if x86 else 97, 0x10000000),
        "unshare mount": system_call(272 if x86 else 97, 0x20000),
        "clone user": system_call(clone, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0),
        "clone with SIGCONT": system_call(clone, int(signal.SIGCONT), 0, 0, 0, 0),
        "clone3": system_call(435, 0, 0),
        "open_tree_attr": system_call(467, -1, 0, 0, 0, 0),
        "mount": outcome(_mount),
        "chroot": outcome(lambda: os.chroot("/")),
        "bpf": system_call(321 if x86 else 280, 0, 0, 0),
        "io_uring_setup": system_call(425, 1, 0),
        "userfaultfd": system_call(323 if x86 else 282, 0),
        "keyctl": system_call(250 if x86 else 219, 0, 0, 0),
        "shmget": system_call(29 if x86 else 194, 0, 4096, 0o1600),
    }
    answer(sock, results)


def scheduling_of_others(sock, private):
    pid = question(sock)
    answer(
        sock,
        {
            "prlimit": outcome(lambda: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))),
            "sched_setaffinity": outcome(lambda: os.sched_setaffinity(pid, {0})),
            "setpriority": outcome(lambda: os.setpriority(os.PRIO_PROCESS, pid, 19)),
            "sched_setscheduler": outcome(lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))),
            "own affinity": outcome(lambda: os.sched_setaffinity(0, os.sched_getaffinity(0))),
        },
    )


def _mount():
    if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) < 0:
        raise OSError(ctypes.get_errno(), "mount")


def wake_ups(sock, private):
    """Request a later SIGCONT from the kernel in every way."""
    x86 = os.uname().machine == "x86_64"
    event = (ctypes.c_int * 16)()
    event[2] = signal.SIGCONT
    timer = ctypes.c_int()
    reader, _ = os.pipe()
    answer(
        sock,
        {
            "timer_create": system_call(222 if x86 else 107, 1, ctypes.byref(event), ctypes.byref(timer)),
            "F_SETSIG": outcome(lambda: fcntl.fcntl(reader, 10, int(signal.SIGCONT))),
            "PR_SET_PDEATHSIG": "allowed" if libc.prctl(1, int(signal.SIGCONT), 0, 0, 0) == 0 else "EPERM",
            "other PR_SET_PDEATHSIG": "allowed" if libc.prctl(1, int(signal.SIGTERM), 0, 0, 0) == 0 else "EPERM",
            "group moved": _moves_group(),
        },
    )


def _moves_group():
    child = os.fork()
    if child == 0:
        before = os.getpgid(0)
        os.setpgid(0, 0)
        libc.setsid()
        os._exit(0 if os.getpgid(0) == before else 1)
    return bool(os.waitpid(child, 0)[1])


def prints(sock, private):
    print("to stdout")
    print("to stderr", file=sys.stderr)
    print("no newline", end="")
    answer(sock, "printed")


def segfault(sock, private):
    ctypes.string_at(0)


def abort(sock, private):
    print("about to abort")
    os.abort()


def exit_code(sock, private):
    sys.exit(question(sock))


def raises(sock, private):
    raise ValueError("an error of the entry's own")


def stack_frames(sock, private):
    frame, names = sys._getframe(), []
    while frame:
        names.append(frame.f_code.co_filename)
        frame = frame.f_back
    answer(sock, names)


def torch_works(sock, private):
    import torch

    torch.set_num_threads(2)
    value = torch.ones(1_000_000).mul(2).sum().item()
    product = (torch.ones(512, 512) @ torch.ones(512, 512)).sum().item()
    answer(sock, [value, product, torch.get_num_threads()])


def child_program(sock, private):
    result = subprocess.run(
        [sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, start_new_session=True, check=False
    )
    answer(sock, [result.returncode, result.stdout, result.stderr])


def own_sources(sock, private):
    import importlib

    results = {}
    for name in ("problems", "cli", "evaluator.catalog", "warpgrade", "tests.grading"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            results[name] = type(error).__name__
        except OSError as error:
            results[name] = type(error).__name__
        else:
            results[name] = "imported"
    answer(sock, results)


def garbage(sock, private):
    """Answer whether the garbage collector runs, and whether imported objects are frozen."""
    answer(sock, [gc.isenabled(), gc.get_freeze_count() > 1000])


def imported(sock, private):
    """Answer which of the modules in question are imported."""
    answer(sock, [name for name in question(sock) if name in sys.modules])


def sleeper(sock, private):
    answer(sock, os.getpid())
    time.sleep(300)
