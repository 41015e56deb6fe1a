"""A worker of a batch: a process with the arguments `REPLIES_FD [CORES]`. Orders come in on stdin.

It imports PyTorch and the judge once and computes nothing with them; each grade is made in a process forked from it,
which ends with that grade. So one submission's crash, leak or global setting costs only itself, and the second grade
does not wait for an import. Whatever happens, nobody is left behind: the worker sees its batch go (the orders' pipe
hangs up) and kills the grade; the kernel kills the grade where the worker dies; and the grade's own processes end with
it, as they do in a single one.
"""

import os
import select
import signal
import traceback
from typing import NoReturn

from evaluator import pipeline
from evaluator.batch.protocol import Graded, NotGraded, Order, Stage, receive_order, send
from evaluator.errors import InfraError, WarpgradeError
from evaluator.isolation.syscalls import die_with_parent

_ORDERS = 0
_GRACE_S = 5.0


class _Teller:
    """Passes a grade's progress on to the batch."""

    def __init__(self, replies: int) -> None:
        self._replies = replies

    def stage(self, name: str, detail: str = "") -> None:
        send(self._replies, Stage(name=name, detail=detail))


def serve(replies: int) -> int:
    """Make grades until there are no more orders, or until one of them dies: then a fresh worker is called for."""
    _import_early()
    # Only from here on: an import of PyTorch may swallow what a handler raises, and until now there is nothing to end.
    signal.signal(signal.SIGTERM, _ask)
    worker = os.getpid()
    while (order := receive_order(_ORDERS)) is not None:
        grade = os.fork()
        if grade == 0:
            _grade(order, replies, worker)
        if not _ended_well(grade):
            return 1
    return 0


def _import_early() -> None:
    # As the pipeline would set it, and before PyTorch reads it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import evaluator.judge.verdict
    import evaluator.judge.workshop  # noqa: F401


class _Asked(BaseException):
    """The batch asked for the end."""


def _ask(_number: int, _frame: object) -> NoReturn:
    raise _Asked


def _ended_well(grade: int) -> bool:
    """Wait for a grade. Ends it where the batch asks for it, or goes away first."""
    ended = os.pidfd_open(grade)
    try:
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.register(_ORDERS, 0)  # nothing but its end is of interest
        try:
            by_itself = any(descriptor == ended for descriptor, _ in poll.poll())
        except _Asked:
            by_itself = False
        if not by_itself:
            _end(grade, ended)
        return os.waitpid(grade, 0)[1] == 0 and by_itself
    finally:
        os.close(ended)


def _end(grade: int, ended: int) -> None:
    """Interrupt a grade, so that it can remove its folders; kill it if it does not end."""
    os.kill(grade, signal.SIGINT)
    if not select.select([ended], [], [], _GRACE_S)[0]:
        os.kill(grade, signal.SIGKILL)


def _grade(order: Order, replies: int, worker: int) -> NoReturn:
    """Make one grade and end the process. A code other than 0 says that the reply may not be whole."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # it may have been ignored since the shell
        die_with_parent(worker, signal.SIGKILL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, _ORDERS)
        reply: Graded | NotGraded
        try:
            reply = Graded(card=pipeline.grade(order.request(), _Teller(replies)))
        except WarpgradeError as error:
            reply = NotGraded(reason=error.message, again=isinstance(error, InfraError))
        send(replies, reply)
        code = 0
    except KeyboardInterrupt:
        pass
    except BaseException:  # noqa: BLE001 - this is the end of the process; the batch learns it from the exit
        traceback.print_exc()
    finally:
        os._exit(code)


def main(arguments: list[str]) -> int:
    """Run as a process of its own; give its exit code."""
    if len(arguments) > 1:
        os.sched_setaffinity(0, {int(core) for core in arguments[1].split(",")})
    try:
        return serve(int(arguments[0]))
    except _Asked:
        return 1
