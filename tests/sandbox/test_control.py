"""Freezing, killing, and the deaths of the trusted processes."""

import itertools
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest
from confinement import HERE, alive, below_the_starter, hear, make_fork_server, stop, tell

from evaluator.errors import JudgeFailed, SandboxUnavailable
from evaluator.records import SandboxMode
from evaluator.sandbox import ForkServer, Machine, fork_server_client, messages, visible_files
from evaluator.sandbox.available_layers import choose_layers
from evaluator.sandbox.confined_process import OutputDrain
from evaluator.sandbox.kernel.privileges import Namespaces
from evaluator.sandbox.scratch_folders import Scratch

CHECKOUT = HERE.parents[1]


@pytest.fixture
def counters():
    descriptor = os.memfd_create("counters")
    os.ftruncate(descriptor, 4096)
    memory = mmap.mmap(descriptor, 4096)
    with memoryview(memory).cast("Q") as view:
        yield descriptor, view
    os.close(descriptor)


def below(pid):
    return psutil.Process(pid).children(recursive=True)


def wait_for(condition, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def counts_while_frozen(server, spawn, counters):
    """Freeze a counting runner with a runaway grandchild three times: (counts at once, counts 0.1 s later) each."""
    descriptor, counts = counters
    child = spawn(server, "burdens:counting_grandchild")
    socket.send_fds(child.socket, [b"x"], [descriptor])
    assert hear(child) == "counting"
    wait_for(lambda: all(counts[:3]))
    pairs = []
    for _ in range(3):
        stop(child)
        time.sleep(0.001)
        first = list(counts[:3])
        time.sleep(0.1)
        pairs.append((first, list(counts[:3])))
        child.thaw()
        wait_for(lambda first=first: all(now > then for now, then in zip(counts[:3], first, strict=True)))
    return pairs


def test_freezing_stops_threads_and_runaway_grandchildren(fork_server, spawn, counters):
    assert all(first == later for first, later in counts_while_frozen(fork_server, spawn, counters))


def test_freezing_works_without_a_sandbox(bare, spawn, counters):
    assert all(first == later for first, later in counts_while_frozen(bare, spawn, counters))


def test_a_slow_death_does_not_wake_a_frozen_group(fork_server, spawn, counters):
    descriptor, counts = counters
    child = spawn(fork_server, "burdens:revived_by_orphanage")
    socket.send_fds(child.socket, [b"x"], [descriptor])
    assert hear(child) == "ready"
    tell(child, "exit")
    time.sleep(0.005)
    stop(child)
    frozen = counts[0]
    time.sleep(0.5)
    assert counts[0] == frozen


def test_a_frozen_runner_can_be_killed(fork_server, spawn):
    child = spawn(fork_server, "sleeper")
    hear(child)
    child.freeze()
    assert child.kill().by_judge


def survivors_of_a_kill(server, spawn):
    """Kill a runner that left three daemons behind: the daemons that still live."""
    before = set(below(server._process.pid))
    child = spawn(server, "burdens:daemon")
    assert hear(child) == "left"
    assert child.wait_exit(60).exit_code == 0
    wait_for(lambda: len(set(below(server._process.pid)) - before) == 3)
    daemons = set(below(server._process.pid)) - before
    child.kill()
    return [process for process in daemons if alive(process.pid)]


def test_killing_leaves_nobody(fork_server, spawn):
    assert survivors_of_a_kill(fork_server, spawn) == []


def test_killing_leaves_nobody_without_a_sandbox(bare, spawn):
    assert survivors_of_a_kill(bare, spawn) == []


def test_killing_again_changes_nothing(fork_server, spawn):
    child = spawn(fork_server, "sleeper")
    hear(child)
    first = child.kill()
    assert first.signal == "SIGKILL"
    assert first.by_judge
    assert child.kill() == first
    assert child.poll_exit() == first


@pytest.mark.parametrize("after_the_look_at_the_socket", [False, True])
def test_a_wait_ends_with_a_kill_by_another_thread(fork_server, spawn, monkeypatch, after_the_look_at_the_socket):
    """The kill closes the socket; the number of the socket then belongs to the next file."""
    child = spawn(fork_server, "sleeper")
    hear(child)
    later_files, real_poll = [], select.poll

    def kill():
        monkeypatch.setattr(messages.select, "poll", real_poll)
        killer = threading.Thread(target=child.kill)
        killer.start()
        killer.join()
        later_files.extend(itertools.chain(*(os.pipe() for _ in range(8))))

    class KilledMeanwhile:
        def __init__(self):
            self._poll = real_poll()
            self._waits = not child._lock._is_owned()  # The other looks are under the lock.

        def register(self, source, events):
            if self._waits and not after_the_look_at_the_socket:
                kill()
            self._poll.register(source, events)

        def poll(self, timeout_ms):
            if timeout_ms > 0 and after_the_look_at_the_socket:
                kill()
            return self._poll.poll(timeout_ms)

    monkeypatch.setattr(messages.select, "poll", KilledMeanwhile)
    assert child.wait_exit(60).by_judge
    for descriptor in later_files:
        os.close(descriptor)


def test_the_end_of_all_finishes_a_kill_that_was_interrupted(monkeypatch):
    """Ctrl-C, between the death of a runner and the removal of its folder."""

    def interrupt(_):
        raise KeyboardInterrupt

    with make_fork_server(preload=["probes"]) as fork_server:
        child = fork_server.spawn("probes:sleeper")
        with monkeypatch.context() as once:
            once.setattr(Scratch, "close", interrupt)
            with pytest.raises(KeyboardInterrupt):
                child.kill()
        assert child.private.exists()
        fork_server.end_all()
        assert not child.private.exists()
        assert child.socket.fileno() == -1


def test_the_end_of_all_may_spare_a_child(fork_server, spawn):
    spared, other = spawn(fork_server, "sleeper"), spawn(fork_server, "sleeper")
    hear(spared)
    fork_server.end_all([spared])
    assert other.poll_exit() is not None
    assert spared.poll_exit() is None


def test_of_a_dead_runner_there_are_no_members(fork_server, spawn):
    """The numbers of closed descriptors may belong to descriptors of a live runner."""
    dead, live = spawn(fork_server, "sleeper"), spawn(fork_server, "sleeper")
    hear(live)
    dead.kill()
    copies = [os.dup(live._processes[0]) for _ in range(8)]
    try:
        assert dead.members() == frozenset()
        assert len(live.members()) == 3
    finally:
        for descriptor in copies:
            os.close(descriptor)


def test_an_unread_message_with_the_output_pipe_delays_no_kill(bare, spawn, monkeypatch):
    """Without seccomp a runner may send descriptors, which stay open until the judge reads or drops the message."""
    ended = []
    finish = OutputDrain.finish

    def noted(drain, timeout_s):
        finish(drain, timeout_s)
        ended.append(not drain._thread.is_alive())

    monkeypatch.setattr(OutputDrain, "finish", noted)
    child = spawn(bare, "burdens:output_pipe_in_a_message")
    assert messages.ready(child.socket, 60)
    child.kill()
    assert ended == [True]


def test_a_lost_warden_is_no_fault_of_the_runner(full, spawn):
    before = set(below(full._process.pid))
    child = spawn(full, "sleeper")
    hear(child)
    supervisor, warden, _ = below_the_starter(full, before)
    os.kill(warden.pid, signal.SIGKILL)
    with pytest.raises(JudgeFailed, match="init process"):
        child.wait_exit(60)
    child.kill()
    assert not alive(supervisor.pid)


def test_several_runners_live_at_once(fork_server, spawn):
    children = [spawn(fork_server, "sleeper") for _ in range(4)]
    for child in children:
        hear(child)
    children[0].freeze()
    children[1].kill()
    assert [child.poll_exit() is None for child in children] == [True, False, True, True]


JUDGE = """
    import sys, time
    sys.path[:0] = [{checkout!r}, {here!r}]
    from pathlib import Path
    import confinement
    from evaluator.sandbox import visible_files
    from evaluator.records import SandboxMode
    starter = confinement.make_fork_server(mode=SandboxMode({mode!r}))
    if {landlock}:
        visible_files.unreachable_for_others = lambda: None
        confinement.without_namespaces(starter)
    for probe in ("probes:sleeper", "burdens:daemon", "burdens:endless_fork_bomb"):
        child = starter.spawn(probe, limits=confinement.SMALL)
        confinement.hear(child)
    print(starter._process.pid, flush=True)
    time.sleep(300)
"""


@pytest.mark.parametrize(("mode", "landlock"), [("full", False), ("full", True), ("none", False)])
def test_the_judges_sudden_death_leaves_nobody(mode, landlock, tmp_path):
    if mode == "none" and os.geteuid() == 0:
        pytest.skip("the number of root's processes has no limit, so the bomb would be one")
    if landlock:
        with make_fork_server(preload=[]) as fork_server:
            if fork_server.machine.landlock_abi < 6:
                pytest.skip("needs Landlock")
    source = textwrap.dedent(JUDGE).format(checkout=str(CHECKOUT), here=str(HERE), mode=mode, landlock=landlock)
    # No process is left to remove the private folders.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, env=environment) as judge:
        starter_pid = int(judge.stdout.readline())
        everyone = [starter_pid, *(process.pid for process in below(starter_pid))]
        assert len(everyone) > 8
        judge.kill()
        judge.wait()
    wait_for(lambda: not any(alive(pid) for pid in everyone))


def test_closing_the_fork_server_leaves_no_process():
    with make_fork_server(preload=["probes"]) as fork_server:
        child = fork_server.spawn("probes:sleeper")
        hear(child)
        everyone = [fork_server._process.pid, *(process.pid for process in below(fork_server._process.pid))]
    assert not any(alive(pid) for pid in everyone)
    assert not child.private.exists()


def test_a_lost_fork_server_reports_why_to_every_caller():
    with make_fork_server(preload=["no_such_module"]) as fork_server:
        for _ in range(3):
            with pytest.raises(JudgeFailed, match=r"ended before it was ready: [\s\S]*no_such_module"):
                fork_server.spawn("probes:sleeper")


@pytest.fixture
def hanging(tmp_path):
    """A fork server that is never ready."""
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(600)\n")
    with ForkServer(preload=["hangs"], extra_sys_path=[tmp_path]) as fork_server:
        yield fork_server


def test_a_fork_server_that_hangs_is_reported_by_its_first_failure(hanging, monkeypatch):
    monkeypatch.setattr(fork_server_client, "_READY_S", 0.2)
    for _ in range(2):
        with pytest.raises(JudgeFailed, match="was not ready within"):
            hanging.spawn("probes:sleeper")


def test_a_runner_collects_only_its_own_garbage(fork_server, spawn):
    assert hear(spawn(fork_server, "probes:garbage")) == [True, True]


def test_no_caller_waits_for_an_abandoned_fork_server(hanging):
    threading.Timer(0.05, hanging.give_up).start()
    with pytest.raises(JudgeFailed, match="ended before it was ready"):
        hanging.machine  # noqa: B018 - it waits


def test_a_ready_fork_server_is_not_abandoned():
    with make_fork_server(preload=["probes"]) as fork_server:
        assert fork_server.machine
        fork_server.give_up()
        assert hear(fork_server.spawn("probes:sleeper"))


def test_a_killed_fork_server_is_an_infrastructure_failure():
    with make_fork_server(preload=["probes"]) as fork_server:
        assert fork_server.machine
        fork_server._process.kill()
        fork_server._process.wait()
        with pytest.raises(JudgeFailed, match="starter"):
            fork_server.spawn("probes:sleeper")


def test_an_entry_that_does_not_exist_is_the_judges_failure(fork_server):
    with pytest.raises(JudgeFailed, match="no_such_entry"):
        fork_server.spawn("probes:no_such_entry")


def test_mode_none_has_no_layers_and_is_recorded(bare, spawn):
    assert bare.facts.mode == "none"
    assert bare.facts.layers == []
    child = spawn(bare, "read_files")
    tell(child, [str(CHECKOUT / "pyproject.toml")])
    assert hear(child) == {str(CHECKOUT / "pyproject.toml"): "allowed"}


def test_a_starter_whose_judge_is_gone_does_not_finish_its_imports(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\npathlib.Path(__file__).with_suffix('.begun').touch()\ntime.sleep(600)"
    )
    starter = make_fork_server(preload=("slow",), extra_sys_path=[tmp_path])
    try:
        until = time.monotonic() + 120
        while not (tmp_path / "slow.begun").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        starter._socket.close()
        assert starter._process.wait(timeout=120) == 0
    finally:
        starter.close()


def _machine(**what):
    nothing = {
        "namespaces": Namespaces.NONE,
        "private_view": False,
        "own_user": False,
        "landlock_abi": 0,
        "seccomp": True,
        "refused": {"landlock": "not there"},
    }
    return Machine(**{**nothing, **what})


def test_a_machine_without_file_isolation_is_refused():
    with pytest.raises(SandboxUnavailable, match="landlock: not there"):
        choose_layers(SandboxMode.FULL, _machine())
    assert choose_layers(SandboxMode.FULL, _machine(landlock_abi=1)).landlock


@pytest.mark.parametrize(
    ("what", "process_group"),
    [
        ({"namespaces": Namespaces.USER, "private_view": True}, "process namespace"),
        ({"own_user": True, "landlock_abi": 3}, "own user"),
        ({"landlock_abi": 6}, "landlock domain"),
        ({"landlock_abi": 5}, "descendants"),
    ],
)
def test_processes_are_kept_together_by_the_best_there_is(what, process_group, monkeypatch):
    monkeypatch.setattr(visible_files, "unreachable_for_others", lambda: None)
    assert choose_layers(SandboxMode.FULL, _machine(**what)).process_group == process_group


def test_a_python_that_only_root_reaches_needs_a_view_or_roots_own_user(monkeypatch):
    """A runner of another user could not read it; the doctor asks the same function as a grade."""
    monkeypatch.setattr(visible_files, "unreachable_for_others", lambda: "/root/python")
    with pytest.raises(SandboxUnavailable, match="/root/python"):
        choose_layers(SandboxMode.FULL, _machine(own_user=True, landlock_abi=6))
    assert choose_layers(SandboxMode.FULL, _machine(landlock_abi=6)).landlock
    assert choose_layers(SandboxMode.FULL, _machine(own_user=True, private_view=True)).own_user


def test_what_is_hidden_is_taken_out_of_what_is_granted(tmp_path):
    for name in ("packages/torch", "packages/evaluator", "packages/warpgrade", "packages/venv/lib"):
        (tmp_path / name).mkdir(parents=True)
    packages = tmp_path / "packages"
    readable = [str(packages), str(packages / "evaluator/deeper")]
    hidden = [str(packages / "evaluator"), str(packages / "warpgrade")]
    assert sorted(visible_files.granted(readable, hidden)) == [
        packages / "evaluator/deeper",
        packages / "torch",
        packages / "venv",
    ]
    assert list(visible_files.granted([str(packages / "torch")], [str(packages)])) == [packages / "torch"]


def test_a_checkout_is_hidden_as_a_whole():
    assert visible_files.hidden_paths() == (str(CHECKOUT),)


def test_of_an_installation_the_packages_of_warpgrade_are_hidden(tmp_path, monkeypatch):
    for name in ("evaluator", "warpgrade", "torch"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(visible_files, "source_root", lambda: tmp_path)
    assert visible_files.hidden_paths() == (str(tmp_path / "evaluator"), str(tmp_path / "warpgrade"))


def imported(fork_server, *names):
    """Return which of the modules a new runner finds imported."""
    child = fork_server.spawn("probes:imported")
    try:
        tell(child, names)
        return hear(child)
    finally:
        child.kill()


def test_a_module_can_be_imported_before_the_next_runner(tmp_path):
    (tmp_path / "leaver.py").write_text("raise SystemExit(3)\n")
    with make_fork_server(mode=SandboxMode.NONE, extra_sys_path=[HERE, tmp_path]) as own:
        assert imported(own, "colorsys", "this_module_does_not_exist") == []
        own.preload("colorsys")
        own.preload("this_module_does_not_exist")  # The fork server stays alive.
        own.preload("leaver")
        assert imported(own, "colorsys", "this_module_does_not_exist") == ["colorsys"]
    own.preload("wave")  # A fork server that has ended: no error before a runner is requested.


def test_a_module_may_be_named_before_the_fork_server_is_ready():
    with make_fork_server(mode=SandboxMode.NONE) as own:
        own.preload("colorsys")
        assert imported(own, "colorsys") == ["colorsys"]
