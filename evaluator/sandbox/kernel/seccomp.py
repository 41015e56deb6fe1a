"""A seccomp filter in classic BPF. It refuses system calls that kernel code of a submission never needs.

Six kinds of calls are refused or restricted:

* calls that widen the kernel's attack surface or reach other processes (ptrace, mounts, namespaces, bpf, ...);
* `socket` for any family but AF_UNIX; without a private view, any socket able to reach another process;
* every call sending a signal, if the signal is SIGCONT. A frozen runner must stay frozen, and SIGCONT continues a
  stopped process or cancels a pending stop. A process of a runner could otherwise send SIGCONT in the microseconds
  between another's stop and its own;
* calls that make the kernel send SIGCONT: a POSIX timer, F_SETSIG, a parent-death signal, a child's exit signal or a
  message queue. The death of a parent also sends SIGCONT, if a process group becomes orphaned;
* calls creating memory outside every limit: unmapped memfds, pages given to a pipe, larger pipes, and descriptors in
  flight through a socket, which outlive the sender until the kernel collects them;
* calls choosing cores, priorities and scheduling classes: a runner keeps its initial cores.

clone3 returns ENOSYS, because a filter cannot read its flags in memory; libc then falls back to clone. So does every
call that is newer than this list: a kernel of next year adds calls that nobody has looked at.
"""

import ctypes
import errno
import platform
import signal
import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

from evaluator.sandbox.kernel import syscalls

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_JUMP_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K

_KILL = 0x80000000  # SECCOMP_RET_KILL_PROCESS
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_REFUSE = _ERRNO | errno.EPERM
_PRETEND = _ERRNO | 0
"""Skip the call and return 0."""

# Offsets in struct seccomp_data. Both architectures are little-endian: the low half of an argument comes first.
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _ARGUMENT_BYTES = 0, 4, 16, 8
_X32_BIT = 0x40000000

_PR_SET_PDEATHSIG = syscalls.PR_SET_PDEATHSIG
_F_SETSIG = 10
_F_SETPIPE_SZ = 1031
_RECORD_LOCKS = (6, 7, 37, 38)
"""F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW. A lock on each byte of a file takes memory that no limit counts."""
_BUFFER_SIZES = (socket.SO_SNDBUF, socket.SO_RCVBUF, 32, 33)  # the last two: SO_SNDBUFFORCE, SO_RCVBUFFORCE
_EXIT_SIGNAL_MASK = 0xFF
_SOCKET_TYPE_MASK = 0xF
_NEW_NAMESPACES = (
    syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWCGROUP
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWUSER
    | syscalls.CLONE_NEWPID
    | syscalls.CLONE_NEWNET
)


class _Numbers(NamedTuple):
    """The number of a call on each architecture; None where the call does not exist."""

    x86_64: int | None
    aarch64: int | None


