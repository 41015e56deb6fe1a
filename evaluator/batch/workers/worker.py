"""Worker process of a batch or of the ready judge, with the arguments `REPLIES_FD [CORES]`. Orders come in on stdin.

The worker imports PyTorch and the judge once, and computes nothing with either. Grades run in a judge process forked
from the worker, and no grade waits for an import. Submissions of one problem share a judge
(`judge/context/context_pool.py`). Without a GPU, the judge ends at the next change of problem: code, memory and
settings of a problem end with the judge. On a GPU, loading PyTorch's kernels anew would take seconds: the judge ends
only if a problem has changed PyTorch, or came as a text. The fork server belongs to the worker, and also imports
PyTorch only once.

No process outlives the batch. If the orders' pipe hangs up, the worker ends the judge. The kernel kills the judge if
the worker dies, and runners end with the judge, as in a single grade.
"""

import contextlib
import functools
import io
import os
import select
import signal
import time
import traceback
import warnings
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from evaluator.batch.workers.messages import (
    Built,
    GradeFinished,
    GradePart,
    NotGraded,
    Prepared,
    PrepareWorker,
    Request,
    Result,
    StageEntered,
    WorkerOrder,
    receive_request,
    send,
)
from evaluator.compile.build_memory import share_machine
from evaluator.errors import InfraError, WarpgradeError
from evaluator.grading import pipeline
from evaluator.grading.request import Begun
from evaluator.interrupts import blocked, has_hung_up, held_back, on_hang_up
from evaluator.records import DeviceKind, Scorecard
from evaluator.sandbox.kernel.syscalls import die_with_parent

if TYPE_CHECKING:
    from evaluator.judge.context.context_pool import ContextPool
    from evaluator.sandbox import ForkServer

_ORDERS = 0
_GRACE_S = 5.0
_ORPHAN_GRACE_S = 0.5
"""Time limit for a judge whose batch was killed: a second batch may have begun. It removes abandoned folders."""
_IN_ORDER_S = 180.0
"""Time limit for background work for later grades, as at the end of a single grade."""
_LONGEST_STREAK = 500
"""Number of grades after which a new judge is forked, in case of leaks."""
_IDLE_S = 0.02
"""Time without an order after which a judge is idle. In a batch, the next order comes sooner."""
_FAIR_S = 60.0
"""Time after which a judge that is never idle gives way to a waiting grade. A new setup takes seconds."""
_LOOK_ROUND_S = 0.5
"""Period at which an idle judge with a GPU looks whether another grade waits for the GPU."""


class _StageSender:
    """Forwards the progress of a grade to the batch."""

    def __init__(self, replies: int) -> None:
        self._replies = replies

    def stage(self, name: str, detail: str = "") -> None:
        with contextlib.suppress(BrokenPipeError):  # The batch is gone: the worker ends the judge.
            send(self._replies, StageEntered(name=name, detail=detail))


class _OrderOutcome(Enum):
    """Outcome of an order: the judge made the grade, had left the GPU to another grade, or died."""

    MADE = b"."
    GAVE_WAY = b"-"
    DIED = b""


class _Judge(NamedTuple):
    """Judge process: reads orders, and writes one byte of `_OrderOutcome` to `ends` after each grade."""

    streak: str
    pid: int
    pidfd: int
    orders: io.FileIO
    ends: int


def serve(replies: int) -> int:
    """Grade until the orders end (exit code 0) or a judge dies (exit code 1; the batch starts a new worker)."""
    request = receive_request(_ORDERS)
    if request is None:
        return 0
    with contextlib.closing(_start_fork_server(request)) as fork_server:
        # The handler must not raise during the import of PyTorch, which may swallow the exception.
        signal.signal(signal.SIGTERM, functools.partial(_leave_at_once, fork_server))
        with on_hang_up(_ORDERS, functools.partial(signal.raise_signal, signal.SIGTERM)):
            _import_early(request)
            fork_server.machine  # noqa: B018 - it is ready once, and is asked before the first fork
        signal.signal(signal.SIGTERM, _terminate)
        return _serve_all(request, replies, fork_server)


def _serve_all(request: Request | None, replies: int, fork_server: "ForkServer") -> int:
    grades = 0
    with contextlib.closing(_CurrentJudge(replies, fork_server)) as current:
        while request is not None:
            if isinstance(request, PrepareWorker):
                send(replies, Prepared())
            else:
                judge = current.judge_for(request, renew=grades % _LONGEST_STREAK == 0)
                while (end := _await_grade(request, judge)) is _OrderOutcome.GAVE_WAY:
                    judge = current.judge_for(request, renew=True)
                if end is _OrderOutcome.DIED:
                    return 1
                grades += 1
            request = receive_request(_ORDERS)
    return 0


