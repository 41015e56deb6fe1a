"""How every process of one runner is reached at once, and no other.

`kill(-1, signal)` reaches, in one system call and with no fork slipping through, all that the caller *may* signal. So
the trusted processes over a runner first give up the right to signal anything else:

* in a process namespace there is nothing else;
* as root, the caller's effective user becomes the runner's while its real and saved ones are nobody's: then it may
  signal the runner's processes and they may not signal it;
* with Landlock (ABI 6) the caller enters a domain of its own, and the runner one nested in it.

Without any of these the tree of descendants is walked, again and again until it no longer changes.
"""

import contextlib
import os
import signal
from enum import StrEnum
from pathlib import Path
from typing import assert_never

from evaluator.isolation import landlock, syscalls


class Cage(StrEnum):
    """What keeps the processes of one runner together."""

    PROCESS_NAMESPACE = "process namespace"
    OWN_USER = "own user"
    LANDLOCK_DOMAIN = "landlock domain"
    DESCENDANTS = "descendants"


def enter_before_fork(cage: Cage) -> None:
    """Prepare this trusted process before it starts the process below it."""
    if cage is not Cage.PROCESS_NAMESPACE:
        # What loses its parent becomes our child: then we can tell when nothing is left.
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    if cage is Cage.LANDLOCK_DOMAIN:
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        landlock.restrict_signals()


def enter_after_fork(cage: Cage, *, runner: int, own: int) -> None:
    """Finish what had to wait until the process below was started with our rights; users as in `Identities`."""
    if cage is Cage.OWN_USER:
        # With its group too, who reads how much memory it holds may list its descriptors.
        os.setresgid(own, runner, own)
        os.setresuid(own, runner, own)


def signal_all(cage: Cage, sig: signal.Signals) -> None:
    """Send `sig` to every process of the runner."""
    match cage:
        case Cage.PROCESS_NAMESPACE | Cage.OWN_USER | Cage.LANDLOCK_DOMAIN:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, sig)
        case Cage.DESCENDANTS:
            _signal_descendants(sig)
        case _:
            assert_never(cage)


def kill_all(cage: Cage) -> None:
    """Kill every process of the runner and wait until none is left. The caller must be their subreaper."""
    if cage is Cage.DESCENDANTS:
        # Stop them first: what is stopped starts nothing new while the rest is looked for.
        signal_all(cage, signal.SIGSTOP)
    signal_all(cage, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _signal_descendants(sig: signal.Signals) -> None:
    reached: set[int] = set()
    while fresh := _descendants() - reached:
        for pid in fresh:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, sig)
        reached |= fresh


def _descendants() -> set[int]:
    """Find every process below this one."""
    parents = dict(_process_and_parent(folder) for folder in Path("/proc").glob("[0-9]*"))
    found: set[int] = set()
    layer = {os.getpid()}
    while layer := {pid for pid, parent in parents.items() if parent in layer}:
        found |= layer
    return found


def _process_and_parent(folder: Path) -> tuple[int, int]:
    try:
        # The name in parentheses may hold anything; state and parent follow the last one.
        fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return int(folder.name), 0
    return int(folder.name), int(fields[1])
