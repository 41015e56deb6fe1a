"""The judge's handle on one confined process: freeze, thaw, kill, exit status, and output, drained and kept in part."""

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

from evaluator.errors import JudgeFailed, OutlivesKill
from evaluator.records import RunnerOutput
from evaluator.sandbox import messages
from evaluator.sandbox.scratch_folders import Scratch
from evaluator.sandbox.time_limit import CpuTime, cpu_time_below

_CHUNK_BYTES = 1 << 16


class OutputDrain:
    """A thread that reads a pipe to its end and keeps the first and the last `kept_bytes`.

    The thread never blocks the writer for long and holds at most twice `kept_bytes`, however much is written.
    """

    def __init__(self, descriptor: int, kept_bytes: int) -> None:
        """Take ownership of `descriptor`, the read end of a pipe."""
        self._descriptor = descriptor
        self._kept_bytes = kept_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._total_bytes = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, name="output-drain", daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        with contextlib.closing(os.fdopen(self._descriptor, "rb", buffering=0)) as pipe:
            while chunk := pipe.read(_CHUNK_BYTES):
                with self._lock:
                    self._keep(chunk)

    def _keep(self, chunk: bytes) -> None:
        self._total_bytes += len(chunk)
        missing = self._kept_bytes - len(self._head)
        self._head += chunk[:missing]
        self._tail += chunk[missing:]
        del self._tail[: max(0, len(self._tail) - self._kept_bytes)]

    def finish(self, timeout_s: float) -> None:
        """Wait until every writer has closed the pipe."""
        self._thread.join(timeout_s)

    def text(self) -> RunnerOutput:
        """Return the output read so far."""
        with self._lock:
            head, tail, total = bytes(self._head), bytes(self._tail), self._total_bytes
        left_out = total - len(head) - len(tail)
        gap = f"\n[... {left_out} bytes left out ...]\n".encode() if left_out else b""
        return RunnerOutput(total_bytes=total, text=harmless((head + gap + tail).decode(errors="replace")))


def harmless(text: str) -> str:
    r"""Escape characters that could control a terminal or mislead its reader: escapes, controls, direction marks.

    >>> harmless("ok\r\n\x1b[31mred")
    'ok\n\\x1b[31mred'
    """
    return "".join(
        character if character.isprintable() or character in "\n\t" else character.encode("unicode_escape").decode()
        for character in text.replace("\r\n", "\n")
    )


_ANSWER_S = 30.0
"""Limit on waiting for a trusted process: milliseconds, and seconds on a machine with far more work than cores."""
_KILL_S = 20.0
_MOST_HANGING = 8
"""More processes than this do not hang in a driver: each still frees its mappings, at most 65,530 in half a second."""
_OUTPUT_S = 5.0
"""Limit on waiting for the end of the output. After the death of all writers the end is available at once."""

M = TypeVar("M", messages.Started, messages.Frozen, messages.Thawed)


class ExitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Exit of a runner's first process: voluntary with `exit_code`, or by `signal` ("SIGSEGV").

    `out_of_memory`: the process died of SIGKILL, and either all processes of the runner together exceeded the limit, or
    the kernel's OOM killer ran meanwhile. `by_judge`: the process was alive when the judge killed it. No field proves
    anything about the runner's work.
    """

    exit_code: int | None
    signal: str | None
    out_of_memory: bool
    by_judge: bool


_KILLED_BY_JUDGE = ExitInfo(exit_code=None, signal="SIGKILL", out_of_memory=False, by_judge=True)


class ConfinedProcess:
    """An untrusted process with all its descendants. Methods may be called from several threads."""

    def __init__(
        self, warden: socket.socket, output: OutputDrain, when_dead: Callable[["ConfinedProcess"], None]
    ) -> None:
        """Wait until all sandbox layers are in place.

        `warden` is the judge's end of the warden's socket; `when_dead` is called by each `kill`, after everything else.
        Raises JudgeFailed if the process could not be started; no part of it is left then.
        """
        self._warden = warden
        self._output = output
        self._when_dead = when_dead
        self._exit: ExitInfo | None = None
        self._dead = False
        self._is_abandoned = False
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
        if not isinstance(message, messages.Created):
            raise JudgeFailed(f"a supervisor began with {type(message).__name__}")
        return tuple(descriptors)

    def _meet_warden(self) -> None:
        while not isinstance((met := self._receive())[0], messages.Started):
            self._note(met[0])
        self._files_end = met[1][0] if met[1] else None

    def members(self) -> frozenset[int]:
        """Return the ids, on the judge's side, of all live processes, including supervisor and warden."""
        import psutil

        with self._lock, contextlib.suppress(psutil.Error, IndexError, ValueError, OSError, StopIteration):
            supervisor = psutil.Process(self._supervisor_id())
            return frozenset({supervisor.pid, *(process.pid for process in supervisor.children(recursive=True))})
        return frozenset()

    def cpu_time(self) -> CpuTime:
        """Return the CPU time of all processes of the runner until now, with that of the idle warden."""
        with self._lock, contextlib.suppress(IndexError, ValueError, OSError, StopIteration):
            return cpu_time_below(self._supervisor_id())
        return CpuTime(0.0, {})

    def _supervisor_id(self) -> int:
        facts = Path(f"/proc/self/fdinfo/{self._processes[0]}").read_text(encoding="ascii").splitlines()
        return int(next(line.split()[1] for line in facts if line.startswith("Pid:")))

    def freeze(self) -> bool:
        """Stop every process of the runner in one step. Return whether all threads of all processes have stopped.

        A process inside an uninterruptible system call does not stop; the wait is limited to 50 ms. Without a /proc of
        the runner's own, only the first process is checked. The others were sent SIGSTOP too, and obey within
        microseconds. Raises JudgeFailed if the warden does not answer.
        """
        with self._lock:
            self._order(messages.Command.FREEZE)
            return self._await(messages.Frozen).settled

    def thaw(self) -> None:
        """Continue every process of the runner."""
        with self._lock:
            self._order(messages.Command.THAW)
            self._await(messages.Thawed)

    def poll_exit(self) -> ExitInfo | None:
        """Return how the first process ended, or None while it runs."""
        return self.wait_exit(0)

    def wait_exit(self, timeout_s: float) -> ExitInfo | None:
        """Wait at most `timeout_s` for the exit of the first process. Its descendants may live on."""
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:
                if self._exit is None and messages.ready(self._warden, 0):
                    self._note(self._receive()[0])
                if self._exit is not None:
                    return self._exit
                if deadline <= time.monotonic():
                    return None
                # A copy: after `kill`, the number of the closed descriptor may mean another file.
                warden = self._warden.dup()
            # Wait without the lock, so that another thread can freeze or kill meanwhile.
            with warden:
                if not messages.ready(warden, deadline - time.monotonic()):
                    return None

    def kill(self) -> ExitInfo:
        """Kill every process of the runner. On return, all processes are dead and all their memory is freed.

        A repeated call changes nothing. Raises JudgeFailed if a process cannot be killed (blocked inside a driver), or
        if another process still holds the runner's in-memory files. Raises OutlivesKill if many processes end slowly;
        a repeated call then waits no more. None of the processes runs any code of its own again.
        """
        with self._lock:
            if not (self._dead or self._is_abandoned):
                self._kill()
            self._let_go()  # A repeated call finishes an interrupted call.
            self._when_dead(self)
            self._exit = self._exit or _KILLED_BY_JUDGE
            return self._exit

    def condemn(self) -> None:
        """Begin to kill every process of the runner, without waiting: see `kill`."""
        with self._lock:
            if not self._dead:
                self._condemn()

    def _condemn(self) -> None:
        if self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                # The kernel acts on SIGKILL at once, even if the warden is busy.
                signal.pidfd_send_signal(self._processes[-1], signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._warden.shutdown(socket.SHUT_WR)

    def _kill(self) -> None:
        # Pidfds of the supervisor and of the warden. The warden's pidfd becomes readable after the warden's death, last
        # of all in a process namespace. Without a namespace the supervisor exits only when no process below is left.
        self._condemn()
        deadline = time.monotonic() + _KILL_S
        for process in self._processes:
            if not messages.ready(process, deadline - time.monotonic()):
                self._is_abandoned = (alive := len(self.members())) > _MOST_HANGING
                if self._is_abandoned:
                    raise OutlivesKill(f"{alive} processes of a runner were not gone {_KILL_S:.0f} s after their kill")
                raise JudgeFailed("a runner cannot be killed: one of its processes hangs in a system call")
        self._drop_unread()
        # The memory of a process is freed before its pidfd is readable; other processes may hold files.
        if self._files_end is not None and not messages.ready(self._files_end, deadline - time.monotonic()):
            raise JudgeFailed("a runner is dead, and something still holds its files in memory")
        with contextlib.suppress(messages.HungUp, OSError):
            while self._exit is None:
                self._note(messages.receive(self._warden)[0])
        self._exit = self._exit or _KILLED_BY_JUDGE
        self._output.finish(_OUTPUT_S)
        self._dead = True

    def _drop_unread(self) -> None:
        """Drop what the dead runner sent and the judge did not read. A program has no connection to the judge."""

    def _let_go(self) -> None:
        """Close the descriptors of a dead process. A repeated call changes nothing."""
        processes, files_end = self._processes, self._files_end
        self._processes, self._files_end = (), None
        for descriptor in (*processes, *(() if files_end is None else (files_end,))):
            os.close(descriptor)
        self._warden.close()

    def output(self) -> RunnerOutput:
        """Return what was printed so far; after `kill`, everything that is kept."""
        return self._output.text()

    def _order(self, command: messages.Command) -> None:
        try:
            self._warden.send(command.value, socket.MSG_NOSIGNAL)
        except OSError as error:
            raise JudgeFailed(f"the init process of a runner ended: {error.strerror}") from None

    def _await(self, kind: type[M]) -> M:
        while True:
            message, _ = self._receive()
            if isinstance(message, kind):
                return message
            self._note(message)

    def _receive(self) -> tuple[messages.AnyMessage, list[int]]:
        try:
            message, descriptors = messages.receive(self._warden)
        except TimeoutError:
            raise JudgeFailed(f"the init process of a runner did not answer for {_ANSWER_S:.0f} s") from None
        except (messages.HungUp, OSError):
            raise JudgeFailed("the init process of a runner disconnected") from None
        if isinstance(message, messages.NotStarted):
            raise JudgeFailed(f"a runner did not start: {message.reason}")
        return message, descriptors

    def _note(self, message: messages.AnyMessage) -> None:
        if isinstance(message, messages.Exited):
            name = messages.exit_signal(message.status)
            self._exit = ExitInfo(
                exit_code=None if name else os.waitstatus_to_exitcode(message.status),
                signal=name,
                out_of_memory=message.out_of_memory,
                by_judge=False,
            )


class Child(ConfinedProcess):
    """A runner, with the judge's end of its `socket`. Its folder `private` has this path inside the sandbox too.

    `kill` also closes the socket and removes the folder; unread messages are lost.
    """

    def __init__(
        self,
        warden: socket.socket,
        output: OutputDrain,
        when_dead: Callable[["ConfinedProcess"], None],
        *,
        runner: socket.socket,
        scratch: Scratch,
    ) -> None:
        """Wait until all sandbox layers are in place, as for any confined process."""
        self.socket = runner
        self._scratch = scratch
        super().__init__(warden, output, when_dead)

    @property
    def private(self) -> Path:
        """The runner's private folder."""
        return self._scratch.path

    def _drop_unread(self) -> None:
        """Close the runner's socket: without seccomp, unread messages may hold the output pipe and files open."""
        self.socket.close()

    def _let_go(self) -> None:
        """Close the runner's socket and remove its private folder, too."""
        self.socket.close()
        self._scratch.close()
        super()._let_go()
