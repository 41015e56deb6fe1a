"""The starter: a process that has imported torch once and forks a runner from that whenever the judge asks.

It computes nothing: a child forked after a parallel torch operation hangs in its first one, because the threads are
gone and their pool does not know. It holds no secret either: all that a runner can find in the memory it inherits is
imported code.
"""

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys

from evaluator.isolation import probe, warden, wire


def main(descriptor: int) -> None:
    """Serve the judge at the other end of the socket `descriptor` until it hangs up."""
    judge = socket.socket(fileno=descriptor)
    machine = probe.examine()
    setup, _ = wire.receive(judge)
    if not isinstance(setup, wire.Setup):
        raise TypeError(f"the first message is a {type(setup).__name__}")
    sys.path.extend(setup.extra_sys_path)
    # What is imported stays: looking through it for garbage takes a tenth of a second.
    gc.disable()
    for module in setup.preload:
        importlib.import_module(module)
    # Frozen objects are not touched by collections, so their pages stay shared with the children.
    gc.freeze()
    gc.enable()
    # Supervisors are not waited for; the judge holds a descriptor of each.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    wire.send(judge, wire.Ready(machine=machine))
    with contextlib.suppress(wire.HungUp):
        while True:
            _start_runner(judge)
    os._exit(0)  # Taking all of torch apart first would take a fifth of a second.


def _start_runner(judge: socket.socket) -> None:
    order, descriptors = wire.receive(judge)
    if os.fork() == 0:
        try:
            judge.close()
            if not isinstance(order, wire.Spawn):
                raise TypeError(f"a starter does not serve a {type(order).__name__}")
            warden_end, output, *runner_socket = descriptors
            warden.supervise(
                order, socket.socket(fileno=warden_end), output, runner_socket[0] if runner_socket else None
            )
        finally:
            os._exit(1)
    for descriptor in descriptors:
        os.close(descriptor)