class _CurrentJudge:
    """The only judge of the worker, forked for an order and ended with the worker."""

    def __init__(self, replies: int, fork_server: "ForkServer") -> None:
        self._replies = replies
        self._fork_server = fork_server
        self._judge: _Judge | None = None

    def judge_for(self, order: WorkerOrder, *, renew: bool) -> _Judge:
        """Return the judge of the order's streak: the present judge, or a new one."""
        judge = self._judge
        if judge is not None and judge.streak == order.streak and not renew and not _has_ended(judge, 0.0):
            return judge
        self.close(wait_s=_IN_ORDER_S)
        # A signal right after the fork would leave the judge to the kernel, without removal of temporary files.
        # In the judge, the same signal would run the worker's code.
        with held_back(signal.SIGINT, signal.SIGTERM):
            judge = self._judge = _fork(order.streak, self._replies, self._fork_server)
        return judge

    def close(self, *, wait_s: float = 0.0) -> None:
        """End the judge, idle, grading or dead. An idle judge ends by itself within `wait_s`.

        A SIGTERM ends the wait, and is raised after the end of the judge.
        """
        if self._judge is None:
            return
        try:
            self._judge.orders.close()
            _has_ended(self._judge, wait_s)
        finally:
            # A signal amid the end would leave the judge to the kernel, as after the fork.
            with held_back(signal.SIGINT, signal.SIGTERM):
                judge, self._judge = self._judge, None
                _dismiss(judge)


def _start_fork_server(request: Request) -> "ForkServer":
    from evaluator.judge.runners.fork_servers import fork_server_for

    threads = len(os.sched_getaffinity(0))
    facts = request.facts if isinstance(request, WorkerOrder) else None
    gpu = request.options.gpu if facts is None else facts.uuid
    return fork_server_for(request.options.device, gpu, request.options.sandbox_mode, threads)


def _import_early(request: Request) -> None:
    # Same setting as in the pipeline, made before PyTorch reads the variable.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import evaluator.judge.verdict  # noqa: F401

    only_builds = isinstance(request, WorkerOrder) and request.part is GradePart.BEGIN
    if request.options.device is DeviceKind.CUDA and not only_builds:
        # The meta device, on which a reference's traffic is counted, imports the compiler: seconds of each problem's
        # first grade, with the GPU held. Forked judges could not use CUDA after a call of CUDA in this process.
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        import torch._dynamo  # noqa: F401

        del os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"]


