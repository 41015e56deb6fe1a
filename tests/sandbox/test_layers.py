"""What a runner cannot reach."""

import os
import secrets
import socket
import sys
import tempfile
from pathlib import Path

import pytest
from confinement import hear, stop, tell

from evaluator.sandbox.kernel import privileges

CHECKOUT = Path(__file__).resolve().parents[2]
REFUSED = {"EPERM", "EACCES", "ENOENT", "EROFS", "ENETUNREACH", "ENOSYS"}


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text("the seeds")
    path.chmod(0o644)
    return path


def test_secrets_and_own_sources_cannot_be_read(fork_server, ask, secret):
    paths = [
        secret,
        secret.parent,
        CHECKOUT / "pyproject.toml",
        CHECKOUT / "evaluator",
        CHECKOUT,
        Path.home(),
        "/etc/shadow",
    ]
    if fork_server.layers.private_view:
        # The way to this Python may lead through a home, or through the checkout (.venv in it); then these are empty
        # stretches of road.
        paths.remove(Path.home())
        if Path(sys.prefix).is_relative_to(CHECKOUT):
            paths.remove(CHECKOUT)
    results = ask(fork_server, "read_files", list(map(str, paths)))
    assert results.keys() == set(map(str, paths))
    for path, result in results.items():
        assert result in REFUSED, path


def test_what_torch_needs_can_be_read(fork_server, ask):
    paths = ["/usr/lib", "/proc/cpuinfo", "/dev/urandom", "/sys/devices/system/cpu/possible"]
    assert set(ask(fork_server, "read_files", paths).values()) == {"allowed"}


def test_extra_paths_can_be_read(fork_server, ask, spawn, secret):
    child = spawn(fork_server, "read_files", readable=[secret])
    tell(child, [str(secret), str(secret.parent / "other")])
    assert hear(child) == {str(secret): "allowed", str(secret.parent / "other"): "ENOENT"}


def test_nothing_is_written_outside_of_the_private_folder(fork_server, ask, tmp_path):
    tmp_path.chmod(0o777)
    places = ["/", "/usr", "/etc", "/dev", "/proc", "/var/tmp", str(Path.home()), str(tmp_path), str(CHECKOUT)]
    for place, result in ask(fork_server, "write_files", places).items():
        assert result in REFUSED, place
    assert not list(tmp_path.iterdir())


def test_the_private_folder_is_writable_and_gone_afterwards(fork_server, spawn):
    child = spawn(fork_server, "write_files")
    tell(child, [str(child.private)])
    assert hear(child) == {str(child.private): "allowed"}
    child.kill()
    assert not child.private.exists()


def test_what_is_left_in_tmp_is_gone_for_the_next_runner(full, ask):
    for folder in ("/tmp", "/dev/shm"):
        assert ask(full, "write_files", [folder]) == {folder: "allowed"}
        assert ask(full, "read_files", [f"{folder}/planted"]) == {f"{folder}/planted": "ENOENT"}
        assert not Path(folder, "planted").exists()


def test_private_folders_of_others_are_invisible(fork_server, ask, spawn):
    other = spawn(fork_server, "sleeper")
    assert ask(fork_server, "read_files", [str(other.private)])[str(other.private)] in REFUSED


def test_own_modules_cannot_be_imported_anew(fork_server, ask):
    assert "imported" not in ask(fork_server, "own_sources").values()


def test_no_sockets_but_unix_ones(fork_server, ask):
    with socket.create_server(("127.0.0.1", 0)) as server:
        results = ask(fork_server, "network", server.getsockname()[1])
    assert set(results.values()) == {"EPERM"}


def test_services_of_the_host_cannot_be_called(fork_server, ask, tmp_path):
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX) as server,
        socket.socket(socket.AF_UNIX) as hidden,
    ):
        Path(folder).chmod(0o755)
        # An abstract name is the machine's, and other tests run beside.
        path = Path(folder, f"service-{secrets.token_hex(8)}")
        server.bind(str(path))
        path.chmod(0o777)
        hidden.bind(f"\0{path.name}")
        server.listen()
        hidden.listen()
        results = ask(fork_server, "unix_sockets", str(path))
    assert results["path"] in REFUSED
    assert results["abstract"] in {*REFUSED, "ECONNREFUSED"}


def test_no_other_process_can_be_signalled(fork_server, ask):
    pids = [os.getpid(), fork_server._process.pid, os.getppid()]
    results = ask(fork_server, "signal_processes", pids)
    assert results.keys() == set(map(str, pids))
    for pid, result in results.items():
        assert result in {"EPERM", "ESRCH"}, pid


def test_killing_everything_leaves_judge_fork_server_and_warden(fork_server, spawn):
    child = spawn(fork_server, "kill_everything")
    by_all, by_parent = hear(child)
    assert by_all in {"allowed", "ESRCH", "EPERM"}
    # A process namespace's first process ignores what its own children send.
    assert by_parent == "EPERM" or fork_server.layers.private_view
    assert child.poll_exit() is None
    stop(child)
    assert fork_server._process.poll() is None


def test_no_other_process_is_seen(fork_server, full, ask):
    seen = ask(full, "processes")
    assert sorted(seen["pids"]) == sorted({"1", str(seen["pid"])})


def test_other_processes_tell_nothing(fork_server, ask):
    seen = ask(fork_server, "processes")
    if fork_server.layers.private_view:
        assert seen["environ"]
    assert set(seen["environ"].values()) <= {"EACCES", "EPERM", "ENOENT", "ESRCH"}
    assert set(seen["mem"].values()) <= {"EACCES", "EPERM", "ENOENT", "ESRCH"}


