"""Landlock: file, signal and TCP restrictions imposed by a process on itself (Linux 5.13 and newer).

A ruleset denies every access of the *handled* kinds, except where a rule allows the access. Newer ABIs can handle more
kinds; this module handles everything known to the running kernel. Constants are defined in linux/landlock.h.
"""

import ctypes
import os
import stat
from collections.abc import Iterable
from enum import IntFlag
from pathlib import Path

from evaluator.sandbox.kernel import syscalls

SIGNALS_ABI = 6
"""The first ABI to restrict signals (and abstract sockets) to the domain."""
NETWORK_ABI = 4
"""The first ABI to deny TCP."""


class Access(IntFlag):
    """Access rights of a file or folder (LANDLOCK_ACCESS_FS_*)."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


READ = Access.EXECUTE | Access.READ_FILE | Access.READ_DIR
WRITE_IN_PLACE = READ | Access.WRITE_FILE | Access.TRUNCATE
DEVICE = Access.READ_FILE | Access.WRITE_FILE | Access.TRUNCATE | Access.IOCTL_DEV
EVERYTHING = Access((1 << 16) - 1) & ~(Access.MAKE_CHAR | Access.MAKE_BLOCK)

_ON_FILES = Access.EXECUTE | DEVICE
_HANDLED_FROM_ABI = {1: (1 << 13) - 1, 2: Access.REFER, 3: Access.TRUNCATE, 5: Access.IOCTL_DEV}
_BIND_AND_CONNECT_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_SIGNALS = 0b10
_ASK_FOR_VERSION = 1
_RULE_PATH_BENEATH = 1


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("descriptor", ctypes.c_int32))


def abi() -> int:
    """Return the kernel's Landlock ABI; 0 if Landlock is absent or disabled."""
    try:
        return syscalls.syscall(
            "landlock_create_ruleset", syscalls.SYS_LANDLOCK_CREATE_RULESET, None, 0, _ASK_FOR_VERSION
        )
    except OSError:
        return 0


def restrict(rules: Iterable[tuple[Path, Access]]) -> None:
    """Deny this thread and its descendants every access outside `rules`. Missing paths are skipped.

    Needs PR_SET_NO_NEW_PRIVS. Raises OSError without Landlock.
    """
    version = abi()
    handled = Access(sum(access for first, access in _HANDLED_FROM_ABI.items() if first <= version))
    ruleset = _create(
        _Ruleset(
            files=handled,
            network=_BIND_AND_CONNECT_TCP if version >= NETWORK_ABI else 0,
            scoped=_ABSTRACT_SOCKETS_AND_SIGNALS if version >= SIGNALS_ABI else 0,
        ),
        version,
    )
    try:
        for path, access in rules:
            _allow(ruleset, path, access & handled)
        _enter(ruleset)
    finally:
        os.close(ruleset)


def restrict_signals() -> None:
    """Restrict signals of this process to itself and its descendants. Needs ABI 6 and PR_SET_NO_NEW_PRIVS."""
    ruleset = _create(_Ruleset(scoped=_SIGNALS), SIGNALS_ABI)
    try:
        _enter(ruleset)
    finally:
        os.close(ruleset)


def _create(ruleset: _Ruleset, version: int) -> int:
    # The kernel refuses a longer attribute struct than it knows, unless the excess is zero; pass the known length.
    known_bytes = 8 if version < NETWORK_ABI else 16 if version < SIGNALS_ABI else 24
    return syscalls.syscall(
        "landlock_create_ruleset", syscalls.SYS_LANDLOCK_CREATE_RULESET, ctypes.byref(ruleset), known_bytes, 0
    )


def _enter(ruleset: int) -> None:
    syscalls.syscall("landlock_restrict_self", syscalls.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)


def _allow(ruleset: int, path: Path, access: Access) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _ON_FILES
        rule = _PathBeneath(access=access, descriptor=descriptor)
        syscalls.syscall(
            "landlock_add_rule",
            syscalls.SYS_LANDLOCK_ADD_RULE,
            ruleset,
            _RULE_PATH_BENEATH,
            ctypes.byref(rule),
            0,
        )
    finally:
        os.close(descriptor)
