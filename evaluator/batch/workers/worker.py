"""Worker process of a batch, with the arguments `REPLIES_FD [CORES]`. Orders come in on stdin.

The worker imports PyTorch and the judge once, and computes nothing with either. Grades run in a judge process forked
from the worker, which ends at the next change of problem. Submissions of one problem share a judge
(`judge/context/context_pool.py`). Code, memory and settings of a problem end with the judge, and no grade waits for an
import. The fork server belongs to the worker, and also imports PyTorch only once.

No process outlives the batch. If the orders' pipe hangs up, the worker ends the judge. The kernel kills the judge if
the worker dies, and runners end with the judge, as in a single grade.
"""

import contextlib
import functools
import os
import select
import signal
import traceback
import warnings
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from evaluator.batch.workers.messages import Built, Graded, NotGraded, Order, Part, Result, Stage, receive_order, send
from evaluator.errors import InfraError, WarpgradeError
from evaluator.grading import pipeline
from evaluator.grading.request import Begun
from evaluator.records import DeviceKind, Scorecard
from evaluator.sandbox.kernel.syscalls import die_with_parent

if TYPE_CHECKING:
    from evaluator.judge.context.context_pool import ContextPool
    from evaluator.sandbox import ForkServer

_ORDERS = 0
_GRACE_S = 5.0
_IN_ORDER_S = 180.0
"""Time limit for background work for later grades, as at the end of a single grade."""
_LONGEST_STREAK = 500
"""Number of grades after which a new judge is forked, in case of leaks."""


class _Teller:
    """Forwards the progress of a grade to the batch."""

    def __init__(self, replies: int) -> None:
        self._replies = replies

    def stage(self, name: str, detail: str = "") -> None:
        send(self._replies, Stage(name=name, detail=detail))


class _Judge(NamedTuple):
    """Judge process: reads orders, and writes one byte to `done` after each grade."""

    streak: str
    pid: int
    ended: int
    orders: int
    done: int


def serve(replies: int) -> int:
    """Grade until the orders end (exit code 0) or a judge dies (exit code 1; the batch starts a new worker)."""
    order = receive_order(_ORDERS)
    if order is None:
        return 0
    with contextlib.closing(_start_fork_server(order)) as fork_server:
        # The handler must not raise during the import of PyTorch, which may swallow the exception.
        signal.signal(signal.SIGTERM, functools.partial(_leave_at_once, fork_server))
        _import_early(order)
        fork_server.machine  # noqa: B018 - it is ready once, and is asked before the first fork
        signal.signal(signal.SIGTERM, _terminate)
        judge: _Judge | None = None
        made = 0
        try:
            while order is not None:
                if judge is None or judge.streak != order.streak or made % _LONGEST_STREAK == 0:
                    if judge is not None:
                        _dismiss(judge, wait_s=_IN_ORDER_S)
                    judge = _fork(order.streak, replies, fork_server)
                if not _made(order, judge):
                    return 1
                made += 1
                order = receive_order(_ORDERS)
        finally:
            if judge is not None:
                _dismiss(judge, wait_s=0.0)
    return 0


def _start_fork_server(order: Order) -> "ForkServer":
    from evaluator.judge.runners.fork_servers import fork_server_for

    threads = len(os.sched_getaffinity(0))
    gpu = order.options.gpu if order.facts is None else order.facts.uuid
    return fork_server_for(order.options.device, gpu, order.options.sandbox_mode, threads)


def _import_early(order: Order) -> None:
    # Same setting as in the pipeline, made before PyTorch reads the variable.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import evaluator.judge.verdict  # noqa: F401

    if order.options.device is DeviceKind.CUDA and order.part is not Part.BEGIN:
        # The meta device, on which a reference's traffic is counted, imports the compiler: seconds of each problem's
        # first grade, with the GPU held. Forked judges could not use CUDA after a call of CUDA in this process.
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        import torch._dynamo  # noqa: F401

        del os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"]


def _leave_at_once(fork_server: "ForkServer", _number: int, _frame: object) -> NoReturn:
    fork_server.close()
    os._exit(1)


class _Terminated(BaseException):
    """Raised by SIGTERM: the batch ends the worker."""


def _terminate(_number: int, _frame: object) -> NoReturn:
    raise _Terminated


def _fork(streak: str, replies: int, fork_server: "ForkServer") -> _Judge:
    its_orders, orders = os.pipe()
    done, its_done = os.pipe()
    worker = os.getpid()
    with warnings.catch_warnings():
        # The only other thread just reads the fork server's output.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.close(orders)
        os.close(done)
        _judge(its_orders, its_done, replies, worker, fork_server)
    os.close(its_orders)
    os.close(its_done)
    return _Judge(streak, pid, os.pidfd_open(pid), orders, done)


def _made(order: Order, judge: _Judge) -> bool:
    """Send an order to the judge and wait. Return false if the judge died or the batch is gone."""
    poll = select.poll()
    poll.register(judge.done, select.POLLIN)
    poll.register(_ORDERS, 0)  # only the hang-up matters
    try:
        send(judge.orders, order)
    except OSError:
        return False
    return dict(poll.poll()).get(judge.done, 0) & select.POLLIN != 0 and os.read(judge.done, 1) != b""


def _dismiss(judge: _Judge, *, wait_s: float) -> None:
    """End a judge, idle, grading or dead. An idle judge ends by itself within `wait_s`.

    An interrupted judge gets a grace period to remove temporary files.
    """
    os.close(judge.orders)
    try:
        if not _ends(judge, wait_s):
            signal.pidfd_send_signal(judge.ended, signal.SIGINT)
            if not _ends(judge, _GRACE_S):
                signal.pidfd_send_signal(judge.ended, signal.SIGKILL)
    finally:
        os.waitpid(judge.pid, 0)
        os.close(judge.done)
        os.close(judge.ended)


def _ends(judge: _Judge, within_s: float) -> bool:
    return bool(select.select([judge.ended], [], [], within_s)[0])


def _judge(orders: int, done: int, replies: int, worker: int, fork_server: "ForkServer") -> NoReturn:
    """Grade until the orders end, then exit the process."""
    from evaluator.judge.context.context_pool import ContextPool

    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the shell may have ignored SIGINT
        die_with_parent(worker, signal.SIGKILL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, _ORDERS)
        with ContextPool(fork_server, lasting=True) as context_pool:
            while (order := receive_order(orders)) is not None:
                send(replies, _result(order, context_pool, _Teller(replies), replies))
                os.write(done, b".")
        code = 0
    except KeyboardInterrupt:
        pass
    except BaseException:  # noqa: BLE001 - this is the end of the process; the batch learns it from the exit
        traceback.print_exc()
    finally:
        os._exit(code)


def _result(order: Order, context_pool: "ContextPool", teller: _Teller, replies: int) -> Result:
    def stuck(card: Scorecard) -> NoReturn:
        send(replies, Graded(card=card))
        os._exit(1)

    try:
        request = order.request()
        if order.part is not Part.BEGIN:
            return Graded(card=pipeline.grade(request, teller, context_pool, order.begun, stuck))
        begun = pipeline.begin(request, teller, context_pool, stuck)
        return Built(begun=begun) if isinstance(begun, Begun) else Graded(card=begun)
    except WarpgradeError as error:
        return NotGraded(reason=error.message, again=isinstance(error, InfraError))


def main(arguments: list[str]) -> int:
    """Run the worker process and return its exit code."""
    if len(arguments) > 1:
        os.sched_setaffinity(0, {int(core) for core in arguments[1].split(",")})
    try:
        return serve(int(arguments[0]))
    except _Terminated:
        return 1
