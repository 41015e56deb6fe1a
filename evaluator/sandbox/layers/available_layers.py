"""The sandbox layers available on a machine, and the choice among them."""

import msgspec

from evaluator.errors import SandboxUnavailable
from evaluator.records import SandboxFacts, SandboxMode
from evaluator.sandbox.filesystem import visible_files
from evaluator.sandbox.kernel import landlock
from evaluator.sandbox.kernel.privileges import Namespaces
from evaluator.sandbox.kernel.process_group import ProcessGroup
from evaluator.sandbox.layers.resource_limits import Limits


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
