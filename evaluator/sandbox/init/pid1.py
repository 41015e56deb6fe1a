"""The two trusted processes above each runner.

    starter ── supervisor ── warden ── runner ── descendants of the runner
                            (first process of the runner's process namespace)

The supervisor creates the namespaces, starts the warden and measures the memory of all processes of the runner. After
the warden's death it kills all survivors. The warden builds the file view and starts the runner. It obeys three orders
of the judge: freeze, thaw, and (by hanging up) kill. The supervisor may order the kill of a runner that holds too much
memory. Neither process ever runs code of a submission or reads data from one.
"""

import contextlib
import os
import select
import signal
import socket
import time
import traceback
from pathlib import Path
from typing import NoReturn

from evaluator.sandbox import messages, mounts
from evaluator.sandbox.init import sandbox_entry
from evaluator.sandbox.init.memory_meter import MemoryMeter
from evaluator.sandbox.kernel import privileges, process_group, syscalls
from evaluator.sandbox.kernel.process_group import OtherProcesses, ProcessGroup
from evaluator.sandbox.messages import Command, Spawn

_SETTLE_S = 0.05
"""Limit on waiting for the stop of a frozen runner. A thread inside a long system call stops late."""
_LOOK_AGAIN_S = 0.00001
"""Polling interval for the runner's descendants: the kernel does not notify the warden of their stop."""
_MEASURE_S = 0.25
"""Interval between measurements of a runner's memory."""
_REPORT_BYTES = 4096
_FOR_GOOD_S = 3600.0
_FIRST_IN_LINE = -20
_FROZEN = {settled: messages.encode(messages.Frozen(settled=settled)) for settled in (True, False)}
_THAWED = messages.encode(messages.Thawed())


def supervise(order: Spawn, judge: socket.socket, output: int, runner_socket: int | None) -> NoReturn:
    """Start a warden and outlive it. `judge` is the warden's end of its socket."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        meter, (alarm, alarm_end) = _meter(), os.pipe()
        warden_pid = _start_warden(order, judge, output, runner_socket, alarm, meter)
        os.close(alarm)
    except BaseException as error:  # noqa: BLE001 - reported below, and the process ends
        _tell_failure(judge, error)
        os._exit(1)
    judge.close()
    os.close(output)
    if runner_socket is not None:
        os.close(runner_socket)
    layers, users = order.layers, order.identities
    if users is not None:
        process_group.enter_after_fork(layers.process_group, runner=users.runner, own=users.supervisor)
    _measure_until_dead(warden_pid, order, meter, alarm_end)
    os.waitpid(warden_pid, 0)
    if layers.process_group is not ProcessGroup.PROCESS_NAMESPACE:
        process_group.kill_all(layers.process_group)
    os._exit(0)


def _meter() -> MemoryMeter | None:
    try:
        return MemoryMeter()
    except OSError:
        return None


def _measure_until_dead(warden_pid: int, order: Spawn, meter: MemoryMeter | None, alarm: int) -> None:
    """Measure the memory of all processes below the warden until its death; above the limit, write to `alarm`."""
    warden = os.pidfd_open(warden_pid)
    memfds = bool(order.files.devices) or not order.layers.seccomp
    while not messages.ready(warden, _MEASURE_S if meter is not None else _FOR_GOOD_S):
        if meter is not None and meter.exceeds(warden_pid, order.limits.held_bytes, memfds=memfds):
            os.write(alarm, b"!")
            meter = None


def _start_warden(
    order: Spawn, judge: socket.socket, output: int, runner_socket: int | None, alarm: int, meter: MemoryMeter | None
) -> int:
    layers, users, fork_server = order.layers, order.identities, os.getppid()
    privileges.enter(layers.namespaces, users.runner if users is not None else None)
    process_group.enter_before_fork(layers.process_group)
    in_namespace = layers.process_group is ProcessGroup.PROCESS_NAMESPACE
    if in_namespace:
        # Without a namespace, a sudden death would orphan the runner's descendants; hanging up kills all of them
        # instead.
        syscalls.die_with_parent(fork_server, signal.SIGKILL)
    supervisor_pid = os.getpid()
    introduced, introduced_end = os.pipe()
    warden_pid = os.fork()
    if warden_pid == 0:
        try:
            # Both processes write to the judge: the supervisor's message about the warden must come first.
            os.close(introduced_end)
            if meter is not None:
                os.close(meter.descriptor)
            os.read(introduced, 1)
            os.close(introduced)
            if in_namespace:
                # A parent outside the process namespace has id 0.
                syscalls.die_with_parent(0, signal.SIGKILL)
            _watch_over(order, judge, output, runner_socket, alarm)
        except BaseException as error:  # noqa: BLE001 - reported below, and the process ends
            _tell_failure(judge, error)
        finally:
            os._exit(1)
    descriptors = [os.pidfd_open(supervisor_pid), os.pidfd_open(warden_pid)]
    messages.send(judge, messages.Created(), descriptors)
    for descriptor in (*descriptors, introduced, introduced_end):
        os.close(descriptor)
    return warden_pid


def _tell_failure(judge: socket.socket, error: BaseException) -> None:
    reason = str(error) or traceback.format_exc()
    with contextlib.suppress(OSError):
        messages.send(judge, messages.NotStarted(reason=reason[-_REPORT_BYTES:]))


def _watch_over(order: Spawn, judge: socket.socket, output: int, runner_socket: int | None, alarm: int) -> NoReturn:
    """Build the view, start the runner, then serve the judge until the judge hangs up."""
    layers, users = order.layers, order.identities
    owner = (users.runner, users.runner) if users is not None else (os.geteuid(), os.getegid())
    scratch_end = mounts.build(order.files, owner) if layers.private_view else None
    process_group.enter_before_fork(layers.process_group)
    child_events = _listen_for_children()
    report, report_end = os.pipe()
    runner_pid = os.fork()
    if runner_pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            sandbox_entry.run(order, output, runner_socket, report_end)
        finally:
            # The runner must never return into the warden's code, where descriptor numbers mean other files.
            os._exit(1)
    os.close(report_end)
    os.close(output)
    if runner_socket is not None:
        os.close(runner_socket)
    with contextlib.suppress(PermissionError):
        # A freeze must not wait for the runner's time slice. Only root may raise the priority.
        os.nice(_FIRST_IN_LINE)
    if layers.process_group is ProcessGroup.PROCESS_NAMESPACE:
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        syscalls.set_capabilities(syscalls.CAP_KILL)
    elif users is not None:
        process_group.enter_after_fork(layers.process_group, runner=users.runner, own=users.warden)
    with os.fdopen(report, "rb") as problems:
        problem = problems.read(_REPORT_BYTES).decode()
    if problem:
        raise OSError(problem)
    # In the machine's /proc, other processes cannot be found within microseconds.
    other_processes = OtherProcesses(runner_pid) if layers.private_view else None
    messages.send(judge, messages.Started(), [] if scratch_end is None else [scratch_end])
    if scratch_end is not None:
        os.close(scratch_end)
    _Watch(layers.process_group, judge, runner_pid, child_events, alarm, other_processes).serve()


def _listen_for_children() -> int:
    """Return a descriptor that becomes readable on SIGCHLD, for poll."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reader


