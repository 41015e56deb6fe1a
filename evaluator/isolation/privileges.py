"""Users and capabilities: who a runner is, and how it stops being anything more."""

import contextlib
import os
import secrets
from pathlib import Path

import msgspec

from evaluator.isolation import syscalls

_HIGH_RANGE = range(2_000_000_000, 2_040_000_000)
"""Far above what distributions and containers give to people and services, and below 2**31."""
_CAPABILITIES_AT_MOST = 64


class Identities(msgspec.Struct, frozen=True, kw_only=True):
    """The users of one runner when the judge is root: its own, and one for each of the two trusted processes over it.

    No account has these numbers, and no other runner: what is counted or signalled by user is counted for it alone.
    """

    runner: int
    warden: int
    supervisor: int


def fresh_identities() -> Identities:
    """Draw three users that nobody has. Groups get the same numbers."""
    limit = min(_mapped_below("uid_map"), _mapped_below("gid_map"))
    step = len(_HIGH_RANGE)
    if limit > _HIGH_RANGE.stop + 2 * step:
        first = _HIGH_RANGE.start + secrets.randbelow(step)
        return Identities(runner=first, warden=first + step, supervisor=first + 2 * step)
    # A container with a small map, usually of 65536 users: take them from its upper half.
    step = limit // 8
    first = limit // 2 + secrets.randbelow(step)
    return Identities(runner=first, warden=first + step, supervisor=first + 2 * step)


def _mapped_below(name: str) -> int:
    """Say below which number this user namespace knows every user (or group)."""
    lines = Path("/proc/self", name).read_text(encoding="ascii").split("\n")
    ranges = sorted((int(line.split()[0]), int(line.split()[2])) for line in lines if line)
    limit = 0
    for start, count in ranges:
        if start > limit:
            break
        limit = start + count
    return limit


def become(user: int) -> None:
    """Turn into `user`, and into the group of the same number, for good."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def give_up_capabilities() -> None:
    """Lose every capability, and every way to gain one (set-user-ID programs included)."""
    syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
    syscalls.set_capabilities()
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)


def empty_bounding_set() -> None:
    """Take every capability out of what a program could ever be given; does nothing without the right to do so."""
    # EPERM where we have no right to (an ordinary user has nothing to lose either); EINVAL after the last capability.
    with contextlib.suppress(OSError):
        for capability in range(_CAPABILITIES_AT_MOST):
            syscalls.prctl(syscalls.PR_CAPBSET_DROP, capability)