def _leave_at_once(fork_server: "ForkServer", _number: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a nested `close` would wait for ever
    fork_server.close()
    os._exit(1)


class _GaveWay(Exception):
    """Another grade waits for the GPU of an idle judge, or the next problem needs a new judge."""


class _Terminated(BaseException):
    """Raised by SIGTERM: the batch ends the worker."""


def _terminate(_number: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second SIGTERM would interrupt the end of the judge
    raise _Terminated


def _fork(streak: str, replies: int, fork_server: "ForkServer") -> _Judge:
    judge_orders, orders = os.pipe()
    ends, judge_ends = os.pipe()
    worker = os.getpid()
    # The judge starts with the worker's handlers, and these would drop SIGINT. `_judge` unblocks SIGINT later.
    with blocked(signal.SIGINT):
        with warnings.catch_warnings():
            # The only other thread just reads the fork server's output.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            os.close(orders)
            os.close(ends)
            _judge(judge_orders, judge_ends, replies, worker, fork_server)
    os.close(judge_orders)
    os.close(judge_ends)
    return _Judge(streak, pid, os.pidfd_open(pid), io.FileIO(orders, "w"), ends)


def _await_grade(order: WorkerOrder, judge: _Judge) -> _OrderOutcome:
    """Send an order to the judge and wait. A judge counts as dead too if the batch is gone."""
    poll = select.poll()
    poll.register(judge.ends, select.POLLIN)
    poll.register(_ORDERS, 0)  # only the hang-up matters
    with contextlib.suppress(OSError):  # a judge that has left says why
        send(judge.orders.fileno(), order)
    if dict(poll.poll()).get(judge.ends, 0) & select.POLLIN == 0:
        return _OrderOutcome.DIED
    return _OrderOutcome(os.read(judge.ends, 1))


def _dismiss(judge: _Judge) -> None:
    """End a judge, idle, grading or dead. An interrupted judge gets a grace period to remove temporary files."""
    if not _has_ended(judge, 0.0):
        signal.pidfd_send_signal(judge.pidfd, signal.SIGINT)
        if not _has_ended(judge, _ORPHAN_GRACE_S if has_hung_up(_ORDERS) else _GRACE_S):
            signal.pidfd_send_signal(judge.pidfd, signal.SIGKILL)
    os.waitpid(judge.pid, 0)
    os.close(judge.ends)
    os.close(judge.pidfd)


def _has_ended(judge: _Judge, within_s: float) -> bool:
    return bool(select.select([judge.pidfd], [], [], within_s)[0])


def _judge(orders: int, ends: int, replies: int, worker: int, fork_server: "ForkServer") -> NoReturn:
    """Grade until the orders end, then exit the process."""
    code = 1
    try:
        from evaluator.judge.context.context_pool import ContextPool

        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the shell may have ignored SIGINT
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        die_with_parent(worker, signal.SIGKILL)
        devnull = os.open(os.devnull, os.O_RDONLY)
        os.dup2(devnull, _ORDERS)
        with ContextPool(fork_server, lasting=True) as context_pool:
            fairness = _GpuFairness(context_pool)
            while (order := _next_order(orders, context_pool, fairness)) is not None:
                send(replies, _result(order, context_pool, _StageSender(replies), replies))
                os.write(ends, _OrderOutcome.MADE.value)
        code = 0
    except _GaveWay:
        os.write(ends, _OrderOutcome.GAVE_WAY.value)
        code = 0
    except (KeyboardInterrupt, BrokenPipeError):  # the worker ends the judge, or the batch is gone
        pass
    except BaseException:  # noqa: BLE001 - this is the end of the process; the batch learns it from the exit
        traceback.print_exc()
    finally:
        os._exit(code)


class _GpuFairness:
    """Limits how long a judge that is never idle keeps the GPU from waiting grades."""

    def __init__(self, context_pool: "ContextPool") -> None:
        self._context_pool = context_pool
        self._since_s: float | None = None

    def look(self) -> None:
        """Look between two grades. Raises _GaveWay if other grades waited at each look for `_FAIR_S`."""
        now_s = time.monotonic()
        if not self._context_pool.is_in_the_way:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
        elif now_s - self._since_s > _FAIR_S:
            raise _GaveWay


def _next_order(orders: int, context_pool: "ContextPool", fairness: _GpuFairness) -> WorkerOrder | None:
    """Wait for the next order; None at the end of the orders. Raises _GaveWay if another grade waits for the GPU.

    A judge that gives way ends: a process cannot release its own GPU context otherwise. An idle judge starts processes
    for the next grade, for which no client waits yet.
    """
    fairness.look()
    if not select.select([orders], [], [], _IDLE_S)[0]:
        context_pool.refill()
    while not select.select([orders], [], [], _LOOK_ROUND_S)[0]:
        if context_pool.is_in_the_way:
            raise _GaveWay
    request = receive_request(orders)
    return request if isinstance(request, WorkerOrder) else None


def _result(order: WorkerOrder, context_pool: "ContextPool", stage_sender: _StageSender, replies: int) -> Result:
    def stuck(card: Scorecard) -> NoReturn:
        send(replies, GradeFinished(card=card))
        os._exit(1)

    try:
        request = order.request()
        if context_pool.must_end(request.terms):
            raise _GaveWay
        if order.part is not GradePart.BEGIN:
            return GradeFinished(card=pipeline.grade(request, stage_sender, context_pool, order.begun, stuck))
        begun = pipeline.begin(request, stage_sender, context_pool, stuck)
        return Built(begun=begun) if isinstance(begun, Begun) else GradeFinished(card=begun)
    except WarpgradeError as error:
        return NotGraded(reason=error.message, again=isinstance(error, InfraError), hint=error.hint)


def main(arguments: list[str]) -> int:
    """Run the worker process and return its exit code."""
    share_machine(int(arguments[1]))
    if len(arguments) > 2:
        os.sched_setaffinity(0, {int(core) for core in arguments[2].split(",")})
    try:
        code = serve(int(arguments[0]))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # The worker ends already; later the handler would only raise.
    except (_Terminated, BrokenPipeError):  # BrokenPipeError: the batch is gone
        return 1
    return code