# From asm/unistd_64.h and asm-generic/unistd.h.
_REFUSED: dict[str, _Numbers] = {
    "acct": _Numbers(163, 89),
    "add_key": _Numbers(248, 217),
    "adjtimex": _Numbers(159, 171),
    "bpf": _Numbers(321, 280),
    "chroot": _Numbers(161, 51),
    "clock_adjtime": _Numbers(305, 266),
    "clock_settime": _Numbers(227, 112),
    "delete_module": _Numbers(176, 106),
    "fanotify_init": _Numbers(300, 262),
    "finit_module": _Numbers(313, 273),
    "fsconfig": _Numbers(431, 431),
    "fsmount": _Numbers(432, 432),
    "fsopen": _Numbers(430, 430),
    "fspick": _Numbers(433, 433),
    "init_module": _Numbers(175, 105),
    "io_setup": _Numbers(206, 0),
    "io_uring_enter": _Numbers(426, 426),
    "io_uring_register": _Numbers(427, 427),
    "io_uring_setup": _Numbers(425, 425),
    "ioperm": _Numbers(173, None),
    "iopl": _Numbers(172, None),
    "kcmp": _Numbers(312, 272),
    "kexec_file_load": _Numbers(320, 294),
    "kexec_load": _Numbers(246, 104),
    "keyctl": _Numbers(250, 219),
    "lookup_dcookie": _Numbers(212, 18),
    "migrate_pages": _Numbers(256, 238),
    "modify_ldt": _Numbers(154, None),
    "mount": _Numbers(165, 40),
    "mount_setattr": _Numbers(442, 442),
    "move_mount": _Numbers(429, 429),
    "move_pages": _Numbers(279, 239),
    "mq_notify": _Numbers(244, 184),
    "mq_open": _Numbers(240, 180),
    "msgget": _Numbers(68, 186),
    "name_to_handle_at": _Numbers(303, 264),
    "nfsservctl": _Numbers(180, 42),
    "open_by_handle_at": _Numbers(304, 265),
    "open_tree": _Numbers(428, 428),
    "perf_event_open": _Numbers(298, 241),
    "personality": _Numbers(135, 92),
    "pidfd_getfd": _Numbers(438, 438),
    "pivot_root": _Numbers(155, 41),
    "process_madvise": _Numbers(440, 440),
    "process_vm_readv": _Numbers(310, 270),
    "process_vm_writev": _Numbers(311, 271),
    "ptrace": _Numbers(101, 117),
    "quotactl": _Numbers(179, 60),
    "quotactl_fd": _Numbers(443, 443),
    "reboot": _Numbers(169, 142),
    "request_key": _Numbers(249, 218),
    "semget": _Numbers(64, 190),
    "setdomainname": _Numbers(171, 162),
    "sethostname": _Numbers(170, 161),
    "setns": _Numbers(308, 268),
    "settimeofday": _Numbers(164, 170),
    "shmget": _Numbers(29, 194),
    "swapoff": _Numbers(168, 225),
    "swapon": _Numbers(167, 224),
    "syslog": _Numbers(103, 116),
    "timer_create": _Numbers(222, 107),
    "umount2": _Numbers(166, 39),
    "unshare": _Numbers(272, 97),
    "uselib": _Numbers(134, None),
    "userfaultfd": _Numbers(323, 282),
    "ustat": _Numbers(136, None),
    "vhangup": _Numbers(153, 58),
    "vmsplice": _Numbers(278, 75),
}
_MESSAGES: dict[str, _Numbers] = {"sendmsg": _Numbers(46, 211), "sendmmsg": _Numbers(307, 269)}
"""Calls that can pass descriptors. A filter cannot see whether a message contains any."""
_UNMAPPED_MEMORY: dict[str, _Numbers] = {"memfd_create": _Numbers(319, 279), "memfd_secret": _Numbers(447, 447)}
_SCHEDULING: dict[str, tuple[_Numbers, int]] = {
    "ioprio_set": (_Numbers(251, 30), 1),
    "sched_setaffinity": (_Numbers(203, 122), 0),
    "sched_setattr": (_Numbers(314, 274), 0),
    "sched_setparam": (_Numbers(142, 118), 0),
    "sched_setscheduler": (_Numbers(144, 119), 0),
    "setpriority": (_Numbers(141, 140), 1),
}
"""Each call with the index of the argument naming the target. 0 means the caller, except that `ioprio_set` and
`setpriority` also accept groups and users."""
_REFUSED_AMONG_OTHERS = ("ioprio_set", "setpriority")
"""Calls refused to a tool able to name other users' processes: target 0 may be a process group or a user."""
# A separate process group could become orphaned, and the kernel would send SIGCONT. Many programs ask for a group
# without need, so the call returns success and does nothing.
_PRETENDED: dict[str, _Numbers] = {"setpgid": _Numbers(109, 154), "setsid": _Numbers(112, 157)}
_SENDS_A_SIGNAL: dict[str, tuple[_Numbers, int]] = {
    "kill": (_Numbers(62, 129), 1),
    "pidfd_send_signal": (_Numbers(424, 424), 1),
    "rt_sigqueueinfo": (_Numbers(129, 138), 1),
    "rt_tgsigqueueinfo": (_Numbers(297, 240), 2),
    "tgkill": (_Numbers(234, 131), 2),
    "tkill": (_Numbers(200, 130), 1),
}
"""Each call with the index of its signal argument: an int, so the kernel reads only the low half too."""
_NEWEST_KNOWN = 462
"""mseal (Linux 6.10). Newer calls have the same numbers on both architectures."""
_CLONE = _Numbers(56, 220)
_CLONE3 = _Numbers(435, 435)
_CONNECT = _Numbers(42, 203)
_FCNTL = _Numbers(72, 25)
_PRCTL = _Numbers(157, 167)
_PRLIMIT = _Numbers(302, 261)
_SETSOCKOPT = _Numbers(54, 208)
_SOCKET = _Numbers(41, 198)
_SOCKETPAIR = _Numbers(53, 199)

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_Instruction = tuple[int, int, int, int]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> _Instruction:
    return code, if_true, if_false, value