def test_memory_of_others_is_out_of_reach(fork_server, ask):
    pid = 1 if fork_server.layers.private_view else os.getpid()
    assert set(ask(fork_server, "other_memory", pid).values()) == {"EPERM"}


def test_nobody_else_is_slowed_down(fork_server, ask):
    def place_in_line():
        return os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)

    before = place_in_line()
    results = ask(fork_server, "scheduling_of_others", os.getpid())
    # A runner is told that its wishes for cores and precedence were met, and they were not: see test_cores.
    assert results.pop("prlimit") in {"EPERM", "ESRCH"}
    assert set(results.values()) == {"allowed"}, results
    assert place_in_line() == before


def test_own_sources_are_hidden_inside_of_what_is_readable(fork_server, spawn, tmp_path):
    child = spawn(fork_server, "read_files", readable=[CHECKOUT.parent])
    paths = [str(CHECKOUT / "pyproject.toml"), str(CHECKOUT / "evaluator")]
    tell(child, [str(CHECKOUT.parent), *paths])
    results = hear(child)
    if fork_server.layers.private_view:
        # Landlock grants what lies in it, not the folder itself.
        assert results[str(CHECKOUT.parent)] == "allowed"
    assert {results[path] for path in paths} <= REFUSED


def test_no_namespace_no_mount_no_kernel_door(fork_server, ask):
    results = ask(fork_server, "namespaces")
    assert results.pop("clone3") == results.pop("open_tree_attr") == "ENOSYS"
    assert set(results.values()) == {"EPERM"}, results


def test_nobody_is_asked_to_wake_a_frozen_runner(fork_server, ask):
    results = ask(fork_server, "wake_ups")
    assert results == {
        "timer_create": "EPERM",
        "F_SETSIG": "EPERM",
        "PR_SET_PDEATHSIG": "EPERM",
        "other PR_SET_PDEATHSIG": "allowed",
        "group moved": False,
    }


def test_the_runner_is_nobody(fork_server, ask):
    me = ask(fork_server, "identity")
    status = me["status"]
    assert {status[name].strip("0") for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {""}
    if fork_server.layers.namespaces != "none" or os.geteuid() == 0:
        assert status["CapBnd"].strip("0") == ""
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    if os.geteuid() == 0:
        assert me["groups"] == []
        assert len(set(me["uid"] + me["gid"])) == 1
        assert me["uid"][0] > 1000
    assert me["core"] == [0, 0]


def test_two_runners_have_two_users(fork_server, ask):
    if not fork_server.layers.own_user:
        pytest.skip("runners share the judge's user here")
    assert ask(fork_server, "identity")["uid"] != ask(fork_server, "identity")["uid"]


def test_environment_and_descriptors_are_clean(fork_server, ask):
    me = ask(fork_server, "identity")
    assert set(me["environ"]) == {"PATH", "HOME", "TMPDIR", "LANG", "OMP_NUM_THREADS"}
    assert me["environ"]["HOME"] == me["environ"]["TMPDIR"] == me["private"] == me["cwd"]
    names = {entry.split("=")[0] for entry in me["initial_environ"].rstrip("\0").split("\0")}
    assert names <= {"PATH", "HOME", "TMPDIR", "LANG", "OMP_NUM_THREADS"}
    # 0-2 and the socket; the last is listdir's own.
    assert me["descriptors"] == ["0", "1", "2", "3", "4"]
    assert str(CHECKOUT) not in me["path"]
    assert "" not in me["path"]


def test_no_frame_of_the_judge_is_on_the_stack(fork_server, ask):
    assert not any("supervision" in name or "judge" in name for name in ask(fork_server, "stack_frames"))


def test_torch_computes_with_two_threads(fork_server, ask):
    fork_server.preload("torch")
    assert ask(fork_server, "torch_works") == [2_000_000.0, 512.0**3, 2]


def test_programs_can_be_started(full, ask):
    assert ask(full, "child_program") == [0, "42\n", ""]


def test_facts_name_what_stands_and_what_does_not(fork_server):
    facts = fork_server.facts
    assert facts.mode == "full"
    assert not set(facts.layers) & set(facts.missing)
    assert ("private-file-view" in facts.layers) == fork_server.layers.private_view
    assert {"seccomp", "atomic-freeze"} <= set(facts.layers)
    assert ("landlock-files" in facts.layers) == (fork_server.machine.landlock_abi > 0)
    if not fork_server.layers.private_view:
        assert {"private-file-view", "folder-quota", "process-namespace"} <= set(facts.missing)


def test_no_two_live_runners_have_the_same_user(monkeypatch):
    """In a container with few users, two of thousands of draws are equal, and a kill would end both runners."""
    draws = iter([5, 5, 6, 5])
    monkeypatch.setattr(privileges, "_mapped_below", lambda _: 65_536)
    monkeypatch.setattr(privileges.secrets, "randbelow", lambda _: next(draws))
    first, reserved = privileges.reserve_identities()
    with reserved:
        second, beside = privileges.reserve_identities()
        beside.close()
    again, later = privileges.reserve_identities()
    later.close()
    assert second.runner == first.runner + 1
    assert again == first


def test_the_user_of_a_dead_runner_is_free_again(full, fork_server, spawn):
    if not full.layers.own_user:
        pytest.skip("needs users of the runners' own")
    child = spawn(fork_server, "identity")
    user = hear(child)["uid"][0]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as taken:
        with pytest.raises(OSError, match="in use"):
            taken.bind(f"\0warpgrade-user-{user}")
        child.kill()
        taken.bind(f"\0warpgrade-user-{user}")
