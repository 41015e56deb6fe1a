"""Fork servers of runners that the tests of one process share.

A fork server imports PyTorch, which takes half of the CPU time of a small grade. As in a worker of a batch, the server
holds nothing of a grade, and all processes of a grade end with the grade's context.
"""

import atexit
import functools
import os

from evaluator.judge.runners.fork_servers import fork_server_for
from evaluator.records import DeviceKind, SandboxMode
from evaluator.sandbox import ForkServer


class ForkServerShare:
    """A fork server as one grade sees it: the end of a grade leaves the processes of other grades alive."""

    def __init__(self, fork_server: ForkServer) -> None:
        self._fork_server = fork_server
        self._started = []

    def __getattr__(self, name):
        return getattr(self._fork_server, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end_all()

    def spawn(self, *arguments, **options):
        self._started.append(self._fork_server.spawn(*arguments, **options))
        return self._started[-1]

    def execute(self, *arguments, **options):
        self._started.append(self._fork_server.execute(*arguments, **options))
        return self._started[-1]

    def condemn_all(self) -> None:
        for process in self._started:
            process.condemn()

    def end_all(self, but=()) -> None:
        ended = [process for process in self._started if process not in but]
        self._started = list(but)
        self._fork_server.end_all([process for process in self._fork_server._alive if process not in ended])


def shared_fork_server(device: DeviceKind, threads: int) -> ForkServerShare:
    """Return a share of this process's fork server for a device without a GPU; the server ends with the process."""
    return ForkServerShare(_fork_server(device, threads))


@functools.cache
def _fork_server(device: DeviceKind, threads: int) -> ForkServer:
    fork_server, owner = fork_server_for(device, None, SandboxMode.FULL, threads), os.getpid()
    atexit.register(lambda: fork_server.close() if os.getpid() == owner else None)  # not by forked processes
    return fork_server
