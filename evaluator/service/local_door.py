"""Door of the same user: grades at once for clients on a Unix socket, without a journal.

The workers belong to a task grader for each device, made when first needed.
"""

import asyncio
import contextlib
import datetime
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

import msgspec
import psutil
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from evaluator.api import ready_protocol, ready_socket
from evaluator.api.ready_protocol import (
    MOST_REQUEST_BYTES,
    Answer,
    Hello,
    Identity,
    LocalOrder,
    Stopping,
    Welcome,
    difference,
    identity,
)
from evaluator.batch.runs.tasks import Task
from evaluator.batch.workers.messages import GradeFinished, GradePart, NotGraded, StageEntered, WorkerOrder
from evaluator.batch.workers.slots import gpus_for, slots_for
from evaluator.batch.workers.task_grader import TaskGrader
from evaluator.batch.workers.worker_handle import Hire, LocalWorker
from evaluator.batch.workers.worker_pool import NO_STAGES, TaskEnded
from evaluator.errors import WarpgradeError
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind, Record
from evaluator.service.gate import Bodies
from evaluator.service.messages import Refusal, RequestRefused
from evaluator.service.server import CLIENT, Door, LocalConnection
from evaluator.text import one_line
from evaluator.version import __version__

READY_WORKERS = 2
"""Free workers with a process, apart from a worker for each GPU."""
_PAUSES_S = (0.0,)
"""A worker from before the grade may have died meanwhile: a new worker repeats the grade at once, and only once."""


class WorkerStatus(Record, frozen=True):
    """A worker process: part, problem, number of grades, and the memory of the whole process tree."""

    device: DeviceKind
    part: GradePart
    gpu: str | None
    pid: int
    busy: bool
    grades: int
    problem: str | None
    memory_bytes: int


class DeviceGraders:
    """Task graders by device. Thread-safe."""

    def __init__(self, jobs: int | None, idle_s: float, hire: Hire = LocalWorker) -> None:
        """Allow `jobs` concurrent grades on a device, on cuda builds; None takes the limit of the device.

        Workers end after `idle_s` without a grade.
        """
        self._jobs = jobs
        self._idle_s = idle_s
        self._hire = hire
        self._changing = threading.Lock()
        self._graders: dict[DeviceKind, TaskGrader] = {}
        self._closed = False

    def grader(self, device: DeviceKind) -> TaskGrader:
        """Return the grader of a device; a new one after a failure. Raises WarpgradeError without the device."""
        with self._changing:
            grader = self._graders.get(device)
            if grader is not None and grader.failure is not None:
                grader.close()
                grader = None
            if grader is None:
                options = GradeOptions(device=device)
                # On cpu a single grade has all cores, as without a server: the card is the same.
                slots = slots_for(device, None if device is DeviceKind.CPU else self._jobs, gpus_for(options))
                grader = TaskGrader(
                    slots, options, hire=self._hire, spares=READY_WORKERS, idle_s=self._idle_s, pauses_s=_PAUSES_S
                )
                self._graders[device] = grader
                if self._closed:
                    grader.close()
            return grader

    def close(self) -> None:
        """End all workers, even during a grade."""
        with self._changing:
            self._closed = True
            for grader in self._graders.values():
                grader.close()

    @property
    def devices(self) -> list[DeviceKind]:
        """Devices with a grader."""
        return sorted(self._graders)

    @property
    def workers(self) -> list[WorkerStatus]:
        """Status of all workers with a process."""
        statuses = []
        for device, grader in list(self._graders.items()):
            for number, state in enumerate(grader.pool.states):
                pid = getattr(grader.pool.workers.get(number), "pid", None)
                if pid is not None:
                    statuses.append(
                        WorkerStatus(
                            device=device,
                            part=state.slot.part,
                            gpu=state.slot.gpu,
                            pid=pid,
                            busy=state.is_busy,
                            grades=state.grades,
                            problem=state.problem,
                            memory_bytes=tree_bytes(pid),
                        )
                    )
        return statuses


