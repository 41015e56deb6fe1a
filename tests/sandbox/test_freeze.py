"""Freezing: every process of a runner stays stopped, and a process that does not stop is reported."""

import mmap
import os
import secrets
import signal
import socket
import time

import msgspec
import pytest
from confinement import hear, make_fork_server, stop, tell

from evaluator.findings import Code
from evaluator.judge.runners import runner_client
from evaluator.judge.runners.runner_client import RunnerClient

IGNORED = int(signal.SIGURG)  # The default action of SIGURG is to ignore the signal.
ROUNDS = 60


@pytest.fixture
def counter():
    descriptor = os.memfd_create("counter")
    os.ftruncate(descriptor, 4096)
    memory = mmap.mmap(descriptor, 4096)
    with memoryview(memory).cast("Q") as view:
        yield descriptor, view
    os.close(descriptor)


@pytest.mark.parametrize("number", [signal.SIGCONT, signal.SIGCONT + (1 << 32)])
def test_no_call_sends_a_continue_signal(fork_server, ask, number):
    """The kernel truncates a signal number to an int and ignores the upper half of the register."""
    assert set(ask(fork_server, "wakers:signal_by_every_call", int(number)).values()) == {"EPERM"}


def test_every_call_sends_other_signals(fork_server, ask):
    """Control: the calls of the test above succeed with a harmless signal."""
    assert set(ask(fork_server, "wakers:signal_by_every_call", IGNORED).values()) == {"allowed"}


def held(child, counts):
    """Freeze `child` repeatedly; return the number of reported stops, and of reported stops during which it ran."""
    said = awake = 0
    for _ in range(ROUNDS):
        if child.freeze():
            said += 1
            before = counts[0]
            time.sleep(0.002)
            awake += counts[0] != before
        child.thaw()
        time.sleep(0.0005)
    return said, awake


def test_processes_do_not_wake_each_other(fork_server, spawn, counter):
    descriptor, counts = counter
    child = spawn(fork_server, "wakers:woken_again")
    socket.send_fds(child.socket, [b"x"], [descriptor])
    assert hear(child) == "counting"
    for _ in range(ROUNDS):
        stop(child)
        before = counts[0]
        time.sleep(0.002)
        assert counts[0] == before
        child.thaw()
        time.sleep(0.0005)


@pytest.fixture(scope="module")
def unfiltered():
    """Without the seccomp filter a process can be woken, and only the warden's inspection of /proc detects the wake."""
    with make_fork_server() as made:
        if not made.machine.private_view:
            pytest.skip(f"no private view here: {made.machine.refused}")
        made._machine = msgspec.structs.replace(made.machine, seccomp=False)
        yield made


def test_who_was_woken_is_not_said_to_have_stopped(unfiltered, spawn, counter):
    descriptor, counts = counter
    child = spawn(unfiltered, "wakers:woken_again")
    socket.send_fds(child.socket, [b"x"], [descriptor])
    assert hear(child) == "counting"
    said, awake = held(child, counts)
    assert awake == 0
    # The number depends on the machine: on two busy cores nearly every stop holds.
    print(f"{said} of {ROUNDS} stops held")


def test_a_second_process_that_does_not_stop_is_noticed(full, fork_server, spawn):
    child = spawn(full, "wakers:stuck_in_a_second_process")
    assert hear(child) == "stuck"
    assert not child.freeze()


def test_several_threads_of_a_second_process_stop(fork_server, spawn):
    child = spawn(fork_server, "wakers:threads_of_a_second_process")
    assert hear(child) == "there"
    for _ in range(20):
        stop(child)
        child.thaw()


def test_what_does_not_stop_is_the_runners_fault(full, fork_server, spawn, monkeypatch):
    monkeypatch.setattr(runner_client, "_STOP_S", 0.3)
    child = spawn(full, "wakers:stuck_in_a_second_process")
    assert hear(child) == "stuck"
    with RunnerClient(child, None) as stuck:
        assert stuck.stop().finding.code == Code.NOT_STOPPED.value


def test_starting_programs_is_no_fault(full, spawn, monkeypatch):
    """A process stopped inside vfork continues until its child has called execve."""
    monkeypatch.setattr(runner_client, "_STOP_S", 60.0)  # the child needs a core
    child = spawn(full, "wakers:starts_programs")
    assert hear(child) == "starting"
    with RunnerClient(child, None) as honest:
        for _ in range(8):
            time.sleep(0.015)
            assert honest.stop() is None
            honest.let_go()


@pytest.fixture(scope="module")
def without_view(fork_server):
    """The sandbox inside a container: neither namespaces nor a private view of the file system."""
    if fork_server.layers.private_view:
        pytest.skip("sockets are cut short where there is no private view")
    return fork_server


@pytest.fixture
def service(tmp_path):
    """Sockets that listen on a path and on an abstract name."""
    # An abstract name is the machine's, and other tests run beside.
    name = tmp_path / f"service-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as by_path, socket.socket(socket.AF_UNIX) as by_name:
        by_path.bind(str(name))
        name.chmod(0o777)
        by_name.bind(f"\0{name.name}")
        for each in (by_path, by_name):
            each.listen()
        yield name


def asked_for_sockets(spawn, fork_server, service, **options):
    child = spawn(fork_server, "wakers:unix_sockets_of_all_kinds", **options)
    tell(child, str(service))
    return hear(child)


def test_a_runner_with_a_gpu_has_sockets_that_reach_nobody(without_view, spawn, service):
    """CUDA creates, binds and listens on a socket at its start; without a private view, no socket may connect."""
    results = asked_for_sockets(spawn, without_view, service, devices=["/dev/null"])
    for kind, unsent in (("SOCK_STREAM", "ENOTSUP"), ("SOCK_SEQPACKET", "ENOTCONN")):
        made = results.pop(kind)
        assert [made.pop(what) for what in ("made", "made with flags", "listened")] == ["allowed"] * 3
        connected = {made.pop(what) for what in list(made) if what.startswith("connected")}
        assert connected == {"EPERM"}
        assert len(made) == 4
        assert set(made.values()) == {unsent, "EPERM"}  # The filter refuses sendto and sendmsg by themselves.
    for kind in ("SOCK_DGRAM", "SOCK_RAW"):
        assert set(results.pop(kind).values()) == {"EPERM"}
    assert results == {
        "pair of SOCK_STREAM": "allowed",
        "pair of SOCK_SEQPACKET": "EPERM",
        "pair of SOCK_DGRAM": "EPERM",
        "TCP": "EPERM",
    }


def test_a_runner_without_a_gpu_has_none(without_view, spawn, service):
    results = asked_for_sockets(spawn, without_view, service)
    kinds = [results[kind] for kind in ("SOCK_STREAM", "SOCK_SEQPACKET", "SOCK_DGRAM", "SOCK_RAW")]
    assert kinds == [{"made": "EPERM", "made with flags": "EPERM"}] * 4
    assert results["TCP"] == "EPERM"
