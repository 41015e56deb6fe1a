"""The fork server: a process that has imported torch once and forks a runner on each request of the judge.

The fork server computes nothing with torch. After a parallel torch operation, a forked child would hang in its first
parallel operation: the threads are gone, but the thread pool still expects them. The process holds no secrets either:
the memory inherited by a runner contains only imported code.
"""

import contextlib
import functools
import gc
import importlib
import os
import signal
import socket
import sys

from evaluator.interrupts import on_hang_up
from evaluator.sandbox import available_layers, messages
from evaluator.sandbox.init import pid1


def main(descriptor: int) -> None:
    """Serve the judge at the other end of the socket `descriptor` until the judge hangs up."""
    judge = socket.socket(fileno=descriptor)
    machine = available_layers.examine()
    setup, _ = messages.receive(judge)
    if not isinstance(setup, messages.Setup):
        raise TypeError(f"the first message is a {type(setup).__name__}")
    sys.path.extend(setup.extra_sys_path)
    # Imported modules are never freed; garbage collection during the imports would take a tenth of a second.
    gc.disable()
    with on_hang_up(descriptor, functools.partial(os._exit, 0)):
        for module in setup.preload:
            importlib.import_module(module)
    # Collections do not touch frozen objects, so their pages stay shared with the children.
    gc.freeze()
    gc.enable()
    # Supervisors need no wait: the judge holds a pidfd of each.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    messages.send(judge, messages.Ready(machine=machine))
    with contextlib.suppress(messages.HungUp):
        while True:
            _serve_one(judge)
    os._exit(0)  # An orderly shutdown of torch would take a fifth of a second.


def _serve_one(judge: socket.socket) -> None:
    order, descriptors = messages.receive(judge)
    if isinstance(order, messages.Preload):
        with contextlib.suppress(BaseException):  # A runner that imports the module reports the reason.
            importlib.import_module(order.module)
        gc.freeze()
    else:
        _start_runner(judge, order, descriptors)


def _start_runner(judge: socket.socket, order: messages.AnyMessage, descriptors: list[int]) -> None:
    if os.fork() == 0:
        try:
            judge.close()
            if not isinstance(order, messages.Spawn):
                raise TypeError(f"a starter does not serve a {type(order).__name__}")
            warden_end, output, *runner_socket = descriptors
            pid1.supervise(order, socket.socket(fileno=warden_end), output, runner_socket[0] if runner_socket else None)
        finally:
            os._exit(1)
    for descriptor in descriptors:
        os.close(descriptor)