def _load_argument(index: int) -> _Instruction:
    return _instruction(_LOAD, _FIRST_ARGUMENT + index * _ARGUMENT_BYTES)


def _return(value: int) -> _Instruction:
    return _instruction(_RETURN, value)


def _on_call(number: int | None, body: list[_Instruction]) -> list[_Instruction]:
    """Return `body` guarded by the test for call `number`, already in the accumulator. All paths of `body` return."""
    if number is None:
        return []
    return [_instruction(_JUMP_EQUAL, number, 0, len(body)), *body]


def _clone_rule() -> list[_Instruction]:
    """Allow threads and plain children: no new namespaces, no exit signal except SIGCHLD or none.

    Threads must share one descriptor table, as with libc: `memory_meter` counts one table for each process.
    """
    return [
        _load_argument(0),
        _instruction(_JUMP_ANY_BIT, syscalls.CLONE_THREAD, 0, 1),
        _instruction(_JUMP_ANY_BIT, syscalls.CLONE_FILES, 0, 5),
        _instruction(_JUMP_ANY_BIT, _NEW_NAMESPACES, 4, 0),
        _instruction(_AND, _EXIT_SIGNAL_MASK),
        _instruction(_JUMP_EQUAL, 0, 1, 0),
        _instruction(_JUMP_EQUAL, signal.SIGCHLD, 0, 1),
        _return(_ALLOW),
        _return(_REFUSE),
    ]


def _allow_only(index: int, value: int, mask: int = 0xFFFFFFFF) -> list[_Instruction]:
    return [
        _load_argument(index),
        _instruction(_AND, mask),
        _instruction(_JUMP_EQUAL, value, 0, 1),
        _return(_ALLOW),
        _return(_REFUSE),
    ]


def _refuse_only(index: int, *values: int) -> list[_Instruction]:
    refusals = [line for value in values for line in (_instruction(_JUMP_EQUAL, value, 0, 1), _return(_REFUSE))]
    return [_load_argument(index), *refusals, _return(_ALLOW)]


def _file_control(*, pretends_locks: bool) -> list[_Instruction]:
    """Restrict fcntl. Runners share no files, so a record lock excludes no other process and may be skipped."""
    pretended = _RECORD_LOCKS if pretends_locks else ()
    answers = [line for command in pretended for line in (_instruction(_JUMP_EQUAL, command, 0, 1), _return(_PRETEND))]
    load, *rest = _refuse_only(1, _F_SETSIG, _F_SETPIPE_SZ)
    return [load, *answers, *rest]


def _usual_buffers() -> list[_Instruction]:
    """Keep the size of socket queues, on which `memory_meter` relies.

    A request for more returns success and does nothing.
    """
    sizes = [line for size in _BUFFER_SIZES for line in (_instruction(_JUMP_EQUAL, size, 0, 1), _return(_PRETEND))]
    return [
        _load_argument(1),
        _instruction(_JUMP_EQUAL, socket.SOL_SOCKET, 0, 1 + len(sizes)),
        _load_argument(2),
        *sizes,
        _return(_ALLOW),
    ]


def _no_continue_signal_from_parent() -> list[_Instruction]:
    return [
        _load_argument(0),
        _instruction(_JUMP_EQUAL, _PR_SET_PDEATHSIG, 0, 3),
        _load_argument(1),
        _instruction(_JUMP_EQUAL, signal.SIGCONT, 0, 1),
        _return(_REFUSE),
        _return(_ALLOW),
    ]


def _unconnected_unix() -> list[_Instruction]:
    """Allow AF_UNIX stream and packet sockets, which reach no process and hold nothing until connected.

    CUDA creates a stream or packet socket at initialization, and a refusal fails with error 304. Datagram sockets are
    refused: see `program`.
    """
    return [
        _load_argument(0),
        _instruction(_JUMP_EQUAL, socket.AF_UNIX, 0, 5),
        _load_argument(1),
        _instruction(_AND, _SOCKET_TYPE_MASK),
        _instruction(_JUMP_EQUAL, socket.SOCK_STREAM, 1, 0),
        _instruction(_JUMP_EQUAL, socket.SOCK_SEQPACKET, 0, 1),
        _return(_ALLOW),
        _return(_REFUSE),
    ]


