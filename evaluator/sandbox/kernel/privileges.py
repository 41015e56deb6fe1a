"""Users and capabilities of a runner, and the loss of all further privileges."""

import contextlib
import errno
import os
import secrets
import socket
from enum import StrEnum
from pathlib import Path
from typing import assert_never

import msgspec

from evaluator.sandbox.kernel import syscalls

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
        become(user)
        # A change of user gives /proc/self to root, and the maps below could not be written.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER | _ISOLATED)
    with contextlib.suppress(FileNotFoundError):  # Linux before 3.19
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")


_HIGH_RANGE = range(2_000_000_000, 2_040_000_000)
"""Far above the numbers that distributions and containers assign, and below 2**31."""
_CAPABILITIES_AT_MOST = 64
_DRAWS = 100


class Identities(msgspec.Struct, frozen=True, kw_only=True):
    """Users for one runner where the judge is root: for the runner, and for each of the two trusted processes above.

    No account and no other runner has these numbers, so per-user limits and signals apply to this runner alone.
    """

    runner: int
    warden: int
    supervisor: int


def reserve_identities() -> tuple[Identities, socket.socket]:
    """Draw three users without a live runner on this machine. Groups get the same numbers.

    The users are reserved until the returned socket is closed, at the latest with this process: its abstract name is
    unique. A second runner with equal users would be stopped and killed together with the first. Raises OSError.
    """
    for _ in range(_DRAWS):
        drawn = fresh_identities()
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            reservation.bind(f"\0warpgrade-user-{drawn.runner}")
        except OSError as error:
            reservation.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return drawn, reservation
    raise OSError(errno.EADDRINUSE, "other runners have all users that were drawn")


def fresh_identities() -> Identities:
    """Draw three users without an account. With a small map, a live runner has equal users once in thousands."""
    limit = min(_mapped_below("uid_map"), _mapped_below("gid_map"))
    step = len(_HIGH_RANGE)
    if limit > _HIGH_RANGE.stop + 2 * step:
        first = _HIGH_RANGE.start + secrets.randbelow(step)
        return Identities(runner=first, warden=first + step, supervisor=first + 2 * step)
    # In a container with a small map, usually 65536 users, take numbers from the upper half.
    step = limit // 8
    first = limit // 2 + secrets.randbelow(step)
    return Identities(runner=first, warden=first + step, supervisor=first + 2 * step)


def _mapped_below(name: str) -> int:
    """Return the number below which this user namespace maps every user (or group)."""
    lines = Path("/proc/self", name).read_text(encoding="ascii").split("\n")
    ranges = sorted((int(line.split()[0]), int(line.split()[2])) for line in lines if line)
    limit = 0
    for start, count in ranges:
        if start > limit:
            break
        limit = start + count
    return limit


def become(user: int) -> None:
    """Become `user`, and the group of the same number, irrevocably."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def give_up_capabilities() -> None:
    """Drop every capability, and every way to gain capabilities (set-user-ID programs included)."""
    syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
    syscalls.set_capabilities()
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)


def empty_bounding_set() -> None:
    """Drop every capability from the bounding set; does nothing without the right to do so."""
    # EPERM without the right (an ordinary user has nothing to drop); EINVAL beyond the last capability.
    with contextlib.suppress(OSError):
        for capability in range(_CAPABILITIES_AT_MOST):
            syscalls.prctl(syscalls.PR_CAPBSET_DROP, capability)