class _Watch:
    """The warden's event loop. A freeze ends a timed call, so nothing stands between the order and its system call."""

    def __init__(
        self,
        its_cage: ProcessGroup,
        judge: socket.socket,
        runner_pid: int,
        child_events: int,
        alarm: int,
        other_processes: OtherProcesses | None,
    ) -> None:
        self._process_group = its_cage
        self._judge = judge
        self._runner_pid = runner_pid
        self._child_events = child_events
        self._alarm = alarm
        self._others = other_processes
        self._holds_too_much = False
        self._oom_kills = _oom_kills()

    def serve(self) -> NoReturn:
        poll = select.poll()
        poll.register(self._judge, select.POLLIN)
        poll.register(self._child_events, select.POLLIN)
        poll.register(self._alarm, select.POLLIN)
        try:
            while True:
                ready = {descriptor for descriptor, _ in poll.poll()}
                if self._judge.fileno() in ready:
                    self._obey(self._judge.recv(16))
                if self._alarm in ready:
                    poll.unregister(self._alarm)
                    self._holds_too_much = bool(os.read(self._alarm, 1))
                    if self._holds_too_much:
                        process_group.signal_all(self._process_group, signal.SIGKILL)
                if self._child_events in ready:
                    self._drain_child_events()
                # Reap even without an event: a settling freeze may have consumed it.
                self._reap()
        except OSError:
            # The judge hung up during a message.
            self._end()

    def _obey(self, order: bytes) -> None:
        if order == Command.FREEZE.value:
            process_group.signal_all(self._process_group, signal.SIGSTOP)
            self._judge.send(_FROZEN[self._settled()])
        elif order == Command.THAW.value:
            process_group.signal_all(self._process_group, signal.SIGCONT)
            self._judge.send(_THAWED)
        else:
            self._end()

    def _end(self) -> NoReturn:
        if self._process_group is not ProcessGroup.PROCESS_NAMESPACE:
            process_group.kill_all(self._process_group)
        # The kernel kills all processes of a namespace with its first process.
        os._exit(0)

    def _settled(self) -> bool:
        """Wait until all visible threads of all processes have stopped or exited. Return False after the time limit."""
        # List other processes while the first process is stopping, which costs no extra time. A child forked meanwhile
        # is created with the stop pending, since a signal to several processes includes new children.
        other_processes = self._others if self._others is not None and self._others.pids() else None
        deadline = time.monotonic() + _SETTLE_S
        while True:
            if not self._first_at_rest():
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return False
                messages.ready(self._child_events, left_s)
                self._drain_child_events()
            elif other_processes is None or self._all_at_rest(other_processes):
                return True
            elif time.monotonic() >= deadline:
                return False
            else:
                time.sleep(_LOOK_AGAIN_S)

    def _first_at_rest(self) -> bool:
        """Return whether all threads of the runner's first process have stopped, or the process has exited."""
        try:
            # WNOWAIT: do not consume the event, so that the next query sees the current state.
            options = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
            return os.waitid(os.P_PID, self._runner_pid, options) is not None
        except ChildProcessError:
            return True

    def _all_at_rest(self, other_processes: OtherProcesses) -> bool:
        """Return whether all other processes have stopped. The seccomp filter prevents wake-ups; this is the check."""
        # A process checked late may have woken the first process since.
        return all(map(other_processes.at_rest, other_processes.pids())) and self._first_at_rest()

    def _drain_child_events(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._child_events, 4096)

    def _reap(self) -> None:
        """Reap exited children. Report the runner's exit to the judge; orphans are reaped silently."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._runner_pid:
                    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
                    out_of_memory = killed and (self._holds_too_much or _oom_kills() > self._oom_kills)
                    messages.send(self._judge, messages.Exited(status=status, out_of_memory=out_of_memory))


def _oom_kills() -> int:
    """Return the kernel's count of OOM kills; 0 if unavailable."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
