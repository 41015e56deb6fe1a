"""Layers of the sandbox: limits, a probe of the machine, and the chosen layers.

Each layer is tried once in a forked child; versions prove nothing. The calling process must have no threads, because a
multithreaded process cannot enter a user namespace.
"""

import contextlib
import os
import platform
import resource
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from evaluator.errors import SandboxUnavailable
from evaluator.records import SandboxFacts, SandboxMode
from evaluator.sandbox import mounts, visible_files
from evaluator.sandbox.kernel import landlock, privileges, seccomp, syscalls
from evaluator.sandbox.kernel.privileges import Namespaces
from evaluator.sandbox.kernel.process_group import ProcessGroup

_GIB = 1 << 30


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Resource limits of one runner.

    `memory_bytes` bounds the address space of each process, beyond the mappings at the start of confinement: torch
    alone maps 0.6 GiB, and a CUDA build of torch many times as much. `held_bytes` bounds the memory of all processes
    together, mapped or not (see `memory_meter`); it is checked four times a second. `processes` counts threads too.
    `private_folder_bytes` bounds the private folder, /tmp and /dev/shm together. `work_bytes` bounds the host folder
    that a tool writes into, checked ten times a second. Of the output, the first and the last `kept_output_bytes` are
    kept.
    """

    memory_bytes: int = 16 * _GIB
    held_bytes: int = 16 * _GIB
    processes: int = 512
    file_bytes: int = 1 * _GIB
    open_files: int = 1024
    private_folder_bytes: int = 1 * _GIB
    work_bytes: int = 4 * _GIB
    kept_output_bytes: int = 16 << 10


def apply(limits: Limits, *, counted_alone: bool) -> None:
    """Apply `limits` to this process.

    `counted_alone` means that no other process runs under the same user in this user namespace.
    """
    other_tasks = 0 if counted_alone else _tasks_of_this_user()
    for kind, value in (
        (resource.RLIMIT_AS, _mapped_bytes() + limits.memory_bytes),
        (resource.RLIMIT_NPROC, limits.processes + other_tasks),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_NICE, 0),
        (resource.RLIMIT_RTPRIO, 0),
    ):
        _, hard = resource.getrlimit(kind)
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (allowed, allowed))


def _mapped_bytes() -> int:
    """Return the address space mapped by this process; 0 without /proc."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _tasks_of_this_user() -> int:
    user, count = Path("/proc/self").stat().st_uid, 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # The process ended during the scan.
            if folder.stat().st_uid == user:
                count += sum(1 for _ in (folder / "task").iterdir())
    return count


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Layers found to work on a machine; `refused` holds the reasons for the rest.

    `private_view` includes a mount namespace and a /proc showing only the runner's processes. `own_user` means a
    separate user for each runner. `landlock_abi` is 0 without Landlock.
    """

    namespaces: Namespaces
    private_view: bool
    own_user: bool
    landlock_abi: int
    seccomp: bool
    refused: dict[str, str]


class Layers(msgspec.Struct, frozen=True, kw_only=True):
    """The sandbox layers of a runner."""

    namespaces: Namespaces
    private_view: bool
    own_user: bool
    landlock: bool
    seccomp: bool
    process_group: ProcessGroup


_NO_LAYERS = Layers(
    namespaces=Namespaces.NONE,
    private_view=False,
    own_user=False,
    landlock=False,
    seccomp=False,
    process_group=ProcessGroup.DESCENDANTS,
)


def choose_layers(mode: SandboxMode, machine: Machine) -> Layers:
    """Return every layer that `machine` allows.

    Raises SandboxUnavailable if no layer protects files, or if a confined runner could not read Python.
    """
    if mode is SandboxMode.NONE:
        return _NO_LAYERS
    if not machine.private_view and machine.landlock_abi == 0:
        reasons = "; ".join(f"{layer}: {reason}" for layer, reason in machine.refused.items())
        raise SandboxUnavailable(
            f"this machine permits neither a private mount namespace nor Landlock ({reasons})",
            hint="permit user namespaces, or use Linux 5.13 or newer; --sandbox none disables the sandbox",
        )
    if machine.own_user and not machine.private_view:
        hidden = visible_files.unreachable_for_others()
        if hidden is not None:
            raise SandboxUnavailable(
                f"runners have a separate user, which cannot read Python in {hidden}",
                hint="run as an ordinary user, or with a Python that all users can read",
            )
    return Layers(
        namespaces=machine.namespaces,
        private_view=machine.private_view,
        own_user=machine.own_user,
        landlock=machine.landlock_abi > 0,
        seccomp=machine.seccomp,
        process_group=_choose_cage(machine),
    )


def _choose_cage(machine: Machine) -> ProcessGroup:
    if machine.namespaces is not Namespaces.NONE:
        return ProcessGroup.PROCESS_NAMESPACE
    if machine.own_user:
        return ProcessGroup.OWN_USER
    if machine.landlock_abi >= landlock.SIGNALS_ABI:
        return ProcessGroup.LANDLOCK_DOMAIN
    return ProcessGroup.DESCENDANTS


def sandbox_facts(mode: SandboxMode, machine: Machine, layers: Layers, limits: Limits) -> SandboxFacts:
    """Return the active and the missing layers for the scorecard."""
    separate = layers.namespaces is not Namespaces.NONE
    abi = machine.landlock_abi if layers.landlock else 0
    stands = {
        "private-file-view": layers.private_view,
        "process-namespace": separate,
        "network-namespace": separate,
        "ipc-namespace": separate,
        "own-proc": layers.private_view,
        # A runner in a separate user namespace has no rights outside and is counted separately.
        "own-user": layers.own_user or layers.namespaces is Namespaces.USER,
        "landlock-files": abi > 0,
        "landlock-network": abi >= landlock.NETWORK_ABI,
        "landlock-signals": abi >= landlock.SIGNALS_ABI,
        "seccomp": layers.seccomp,
        "folder-quota": layers.private_view,
        "atomic-freeze": layers.process_group is not ProcessGroup.DESCENDANTS and layers.seccomp,
    }
    return SandboxFacts(
        mode=mode.value,
        layers=[layer for layer, active in stands.items() if active],
        missing=[layer for layer, active in stands.items() if not active],
        memory_bytes=limits.memory_bytes,
        processes=limits.processes,
        file_bytes=limits.file_bytes,
        private_folder_bytes=limits.private_folder_bytes,
        held_bytes=limits.held_bytes,
    )


_REPORT_BYTES = 4096
_TRIAL_SCRATCH_BYTES = 1 << 20


def examine() -> Machine:
    """Try every sandbox layer and return the results."""
    refused: dict[str, str] = {}

    def works(layer: str, trial: Callable[[], object]) -> bool:
        problem = _failure_of(trial)
        if problem:
            refused[layer] = problem
        return not problem

    own_user = os.geteuid() == 0 and works("own-user", lambda: privileges.become(privileges.fresh_identities().runner))
    kind = _namespaces(refused, own_user=own_user)
    private_view = kind is not Namespaces.NONE and works("private-file-view", lambda: _try_view(kind, own_user))
    return Machine(
        # The layers of a runner with namespaces, but with the machine's files, are not tested.
        namespaces=kind if private_view else Namespaces.NONE,
        private_view=private_view,
        own_user=own_user,
        landlock_abi=landlock.abi() if works("landlock", _try_landlock) else 0,
        seccomp=works("seccomp", _try_seccomp),
        refused=refused,
    )


def _namespaces(refused: dict[str, str], *, own_user: bool) -> Namespaces:
    kinds = [Namespaces.ROOT] if os.geteuid() == 0 else []
    for kind in (*kinds, Namespaces.USER):
        user = privileges.fresh_identities().runner if own_user else None
        problem = _failure_of(partial(privileges.enter, kind, user))
        if not problem:
            return kind
        refused[f"{kind}-namespaces"] = problem
    return Namespaces.NONE


def _try_landlock() -> None:
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    landlock.restrict([(Path("/"), landlock.READ)])


def _try_seccomp() -> None:
    if platform.machine() not in seccomp.ARCHITECTURES:
        raise OSError(f"no filter is written for {platform.machine()}")
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.apply(private_view=True, own_processes=True, gpu=False, tool=False)


def _try_view(kind: Namespaces, own_user: bool) -> None:  # noqa: FBT001 - private
    user = privileges.fresh_identities().runner if own_user else None
    with tempfile.TemporaryDirectory(prefix="warpgrade-probe-") as folder:
        if user is not None:
            os.chown(folder, user, user)
        trial_view = visible_files.FileView(
            private=folder,
            host_private=False,
            readable=visible_files.readable_paths(),
            hidden=visible_files.hidden_paths(),
            devices=(),
            scratch_bytes=_TRIAL_SCRATCH_BYTES,
        )

        def enter_and_build() -> None:
            privileges.enter(kind, user)
            # The next child becomes the first process of the new process namespace.
            _in_a_child(lambda: mounts.build(trial_view, (os.geteuid(), os.getegid())))

        _in_a_child(enter_and_build)


def _in_a_child(trial: Callable[[], object]) -> None:
    """Run `trial` in a forked child. Raises OSError if it raises there."""
    if problem := _failure_of(trial):
        raise OSError(problem)


def _failure_of(trial: Callable[[], object]) -> str:
    """Run `trial` in a forked child. Return the text of the exception raised, or ""."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            trial()
        except BaseException as error:  # noqa: BLE001 - nothing may run on in the child
            os.write(writer, (str(error) or traceback.format_exc())[:_REPORT_BYTES].encode())
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as report:
        text = report.read().decode()
    _, status = os.waitpid(child, 0)
    return text or ("" if status == 0 else f"the trial ended with status {status}")
