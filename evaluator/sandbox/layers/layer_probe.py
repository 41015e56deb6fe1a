"""Detection of the sandbox layers that this machine allows.

Each layer is tried once in a forked child; versions prove nothing. The calling process must have no threads, because a
multithreaded process cannot enter a user namespace.
"""

import os
import platform
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from evaluator.sandbox.filesystem import mounts, visible_files
from evaluator.sandbox.kernel import landlock, privileges, seccomp, syscalls
from evaluator.sandbox.kernel.privileges import Namespaces
from evaluator.sandbox.layers.available_layers import Machine

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

    own_user = os.geteuid() == 0 and works("own-user", _try_own_user)
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


def _try_own_user() -> None:
    identities = privileges.fresh_identities()
    privileges.become(identities.runner)


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

        def build() -> None:
            mounts.build(trial_view, (os.geteuid(), os.getegid()))

        def enter_and_build() -> None:
            privileges.enter(kind, user)
            # The next child becomes the first process of the new process namespace.
            problem = _failure_of(build)
            if problem:
                raise OSError(problem)

        problem = _failure_of(enter_and_build)
        if problem:
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
