"""System calls without a wrapper in Python 3.11, as functions raising OSError.

Numbers are those of x86-64 and arm64; calls newer than Linux 5.1 have the same number on both. Constants are named as
in the kernel's headers (sched.h, mount.h, prctl.h, capability.h).
"""

import ctypes
import os
import platform
from pathlib import Path

CLONE_FILES = 0x00000400
CLONE_THREAD = 0x00010000
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 0x2

MOUNT_ATTR_RDONLY = 0x1
MOUNT_ATTR_NOSUID = 0x2
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECCOMP_MODE_FILTER = 2

CAP_KILL = 5

_IN_DELETE_SELF = 0x400
_IN_ONLYDIR = 0x1000000

_SYS_CLOSE_RANGE = 436
_SYS_MOUNT_SETATTR = 442
SYS_LANDLOCK_CREATE_RULESET = 444
SYS_LANDLOCK_ADD_RULE = 445
SYS_LANDLOCK_RESTRICT_SELF = 446
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_SYS_GETDENTS64 = {"x86_64": 217, "aarch64": 61}
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_machine = platform.machine()
_GETDENTS64 = ctypes.c_long(_SYS_GETDENTS64.get(_machine, -1))


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _checked(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def syscall(call: str, number: int, *arguments: object) -> int:
    """Make the system call `number`, named `call` in errors. Integers are passed as 64 bits."""
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *wide), call)


def prctl(option: int, *arguments: int | ctypes.c_void_p) -> int:
    """Set a property of the calling thread (prctl(2)); missing arguments are zero."""
    wide = [value if isinstance(value, ctypes.c_void_p) else ctypes.c_ulong(value) for value in arguments]
    wide += [ctypes.c_ulong(0)] * (4 - len(wide))
    return _checked(_libc.prctl(ctypes.c_int(option), *wide), f"prctl({option})")


def unshare(flags: int) -> None:
    """Leave the namespaces in `flags` for new ones."""
    _checked(_libc.unshare(ctypes.c_int(flags)), f"unshare({flags:#x})")


def mount(source: str | Path, target: str | Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount or bind `source` on `target`."""
    result = _libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None
    )
    _checked(result, f"mount {target}")


def unmount(target: str | Path, flags: int) -> None:
    """Unmount `target`."""
    _checked(_libc.umount2(os.fsencode(target), ctypes.c_int(flags)), f"umount {target}")


def mount_setattr(target: str | Path, attributes: int, *, recursive: bool) -> None:
    """Add `attributes` to the mount at `target`, optionally with all mounts below (Linux 5.12 and newer).

    Unlike a remount, the call keeps all existing flags, which an ordinary user may not clear.
    """
    change = _MountAttr(attr_set=attributes)
    flags = _AT_RECURSIVE if recursive else 0
    path = ctypes.c_char_p(os.fsencode(target))
    size = ctypes.sizeof(change)
    syscall("mount_setattr", _SYS_MOUNT_SETATTR, _AT_FDCWD, path, flags, ctypes.byref(change), size)


def watch_unmount(folder: str) -> int:
    """Return a descriptor that becomes readable at the end of the file system with root `folder`.

    The watch does not keep the file system alive. By then all its files are freed.
    """
    descriptor = _checked(_libc.inotify_init1(ctypes.c_int(os.O_CLOEXEC | os.O_NONBLOCK)), "inotify_init1")
    try:
        # Every inotify watch is notified of the end of its file system, regardless of the mask.
        watch = _libc.inotify_add_watch(descriptor, os.fsencode(folder), ctypes.c_uint32(_IN_DELETE_SELF | _IN_ONLYDIR))
        _checked(watch, f"inotify_add_watch {folder}")
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def pivot_root(new_root: str, put_old: str) -> None:
    """Make `new_root` the root, and move the old root to `put_old`."""
    new, old = ctypes.c_char_p(new_root.encode()), ctypes.c_char_p(put_old.encode())
    syscall("pivot_root", _SYS_PIVOT_ROOT[_machine], new, old)


def getdents(folder: int, buffer: "ctypes.Array[ctypes.c_char]") -> int:
    """Read entries of an open folder from its offset (getdents64(2)). Return the number of bytes, 0 at the end."""
    # `syscall` would take longer to convert the arguments than the kernel to answer.
    return _checked(_libc.syscall(_GETDENTS64, folder, buffer, ctypes.c_size_t(len(buffer))), "getdents64")


def close_from(first: int) -> None:
    """Close every descriptor from `first` on."""
    try:
        syscall("close_range", _SYS_CLOSE_RANGE, first, 0xFFFFFFFF, 0)
    except OSError:
        # Linux before 5.9, or a container's filter without the call.
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def set_capabilities(*capabilities: int) -> None:
    """Drop all other capabilities."""
    mask = sum(1 << capability for capability in capabilities)
    header = _CapHeader(version=_CAPABILITY_VERSION_3, pid=0)
    data = (_CapData * 2)(
        _CapData(effective=mask & 0xFFFFFFFF, permitted=mask & 0xFFFFFFFF),
        _CapData(effective=mask >> 32, permitted=mask >> 32),
    )
    syscall("capset", _SYS_CAPSET[_machine], ctypes.byref(header), ctypes.byref(data))


def die_with_parent(parent_pid: int, sig: int) -> None:
    """Ask the kernel to send `sig` on the parent's death. Raises ProcessLookupError if the parent is already dead.

    A change of user or a gain of capabilities clears the request, so make the request afterwards.
    """
    prctl(PR_SET_PDEATHSIG, sig)
    if os.getppid() != parent_pid:
        raise ProcessLookupError("the parent ended before its child was ready")
