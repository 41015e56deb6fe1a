"""The folder of the socket: private, of any length, and without a stranger."""

import contextlib
import os
import socket
import stat

import pytest

from evaluator.api import ready_client, ready_socket
from evaluator.errors import InfraError
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind
from tests.serve.conftest import refusal

EMULATED = GradeOptions(DeviceKind.EMULATED)
_NOBODY = 65534


@contextlib.contextmanager
def listening():
    with ready_socket.locked() as folder, ready_socket.listening(folder):
        yield


def leave_a_dead_socket():
    with ready_socket.opened(create=True) as folder, socket.socket(socket.AF_UNIX) as dead:
        dead.bind(f"/proc/self/fd/{folder}/{ready_socket.SOCKET}")


def test_nobody_else_may_enter(folder):
    with listening():
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / ready_socket.SOCKET).lstat().st_mode) == 0o600


def test_without_a_server_there_is_nothing_to_say(folder):
    assert refusal(ready_client.reach, EMULATED) == ""
    leave_a_dead_socket()
    assert refusal(ready_client.reach, EMULATED) == ""


def test_a_long_path_is_no_obstacle(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("x" * 200)))
    with listening():
        assert ready_client.is_running()


def test_without_a_runtime_folder_the_socket_is_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("WARPGRADE_CACHE", str(tmp_path / "cache"))
    with listening():
        assert (tmp_path / "cache" / "ready" / ready_socket.SOCKET).is_socket()


@pytest.mark.parametrize("mode", [0o770, 0o701, 0o755])
def test_a_folder_that_others_may_enter_is_refused(folder, mode):
    folder.mkdir(parents=True)
    folder.chmod(mode)
    with pytest.raises(InfraError, match="not private") as caught, ready_socket.opened():
        pass
    assert str(folder) in caught.value.hint
    assert "not private" in refusal(ready_client.reach, EMULATED)


def test_a_link_to_a_folder_is_refused(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.parent.mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InfraError, match="cannot use the folder"), ready_socket.opened(create=True):
        pass


def test_the_socket_of_a_dead_server_is_replaced(folder):
    leave_a_dead_socket()
    assert (folder / ready_socket.SOCKET).is_socket()
    with listening():
        assert ready_client.is_running()


def test_a_server_of_another_user_is_no_server(folder, monkeypatch):
    with listening():
        assert ready_client.is_running()
        monkeypatch.setattr(ready_socket, "peer_uid", lambda _: os.geteuid() + 1)
        assert not ready_client.is_running()
        assert "another user" in refusal(ready_client.reach, EMULATED)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_is_refused_even_where_the_folder_is_open(served, folder):
    with served():
        descriptor = os.open(folder, os.O_PATH)
        folder.chmod(0o711)
        (folder / ready_socket.SOCKET).chmod(0o666)
        pid = os.fork()
        if pid == 0:
            code = 9
            try:
                os.setgroups([])
                os.setresgid(_NOBODY, _NOBODY, _NOBODY)
                with socket.socket(socket.AF_UNIX) as stranger:
                    os.fchdir(descriptor)
                    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
                    code = 3
                    stranger.settimeout(30)
                    stranger.connect(ready_socket.SOCKET)
                    code = 0 if stranger.recv(1) == b"" else 4
            except ConnectionResetError:
                code = 0
            finally:
                os._exit(code)
        os.close(descriptor)
        ended = os.waitpid(pid, 0)[1]
        folder.chmod(0o700)
        assert os.waitstatus_to_exitcode(ended) == 0
        assert ready_client.is_running()
