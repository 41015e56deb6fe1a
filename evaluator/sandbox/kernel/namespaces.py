"""New namespaces for a runner: mounts, processes, network, SysV IPC and host name."""

import contextlib
import os
from enum import StrEnum
from pathlib import Path
from typing import assert_never

from evaluator.sandbox.kernel import privileges, syscalls

_ISOLATED = (
    syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUTS
)


class Namespaces(StrEnum):
    """How namespaces are created: as `root`, inside a `user` namespace, or not at all (`none`)."""

    ROOT = "root"
    USER = "user"
    NONE = "none"


def enter(kind: Namespaces, user: int | None) -> None:
    """Leave the host's namespaces; the next child becomes the first process of the new process namespace.

    `user` is the user to become before a user namespace is created; None keeps the current user. Raises OSError if
    refused.
    """
    match kind:
        case Namespaces.NONE:
            return
        case Namespaces.ROOT:
            syscalls.unshare(_ISOLATED)
        case Namespaces.USER:
            _enter_user_namespace(user)
        case _:
            assert_never(kind)


def _enter_user_namespace(user: int | None) -> None:
    if user is not None:
        privileges.become(user)
        # A change of user gives /proc/self to root, and the maps below could not be written.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER | _ISOLATED)
    with contextlib.suppress(FileNotFoundError):  # Linux before 3.19
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")