def tree_bytes(pid: int) -> int:
    """Return the memory of a process and its descendants; shared memory counts once where known."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return sum(map(_bytes, [process, *process.children(recursive=True)]))
    return 0


def _bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.Error, AttributeError):  # a confined process hides the counts of pages
        with contextlib.suppress(psutil.Error):
            return int(process.memory_info().rss)
    return 0


_hellos = msgspec.json.Decoder(Hello)
_orders = msgspec.json.Decoder(LocalOrder)
_Document = TypeVar("_Document")


class ServerStatus(Record, frozen=True):
    """Status of the server. `grades` counts finished grades since the start."""

    pid: int
    version: str
    socket: str
    started_at: str
    idle_minutes: float
    devices: list[DeviceKind]
    grades: int
    running: int
    ending: bool
    memory_bytes: int
    workers: list[WorkerStatus]


@contextlib.contextmanager
def local_door(
    graders: DeviceGraders, device: DeviceKind, idle_minutes: float, tell: Callable[[str], None]
) -> Iterator[Door]:
    """Open the door. Workers for `device` start at once; all workers end with the context.

    Raises:
        UsageError: another server of the user is running.
        InfraError: the socket cannot be made, or the device is missing.
    """
    with ready_socket.locked() as folder, contextlib.closing(graders):
        graders.grader(device).prepare()
        with ready_socket.listening(folder) as listener:
            tell(f"ready judge {os.getpid()} listens on {ready_socket.socket_path()}; device {device.value}")
            grades = LocalGrades(graders, idle_minutes, tell)
            yield Door(listener, grades, LocalConnection, grades, has_results=True)
    tell(f"ended after {grades.made} grades")


class LocalGrades:
    """ASGI application of the door, and the grades behind the door. All methods belong to a single event loop."""

    def __init__(self, graders: DeviceGraders, idle_minutes: float, tell: Callable[[str], None]) -> None:
        """Grade by `graders`; `tell` prints a line."""
        self._graders = graders
        self._idle_minutes = idle_minutes
        self._tell = tell
        self._identity = identity()
        self._started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._bodies = Bodies(MOST_REQUEST_BYTES)
        self._running: dict[Future[TaskEnded], tuple[TaskGrader, Task]] = {}
        self._changed = asyncio.Event()
        self._is_ending = False
        self._is_aborted = False
        self.made = 0

    async def run(self) -> None:
        """Return after `stop`, when no grade is in progress."""
        while not self._is_ending or self._running:
            self._changed.clear()
            await self._changed.wait()

    def stop(self) -> None:
        """Begin no further grade."""
        self._is_ending = True
        self._changed.set()

    def abort(self) -> None:
        """End also the grades in progress, without a result."""
        self.stop()
        self._is_aborted = True
        for grader, task in list(self._running.values()):
            grader.cancel(task)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            return
        scope[CLIENT] = ""  # The kernel vouches for the only client: the connection is not idle.
        try:
            response = await self._response(Request(scope, receive), send)
        except RequestRefused as refused:
            response = _json(refused.refusal, refused.status)
        if response is not None:
            await response(scope, receive, send)

    async def _response(self, request: Request, send: Send) -> Response | None:
        """Return the response; None if the response is sent."""
        match request.method, request.scope["path"]:
            case "GET", ready_protocol.STATUS:
                return _json(await asyncio.to_thread(self._status))
            case "POST", ready_protocol.STOP:
                self.stop()
                return _json(Stopping(os.getpid()))
            case "POST", ready_protocol.HELLO:
                hello = await self._read(request, _hellos)
                self._refuse(hello.identity)
                grader = await self._grader(hello.device)
                return _json(Welcome(os.getpid(), len(grader.pool.states)))
            case "POST", ready_protocol.GRADES:
                wanted = await self._read(request, _orders)
                self._refuse(wanted.identity)
                task, grader = _task_of(wanted.order), await self._grader(wanted.order.options.device)
                gpu = wanted.order.options.gpu
                if gpu is not None and all(state.slot.gpu != gpu for state in grader.pool.states):
                    raise RequestRefused(422, f"the ready judge has no GPU {gpu[:80]}")
                self._refuse(wanted.identity)  # The end may have begun meanwhile.
                await self._grade(grader, task, request.receive, send)
                return None
            case _:
                raise RequestRefused(404, "the ready judge is of another version: restart it")

    async def _read(self, request: Request, decoder: "msgspec.json.Decoder[_Document]") -> _Document:
        async with self._bodies.read("", request) as body:
            try:
                return await asyncio.to_thread(decoder.decode, body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                message = f"the ready judge is of another version, or the message is invalid: {error}"
                raise RequestRefused(400, message) from None

    def _refuse(self, client: Identity) -> None:
        """Raise RequestRefused if the server ends, or must not grade for the client."""
        if self._is_ending:
            raise RequestRefused(503, "the ready judge is ending")
        if (reason := difference(self._identity, client)) is not None:
            raise RequestRefused(409, reason)

    async def _grader(self, device: DeviceKind) -> TaskGrader:
        try:
            return await asyncio.to_thread(self._graders.grader, device)
        except WarpgradeError as error:
            raise RequestRefused(422, f"the ready judge cannot use {device.value}: {error.message}") from None

    async def _grade(self, grader: TaskGrader, task: Task, receive: Receive, send: Send) -> None:
        """Grade, and send each stage and the result as a line. The grade ends when the client leaves."""
        loop = asyncio.get_running_loop()
        messages: asyncio.Queue[StageEntered | Future[TaskEnded] | None] = asyncio.Queue()

        def tell(message: StageEntered | Future[TaskEnded]) -> None:
            with contextlib.suppress(RuntimeError):  # The event loop has ended.
                loop.call_soon_threadsafe(messages.put_nowait, message)

        started_s = time.monotonic()
        future = grader.submit(task, tell)
        self._running[future] = grader, task
        future.add_done_callback(tell)
        leaving = asyncio.create_task(_until_left(receive))
        leaving.add_done_callback(lambda _: messages.put_nowait(None))
        try:
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/x-ndjson")]}
            )
            while isinstance(message := await messages.get(), StageEntered):
                if message.name not in NO_STAGES:
                    await _send_line(send, message)
            result = None if message is None or self._is_aborted else _result(future)
            if result is not None:
                await _send_line(send, result)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            leaving.cancel()
            if not future.done():
                grader.cancel(task)
                await asyncio.wait([asyncio.wrap_future(future)])
            del self._running[future]
            self._changed.set()
            self.made += 1
        outcome = "abandoned" if result is None else _outcome(result)
        self._tell(one_line(f"{task.problem.name} {task.name}: {outcome}, {time.monotonic() - started_s:.2f} s", 200))
        if not self._is_ending:
            grader.prepare()

    def _status(self) -> ServerStatus:
        return ServerStatus(
            pid=os.getpid(),
            version=__version__,
            socket=ready_socket.socket_path(),
            started_at=self._started_at,
            idle_minutes=self._idle_minutes,
            devices=self._graders.devices,
            grades=self.made,
            running=len(self._running),
            ending=self._is_ending,
            memory_bytes=tree_bytes(os.getpid()),
            workers=self._graders.workers,
        )


async def _until_left(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_line(send: Send, answer: Answer) -> None:
    await send({"type": "http.response.body", "body": msgspec.json.encode(answer) + b"\n", "more_body": True})


def _result(future: Future[TaskEnded]) -> GradeFinished | NotGraded | None:
    """Return the result of an ended grade; None after `abort`."""
    if future.cancelled():
        return None
    error = future.exception()
    if isinstance(error, OSError):
        return NotGraded(reason=f"no worker process could start: {error.strerror}", again=True)
    return NotGraded(reason="the ready judge failed", again=True) if error is not None else future.result().result


def _outcome(result: GradeFinished | NotGraded) -> str:
    match result:
        case GradeFinished(card=card):
            return card.status.value.replace("_", " ")
        case NotGraded(reason=reason):
            return f"not graded: {reason}"


def _task_of(order: WorkerOrder) -> Task:
    """Return the task of an order. Raises RequestRefused for an order beyond the server's terms."""
    submission = order.submission or order.unread
    if submission is None:
        raise RequestRefused(400, "the order has no submission")
    if not order.options.is_sandboxed:  # An unconfined submission may change the processes of the next grade.
        raise RequestRefused(422, "the ready judge grades only in the sandbox")
    return Task(order.problem, submission.name, submission, options=order.options)


def _json(document: Record | Refusal, status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")