def program(machine: str, *, private_view: bool, own_processes: bool, gpu: bool, tool: bool) -> list[_Instruction]:
    """Return the filter for `machine` ("x86_64" or "aarch64") as (code, jump if true, jump if false, value).

    Without a `private_view`, sockets are refused: a socket could connect to services of the host, which Landlock does
    not prevent. With a `gpu`, sockets unable to connect are allowed. A runner with a private view gets the same
    sockets.

    A `tool` without a `gpu` is a compiler and runs no code of a submission. It may choose cores and priorities (`nice`
    does), but without `own_processes` (a process namespace) not those of other processes. A tool with a `gpu` runs a
    submission under its control, and both exchange messages. CUDA creates a memfd at initialization, and a refusal
    fails with error 304.

    Raises KeyError for another machine.
    """

    def number(numbers: _Numbers) -> int | None:
        return numbers.x86_64 if machine == "x86_64" else numbers.aarch64

    filtered: list[_Instruction] = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_JUMP_EQUAL, ARCHITECTURES[machine], 1, 0),
        _return(_KILL),
        _instruction(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        filtered += [_instruction(_JUMP_AT_LEAST, _X32_BIT, 0, 1), _return(_KILL)]
    filtered += [_instruction(_JUMP_AT_LEAST, _NEWEST_KNOWN + 1, 0, 1), _return(_ERRNO | errno.ENOSYS)]
    filtered += _on_call(number(_CLONE3), [_return(_ERRNO | errno.ENOSYS)])
    filtered += _on_call(number(_CLONE), _clone_rule())
    filtered += _on_call(number(_FCNTL), _file_control(pretends_locks=not tool))
    filtered += _on_call(number(_PRCTL), _no_continue_signal_from_parent())
    filtered += _on_call(number(_PRLIMIT), _allow_only(0, 0))
    for numbers, its_signal in _SENDS_A_SIGNAL.values():
        filtered += _on_call(number(numbers), _refuse_only(its_signal, signal.SIGCONT))
    if private_view and tool:
        filtered += _on_call(number(_SOCKET), _allow_only(0, socket.AF_UNIX))
    else:
        unconnected = gpu or private_view
        filtered += _on_call(number(_SOCKET), _unconnected_unix() if unconnected else [_return(_REFUSE)])
        # Data sent over an unaccepted connection, or in a datagram, outlives the sender. Thousands of messages can wait
        # at a descriptor for which `memory_meter` counts a single queue.
        filtered += _on_call(number(_CONNECT), [_return(_REFUSE)])
        # sendmsg can direct a datagram socket to any address, and a filter cannot read the address.
        filtered += _on_call(number(_SOCKETPAIR), _allow_only(1, socket.SOCK_STREAM, _SOCKET_TYPE_MASK))
    for name, (numbers, pid_argument) in _SCHEDULING.items():
        if gpu or not tool:
            # Programs rarely need the pinning, but libc fails to create a thread if its pinning fails. The call
            # therefore returns success and does nothing.
            filtered += _on_call(number(numbers), [_return(_PRETEND)])
        elif not own_processes:
            refused = name in _REFUSED_AMONG_OTHERS
            filtered += _on_call(number(numbers), [_return(_REFUSE)] if refused else _allow_only(pid_argument, 0))
    if not tool:
        filtered += _on_call(number(_SETSOCKOPT), _usual_buffers())
        filtered += _all_on_call((number(call) for call in _MESSAGES.values()), _REFUSE)
    if not (tool or gpu):
        filtered += _all_on_call((number(call) for call in _UNMAPPED_MEMORY.values()), _ERRNO | errno.ENOSYS)
    filtered += _all_on_call((number(call) for call in _PRETENDED.values()), _PRETEND)
    filtered += _all_on_call((number(call) for call in _REFUSED.values()), _REFUSE)
    return [*filtered, _return(_ALLOW)]


def _all_on_call(numbers: Iterable[int | None], verdict: int) -> list[_Instruction]:
    return [line for number in numbers for line in _on_call(number, [_return(verdict)])]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def apply(*, private_view: bool, own_processes: bool, gpu: bool, tool: bool) -> None:
    """Filter this thread and all its descendants irrevocably. Needs PR_SET_NO_NEW_PRIVS."""
    load(program(platform.machine(), private_view=private_view, own_processes=own_processes, gpu=gpu, tool=tool))


def load(lines: list[_Instruction]) -> None:
    """Filter this thread and its descendants by `lines`, as returned by `program`."""
    packed = b"".join(struct.pack("=HBBI", *line) for line in lines)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    described = _Program(length=len(lines), filter=ctypes.addressof(buffer))
    syscalls.prctl(syscalls.PR_SET_SECCOMP, syscalls.SECCOMP_MODE_FILTER, ctypes.c_void_p(ctypes.addressof(described)))
