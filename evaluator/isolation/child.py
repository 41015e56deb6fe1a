"""One confined process as the judge holds it: freeze it, let it go on, end it, ask how it ended."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from evaluator.errors import JudgeFailed
from evaluator.isolation import wire
from evaluator.isolation.output import OutputDrain
from evaluator.isolation.scratch import Scratch
from evaluator.records import RunnerOutput

_ANSWER_S = 5.0
_KILL_S = 20.0
_OUTPUT_S = 2.0
"""How long the end of the output is waited for. Once all writers are dead it is there at once."""

M = TypeVar("M", wire.Started, wire.Frozen, wire.Thawed)


class ExitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How a runner's first process ended: by itself with `exit_code`, or by `signal` ("SIGSEGV").

    `out_of_memory`: it died of SIGKILL, because all its processes together held too much, or while the kernel killed
    something for want of memory.
    `by_judge`: it was still alive when the judge killed it. None of this proves anything about its work.
    """

    exit_code: int | None
    signal: str | None
    out_of_memory: bool
    by_judge: bool


_KILLED_BY_JUDGE = ExitInfo(exit_code=None, signal="SIGKILL", out_of_memory=False, by_judge=True)


class ConfinedProcess:
    """An untrusted process and all that it started. Methods may be called from several threads."""

    def __init__(
        self, warden: socket.socket, output: OutputDrain, when_dead: Callable[["ConfinedProcess"], None]
    ) -> None:
        """Wait until the walls stand. `warden` is the judge's end; `when_dead` is called once, after the last death.

        Raises JudgeFailed if the process could not be made; nothing of it is left then.
        """
        self._warden = warden
        self._output = output
        self._when_dead = when_dead
        self._exit: ExitInfo | None = None
        self._dead = False
        self._lock = threading.RLock()
        self._processes: tuple[int, ...] = ()
        self._files_end: int | None = None
        self._warden.settimeout(_ANSWER_S)
        try:
            self._processes = self._meet_supervisor()
            self._meet_warden()
        except BaseException:
            self.kill()
            raise

    def _meet_supervisor(self) -> tuple[int, ...]:
        message, descriptors = self._receive()
        if not isinstance(message, wire.Created):
            raise JudgeFailed(f"a supervisor began with {type(message).__name__}")
        return tuple(descriptors)

    def _meet_warden(self) -> None:
        while not isinstance((met := self._receive())[0], wire.Started):
            self._note(met[0])
        self._files_end = met[1][0] if met[1] else None

    def members(self) -> frozenset[int]:
        """Give the numbers, on this side, of all processes of it that live now, the two over the first one included."""
        import psutil

        with self._lock, contextlib.suppress(psutil.Error, IndexError, ValueError, OSError, StopIteration):
            facts = Path(f"/proc/self/fdinfo/{self._processes[0]}").read_text(encoding="ascii").splitlines()
            supervisor = psutil.Process(int(next(line.split()[1] for line in facts if line.startswith("Pid:"))))
            return frozenset({supervisor.pid, *(process.pid for process in supervisor.children(recursive=True))})
        return frozenset()

    def freeze(self) -> bool:
        """Stop every process of the runner, in one step. Returns whether all of them have stopped, with all threads.

        They have not if one of them is inside of a system call that cannot be interrupted (50 ms are waited for). Where
        /proc is not the runner's own, that is known of its first process alone; the others have been sent the stop too,
        and take it within microseconds. Raises JudgeFailed if the warden does not answer.
        """
        with self._lock:
            self._order(wire.Command.FREEZE)
            return self._await(wire.Frozen).settled

    def thaw(self) -> None:
        """Let every process of the runner go on."""
        with self._lock:
            self._order(wire.Command.THAW)
            self._await(wire.Thawed)

    def poll_exit(self) -> ExitInfo | None:
        """Say how the first process ended, or None while it runs."""
        return self.wait_exit(0)

    def wait_exit(self, timeout_s: float) -> ExitInfo | None:
        """Wait for the end of the first process, at most `timeout_s`. Others that it started may live on."""
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:
                if self._exit is None and wire.ready(self._warden, 0):
                    self._note(self._receive()[0])
                if self._exit is not None:
                    return self._exit
            # Not under the lock, so that another thread can freeze or kill meanwhile.
            if not wire.ready(self._warden, deadline - time.monotonic()):
                return None

    def kill(self) -> ExitInfo:
        """End every process of the runner; when this returns there is none, and none of its memory is left.

        Calling it again changes nothing. Raises JudgeFailed if one of them cannot be killed (it hangs inside of a
        driver), or if something else still holds the files that it had in memory.
        """
        with self._lock:
            if not self._dead:
                self._kill()
            return self._exit or _KILLED_BY_JUDGE

    def condemn(self) -> None:
        """Begin to end every process of the runner, and wait for none of it: see `kill`."""
        with self._lock:
            if not self._dead:
                self._condemn()

    def _condemn(self) -> None:
        if self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                # The kernel does this at once, whatever state the warden is in.
                signal.pidfd_send_signal(self._processes[-1], signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._warden.shutdown(socket.SHUT_WR)

    def _kill(self) -> None:
        # Descriptors of the supervisor and of the warden. A process's becomes readable when it is dead: the warden's,
        # as the first of a process namespace, or the supervisor's after that, only when nobody below is left.
        self._condemn()
        deadline = time.monotonic() + _KILL_S
        for process in self._processes:
            if not wire.ready(process, deadline - time.monotonic()):
                raise JudgeFailed("a runner cannot be killed: one of its processes does not return from the kernel")
        # The memory of a process is given back before its descriptor is readable; files may be held by somebody else.
        if self._files_end is not None and not wire.ready(self._files_end, deadline - time.monotonic()):
            raise JudgeFailed("a runner is dead, and something still holds its files in memory")
        with contextlib.suppress(wire.HungUp, OSError):
            while self._exit is None:
                self._note(wire.receive(self._warden)[0])
        self._exit = self._exit or _KILLED_BY_JUDGE
        self._dead = True
        self._output.finish(_OUTPUT_S)
        for descriptor in (*self._processes, *((self._files_end,) if self._files_end is not None else ())):
            os.close(descriptor)
        self._warden.close()
        self._when_dead(self)

    def output(self) -> RunnerOutput:
        """Give what was printed so far; after `kill`, all of it that is kept."""
        return self._output.text()

    def _order(self, command: wire.Command) -> None:
        try:
            self._warden.send(command.value, socket.MSG_NOSIGNAL)
        except OSError as error:
            raise JudgeFailed(f"the warden of a runner is gone: {error.strerror}") from None

    def _await(self, kind: type[M]) -> M:
        while True:
            message, _ = self._receive()
            if isinstance(message, kind):
                return message
            self._note(message)

    def _receive(self) -> tuple[wire.AnyMessage, list[int]]:
        try:
            message, descriptors = wire.receive(self._warden)
        except TimeoutError:
            raise JudgeFailed(f"the warden of a runner has not answered for {_ANSWER_S:.0f} s") from None
        except (wire.HungUp, OSError):
            raise JudgeFailed("the warden of a runner was lost") from None
        if isinstance(message, wire.Failed):
            raise JudgeFailed(f"a runner could not be started: {message.reason}")
        return message, descriptors

    def _note(self, message: wire.AnyMessage) -> None:
        if isinstance(message, wire.Exited):
            name = wire.exit_signal(message.status)
            self._exit = ExitInfo(
                exit_code=None if name else os.waitstatus_to_exitcode(message.status),
                signal=name,
                out_of_memory=message.out_of_memory,
                by_judge=False,
            )


class Child(ConfinedProcess):
    """A runner. `socket` is connected to it; its folder `private` is at this path on its side."""

    def __init__(
        self,
        warden: socket.socket,
        output: OutputDrain,
        when_dead: Callable[["ConfinedProcess"], None],
        *,
        runner: socket.socket,
        scratch: Scratch,
    ) -> None:
        """Wait until the walls stand, as for any confined process."""
        self.socket = runner
        self._scratch = scratch
        super().__init__(warden, output, when_dead)

    @property
    def private(self) -> Path:
        """Where its folder is."""
        return self._scratch.path

    def kill(self) -> ExitInfo:
        """End every process of the runner, close its socket (what it still held is lost), remove its private folder."""
        ending = super().kill()
        self.socket.close()
        self._scratch.close()
        return ending
