"""The command line without imports of PyTorch: a server imports the judge once, and forks for each command.

    python -m tests.grading.preloaded SOCKET_FD

Most of the CPU time of a small grade are the imports of the judge and of the fork server of its runners. Everything
else is as in a command of its own: arguments, environment, folder, streams, exit code, and a process that ends. The
workers of a batch fork their judges and keep their fork server likewise.
`tests/grading/test_interruption.py` and others start `cli.py` itself.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from evaluator.api import ready_client
from evaluator.grading import pipeline
from evaluator.grading.request import threads
from evaluator.judge.runners.fork_servers import fork_server_for
from evaluator.records import DeviceKind, SandboxMode
from evaluator.sandbox import ForkServer
from tests.fork_servers import ForkServerShare, shared_fork_server

_TOP = Path(__file__).parents[2]
_MAX_REQUEST_BYTES = 1 << 20
_READY = b"ready"
SHARED = (DeviceKind.CPU.value, DeviceKind.EMULATED.value)
"""Devices whose grades share a fork server, if they ask for the usual sandbox."""
_START_S = 300.0


class PreloadedCommand:
    """Client of one server, which starts at the first command and ends with this process or at `close`."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._devices: set[str] = set()

    def start(self, device: str = "") -> None:
        """Start what is not running: the server, and in it the fork server of grades on `device`."""
        if self._server is None:
            self._start_server()
        if device in SHARED and device not in self._devices:
            self._devices.add(device)
            self._socket.send(device.encode())
            assert self._socket.recv(16) == _READY

    def _start_server(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=_TOP,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._socket = ours
        ours.settimeout(_START_S)
        assert ours.recv(16) == _READY

    def run(
        self, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: bytes | None, timeout_s: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Run `warpgrade` with these arguments, and return its exit code and output."""
        self.start()
        assert self._socket is not None
        request = json.dumps([list(arguments), str(cwd), dict(env)]).encode()
        with contextlib.ExitStack() as files:
            streams: list[BinaryIO] = [files.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            streams[0].write(stdin or b"")
            streams[0].seek(0)
            socket.send_fds(self._socket, [request], [stream.fileno() for stream in streams])
            self._socket.settimeout(timeout_s)
            try:
                code = int(self._socket.recv(16))
            except (TimeoutError, ValueError):
                self.close()
                raise
            for stream in streams:
                stream.seek(0)
            return subprocess.CompletedProcess(list(arguments), code, streams[1].read(), streams[2].read())

    def close(self) -> None:
        """End the server. A command that still runs loses its parent, and ends."""
        if self._server is not None and self._socket is not None:
            self._socket.close()
            self._server.kill()
            self._server.wait()
        self._server = self._socket = None
        self._devices.clear()


def _serve(requests: socket.socket) -> list[str] | None:
    """Fork for each request. Return its arguments in the child; None in the server, when the client is gone."""
    requests.send(_READY)
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 3)
        if not request:
            return None
        if not descriptors:
            shared_fork_server(DeviceKind(request.decode()), threads()).machine  # noqa: B018 - waits until it is ready
            requests.send(_READY)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # PyTorch's threads, which wait
            child = os.fork()
        if child == 0:
            requests.close()
            return _become(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _become(request: bytes, descriptors: list[int]) -> list[str]:
    """Take the streams, the folder and the environment of the request, and return its arguments."""
    arguments, folder, environment = json.loads(request)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    return list(arguments)


def _fork_server_for(
    device: DeviceKind, gpu: str | None, sandbox: SandboxMode, its_threads: int
) -> ForkServer | ForkServerShare:
    if device.value in SHARED and sandbox is SandboxMode.FULL and its_threads == threads():
        return shared_fork_server(device, its_threads)
    return fork_server_for(device, gpu, sandbox, its_threads)


def main() -> None:
    """Serve on the socket of the argument; in a child, be the command line."""
    import evaluator.commands.main
    import evaluator.judge.verdict

    signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments = _serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is not None:
        pipeline.fork_server_for = _fork_server_for
        ready_client._GREETING_S = _START_S  # On a busy machine, a client would soon grade itself.
        sys.argv = ["warpgrade", *arguments]
        evaluator.commands.main.main()


if __name__ == "__main__":
    main()
