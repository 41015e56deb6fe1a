"""The judge's handle on its starter, the fork server: early start, requests for confined processes, shutdown."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from evaluator.errors import JudgeFailed
from evaluator.paths import cache_folder
from evaluator.records import SandboxFacts, SandboxMode
from evaluator.sandbox import messages, visible_files
from evaluator.sandbox.available_layers import Layers, Limits, Machine, choose_layers, sandbox_facts
from evaluator.sandbox.confined_process import Child, ConfinedProcess, OutputDrain
from evaluator.sandbox.kernel.privileges import Identities, reserve_identities
from evaluator.sandbox.scratch_folders import entered, hand_over, remove_abandoned
from evaluator.sandbox.visible_files import library_folders

DEFAULT_PRELOAD = ("torch", "evaluator.runner.main")
_READY_S = 180.0
"""An import of PyTorch took 3 s of CPU time, and 10 s in all on 2 cores with a load of 8. Network disks are slower."""
_STDERR_BYTES = 8 << 10
# -I: no imports from the environment or the current folder. -B: no bytecode written.
_PYTHON = (sys.executable, "-I", "-B", "-X", "utf8", "-W", "ignore")
# The library folders precede Python's own packages, as in this process.
_BOOT = "import sys; sys.path[:0] = sys.argv[1:]; from evaluator.sandbox.init import fork_server; fork_server.main({})"


class ForkServer:
    """A fork server for runners, with torch imported. As a context manager, it kills all runners on exit.

    The constructor returns at once, so that the start overlaps with the judge's own; the first use waits for the end of
    the imports. Methods may be called from several threads.

        with ForkServer(environment={"OMP_NUM_THREADS": "2"}) as fork_server:
            child = fork_server.spawn("evaluator.runner.main:run")
    """

    def __init__(
        self,
        *,
        mode: SandboxMode = SandboxMode.FULL,
        limits: Limits | None = None,
        environment: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
        preload: Sequence[str] = DEFAULT_PRELOAD,
        extra_sys_path: Sequence[Path] = (),
    ) -> None:
        """Start the fork server process.

        Args:
            mode: the requested sandbox mode.
            limits: default limits of each runner; `spawn` may override the limits.
            environment: variables for the starter and every runner, besides PATH, HOME, TMPDIR and LANG.
            readable: paths that every runner may read, besides the system, Python and its packages.
            preload: modules to import before the first fork; imports must not compute anything with torch.
            extra_sys_path: further folders of modules, besides those of this Python.
        """
        self._mode = mode
        self._limits = limits if limits is not None else Limits()
        self._environment = {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin", **(environment or {})}
        self._readable = tuple(readable)
        self._machine: Machine | None = None
        self._ended_for = ""
        self._alive: set[ConfinedProcess] = set()
        self._lock = threading.RLock()
        self._socket, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its_end:
            self._process = subprocess.Popen(
                [*_PYTHON, "-c", _BOOT.format(its_end.fileno()), str(visible_files.source_root()), *library_folders()],
                env={**self._environment, "HOME": "/", "TMPDIR": "/tmp", "LANG": "C.UTF-8"},  # noqa: S108
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(its_end.fileno(),),
                start_new_session=True,  # Only the judge gets Ctrl-C, and then shuts the others down in order.
            )
        assert self._process.stderr is not None  # noqa: S101 - for the type checker: PIPE was asked for
        self._stderr = OutputDrain(os.dup(self._process.stderr.fileno()), _STDERR_BYTES)
        self._process.stderr.close()
        setup = messages.Setup(preload=tuple(preload), extra_sys_path=tuple(map(str, extra_sys_path)))
        with contextlib.suppress(OSError):  # A dead starter is reported, with the reason, at the first use.
            messages.send(self._socket, setup)
        remove_abandoned()  # The imports leave time to remove the folders of killed processes.

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def machine(self) -> Machine:
        """The layers available on this machine. Waits for the starter; raises JudgeFailed if the start fails."""
        with self._lock:
            if self._machine is None:
                self._machine = self._await_ready()
            return self._machine

    @property
    def layers(self) -> Layers:
        """The sandbox layers of every runner. Raises SandboxUnavailable if the machine allows too few for the mode."""
        return choose_layers(self._mode, self.machine)

    @property
    def facts(self) -> SandboxFacts:
        """The sandbox layers as recorded in a scorecard."""
        return sandbox_facts(self._mode, self.machine, self.layers, self._limits)

    def preload(self, module: str) -> None:
        """Import `module` before the next runner starts, without waiting. A failed import is left to the runners."""
        with contextlib.suppress(OSError):  # A dead starter is reported at the next spawn.
            messages.send(self._socket, messages.Preload(module=module))

    def spawn(
        self,
        entry: str,
        limits: Limits | None = None,
        *,
        readable: Sequence[Path] = (),
        devices: Sequence[Path] = (),
    ) -> Child:
        """Start a runner that calls `entry` ("module:function") with its socket and its private folder.

        `readable` and `devices` extend the view of all runners. Raises JudgeFailed if the runner cannot be started, and
        SandboxUnavailable if the machine allows too few layers.
        """
        limits = limits if limits is not None else self._limits
        with contextlib.ExitStack() as undo:  # also for Ctrl-C
            layers, users, when_dead = self._layers_and_identities(undo)
            try:
                scratch = entered("run", undo)
            except OSError as error:
                raise JudgeFailed(
                    f"cannot create a folder for a runner: {error}", hint="free space in $TMPDIR"
                ) from error
            if users is not None:
                os.chown(scratch.path, users.runner, users.runner)
            judges_end, runners_end = socket.socketpair()
            undo.callback(judges_end.close)
            order = messages.Spawn(
                layers=layers,
                identities=users,
                limits=limits,
                files=self._view(scratch.path, limits, readable, devices, host_private=False),
                environment=self._environment,
                entry=entry,
            )
            with runners_end:
                warden, output = self._ask(order, runners_end)
            child = Child(warden, output, when_dead, runner=judges_end, scratch=scratch)
            self._alive.add(child)
            undo.pop_all()
        return child

    def execute(
        self,
        argv: Sequence[str],
        *,
        work: Path,
        limits: Limits | None = None,
        readable: Sequence[Path] = (),
        devices: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> ConfinedProcess:
        """Start the program `argv` in the host folder `work`, with write access; its user must be able to write there.

        See `run_tool` for a call that also transfers the ownership of `work`, and back.
        """
        limits = limits if limits is not None else self._limits
        with contextlib.ExitStack() as undo:
            layers, users, when_dead = self._layers_and_identities(undo)
            order = messages.Spawn(
                layers=layers,
                identities=users,
                limits=limits,
                files=self._view(work, limits, readable, devices, host_private=True),
                environment={**self._environment, **(environment or {})},
                argv=tuple(argv),
            )
            if users is not None:
                hand_over(work, users.runner, users.runner)
            warden, output = self._ask(order, None)
            process = ConfinedProcess(warden, output, when_dead)
            self._alive.add(process)
            undo.pop_all()
        return process

    def end_all(self, but: Collection[Child] = ()) -> None:
        """Kill every remaining runner and tool `but` some; the starter stays usable."""
        with contextlib.ExitStack() as closing:
            for process in tuple(self._alive):
                if process not in but:
                    closing.callback(process.kill)
                    process.condemn()  # All die in parallel.

    def condemn_all(self) -> None:
        """Begin to kill every remaining runner and tool; the threads waiting for their end do the rest."""
        for process in tuple(self._alive):
            process.condemn()

    def give_up(self) -> None:
        """Kill a starter during its imports, so that no thread waits for the end. A ready starter continues."""
        if self._machine is None:
            self._process.kill()

    def close(self) -> None:
        """Kill every remaining runner, then the starter."""
        with contextlib.ExitStack() as closing:
            closing.callback(self._end_process)
            closing.callback(self.end_all)

    def _end_process(self) -> None:
        self._socket.close()
        self._process.kill()  # During an import the starter would not notice the closed socket.
        self._process.wait()

    def _layers_and_identities(
        self, undo: contextlib.ExitStack
    ) -> tuple[Layers, Identities | None, Callable[[ConfinedProcess], None]]:
        """Return the layers and users of a process, and the callback of the death. `undo` frees the users, too."""
        layers = self.layers
        if not layers.own_user:
            return layers, None, self._alive.discard
        try:
            users, reservation = reserve_identities()
        except OSError as error:
            raise JudgeFailed(f"cannot reserve a user for a runner: {error}") from error
        undo.callback(reservation.close)

        def when_dead(process: ConfinedProcess) -> None:
            self._alive.discard(process)
            reservation.close()

        return layers, users, when_dead

    def _view(
        self,
        private: Path,
        limits: Limits,
        readable: Sequence[Path],
        devices: Sequence[Path],
        *,
        host_private: bool,
    ) -> visible_files.FileView:
        return visible_files.FileView(
            private=str(private.absolute()),
            host_private=host_private,
            readable=visible_files.readable_paths([*self._readable, *readable]),
            hidden=(*visible_files.hidden_paths(), str(cache_folder().resolve())),
            devices=tuple(map(str, devices)),
            scratch_bytes=limits.private_folder_bytes,
        )

    def _ask(self, order: messages.Spawn, runners_end: socket.socket | None) -> tuple[socket.socket, OutputDrain]:
        """Send `order`. Return the judge's end of the warden's socket and the drain of the coming output."""
        judges_end, wardens_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reader, writer = os.pipe()
        descriptors = [wardens_end.fileno(), writer]
        if runners_end is not None:
            descriptors.append(runners_end.fileno())
        try:
            with self._lock:
                messages.send(self._socket, order, descriptors)
        except OSError:
            os.close(reader)
            judges_end.close()
            self._lost("the starter of runners has ended")
        finally:
            wardens_end.close()
            os.close(writer)
        return judges_end, OutputDrain(reader, order.limits.kept_output_bytes)

    def _await_ready(self) -> Machine:
        if not messages.ready(self._socket, _READY_S):
            self._lost(f"the starter of runners was not ready within {_READY_S:.0f} s")
        try:
            message, _ = messages.receive(self._socket)
        except (messages.HungUp, OSError):
            self._lost("the starter of runners ended before it was ready")
        if not isinstance(message, messages.Ready):
            self._lost(f"the starter of runners began with {type(message).__name__}")
        return message.machine

    def _lost(self, cause: str) -> NoReturn:
        """Raise JudgeFailed. Later calls report the first reason again."""
        with self._lock:
            self._process.kill()
            self._process.wait()
            self._stderr.finish(1.0)
            error_output = self._stderr.text().text.strip()
            self._ended_for = self._ended_for or (f"{cause}: {error_output}" if error_output else cause)
        raise JudgeFailed(self._ended_for, hint="run `warpgrade doctor`, then grade again")
