"""The last trusted steps inside a new runner: enter every sandbox layer, then call untrusted code.

Runs in the process that becomes the runner. A failure is reported to the warden through a pipe, which is closed before
untrusted code starts.
"""

import contextlib
import importlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

from evaluator.sandbox import available_layers, visible_files
from evaluator.sandbox.kernel import landlock, privileges, seccomp, syscalls
from evaluator.sandbox.kernel.privileges import Namespaces
from evaluator.sandbox.kernel.process_group import ProcessGroup
from evaluator.sandbox.messages import Spawn

_FIRST_FREE = 3
_PREFERRED_VICTIM = "1000"


def run(order: Spawn, output: int, runner_socket: int | None, report: int) -> NoReturn:
    """Become the runner that `order` describes. `report` is a pipe for the reason of a failure."""
    try:
        os.setsid()
        socket_at, report = _arrange_descriptors(output, runner_socket, report)
        # Import everything that the entry needs of Warpgrade now: its files cannot be opened later.
        entry = _import_entry(order.entry) if order.entry is not None else None
        _forget_own_sources(order.files.hidden)
        _set_environment(order)
        _apply_layers(order)
        if entry is None:
            _execute(order)
        os.close(report)
    except BaseException:  # noqa: BLE001 - reported below, and the process ends
        with contextlib.suppress(OSError):
            os.write(report, traceback.format_exc()[-4000:].encode())
        os._exit(1)
    _call(entry, socket.socket(fileno=socket_at), Path(order.files.private))


def _arrange_descriptors(output: int, runner_socket: int | None, report: int) -> tuple[int, int]:
    """Keep only the standard streams, the runner's socket and, until the end of this module, the report pipe."""
    inherited = [descriptor for descriptor in (runner_socket, report) if descriptor is not None]
    # Copy to high numbers first: a copy to a low number could overwrite a source.
    above = [os.dup(descriptor) for descriptor in (*inherited, output)]
    while min(above) < _FIRST_FREE + len(above):
        above = [os.dup(descriptor) for descriptor in above]
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(above[-1], 1)
    os.dup2(above[-1], 2)
    for target, source in enumerate(above[:-1], start=_FIRST_FREE):
        os.dup2(source, target, inheritable=False)
    syscalls.close_from(_FIRST_FREE + len(inherited))
    return _FIRST_FREE, _FIRST_FREE + len(inherited) - 1


def _import_entry(entry: str) -> Any:
    module, _, function = entry.partition(":")
    return getattr(importlib.import_module(module), function)


def _forget_own_sources(hidden: Sequence[str]) -> None:
    """Remove Warpgrade from the import path; modules that are already imported stay in memory."""
    sys.path[:] = [path for path in sys.path if path and path not in hidden]
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()


def _set_environment(order: Spawn) -> None:
    private = order.files.private
    os.environ.clear()
    os.environ.update({"HOME": private, "TMPDIR": private, "LANG": "C.UTF-8", **order.environment})
    os.umask(0o077)


def _apply_layers(order: Spawn) -> None:
    layers = order.layers
    rules = list(_landlock_rules(order)) if layers.landlock else []
    with contextlib.suppress(OSError):
        # Make the runner the OOM killer's first victim; only root can lower the score again.
        Path("/proc/self/oom_score_adj").write_text(_PREFERRED_VICTIM, encoding="ascii")
    counted_alone = order.identities is not None or layers.namespaces is Namespaces.USER
    available_layers.apply(order.limits, counted_alone=counted_alone)
    if layers.process_group is ProcessGroup.DESCENDANTS and not layers.landlock:
        os.chdir(order.files.private)
        return
    privileges.empty_bounding_set()
    if order.identities is not None and os.geteuid() != order.identities.runner:
        privileges.become(order.identities.runner)
        # A change of user gives /proc/self to root; CUDA writes thread names there.
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    os.chdir(order.files.private)
    privileges.give_up_capabilities()
    if layers.process_group is not ProcessGroup.PROCESS_NAMESPACE:
        syscalls.die_with_parent(os.getppid(), signal.SIGKILL)
    if layers.landlock:
        landlock.restrict(rules)
    if layers.seccomp:
        seccomp.apply(
            private_view=layers.private_view,
            own_processes=layers.process_group is ProcessGroup.PROCESS_NAMESPACE,
            gpu=bool(order.files.devices),
            tool=order.entry is None,
        )


def _landlock_rules(order: Spawn) -> Iterator[tuple[Path, landlock.Access]]:
    view = order.files
    yield Path(view.private), landlock.EVERYTHING
    for device in (*visible_files.PLAIN_DEVICES, *view.devices):
        yield Path(device), landlock.DEVICE
    if order.layers.private_view:
        # The view contains readable files only; Landlock restricts writing a second time.
        yield Path("/"), landlock.READ
        yield Path("/tmp"), landlock.EVERYTHING  # noqa: S108 - its own
        yield Path("/dev/shm"), landlock.EVERYTHING  # noqa: S108 - its own
        yield Path("/proc"), landlock.WRITE_IN_PLACE
        return
    for path in visible_files.granted(view.readable, view.hidden):
        yield path, landlock.READ
    # CUDA writes thread names below /proc. Without a view, /proc also shows other users' processes.
    yield Path("/proc"), landlock.WRITE_IN_PLACE if view.devices else landlock.READ
    if view.devices:
        # CUDA scans /sys and fails with error 304 on a refusal. Inside a view the files are merely absent, which CUDA
        # accepts.
        yield Path("/sys"), landlock.READ


def _execute(order: Spawn) -> NoReturn:
    # Python ignores these two signals, and an ignored signal stays ignored across exec.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    os.execvpe(order.argv[0], order.argv, os.environ)  # noqa: S606


def _line_writer(descriptor: int) -> TextIO:
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _call(entry: Any, sock: socket.socket, private: Path) -> NoReturn:
    status = 1
    try:
        # The old stream objects still refer to the streams they were opened on. Line buffering keeps output before a
        # crash.
        sys.stdout = _line_writer(1)
        sys.stderr = _line_writer(2)
        entry(sock, private)
        status = 0
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else 1
    except BaseException:  # noqa: BLE001 - nothing of the trusted processes above may run on in here
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(status & 0xFF)
