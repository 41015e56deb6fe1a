"""Workers on the machines of a Ray cluster: one actor for each slot, which runs a local worker process.

Ray only places actors and moves bytes. Ray retries nothing (`max_restarts`, `max_task_retries`: 0), because only the
batch knows the finished grades. Libraries built on one machine travel to the GPU's machine by content, under the keys
of the build cache. All machines need PyTorch and the same version of Warpgrade.
"""

import contextlib
import logging
import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from evaluator.batch.workers.messages import (
    Built,
    GpuModel,
    GradePart,
    NotGraded,
    PrepareWorker,
    Reply,
    Result,
    StageEntered,
    WorkerOrder,
)
from evaluator.batch.workers.worker_handle import Hire, LocalWorker, NoWorker, Slot
from evaluator.cache.build_cache import BuildCache
from evaluator.devices.gpu import choose
from evaluator.errors import InfraError, UsageError
from evaluator.grade_options import GradeOptions
from evaluator.grading.request import Library
from evaluator.paths import cache_folder
from evaluator.records import DeviceKind, Outcome
from evaluator.sandbox.visible_files import source_root
from evaluator.version import __version__

_PLACE_S = 60.0
"""Time limit for placing an actor: its machine may be gone, and the others may be busy."""
_LOOK_S = 120.0
_CONNECT_S = 10.0
_replies: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


class ActorResources(NamedTuple):
    """Resources of an actor on its machine."""

    cpus: float
    gpus: float


class RayCluster:
    """Ray cluster. A context manager: the exit ends all actors of the batch; the machines stay."""

    def __init__(self, address: str) -> None:
        """Store the address; `auto` is the cluster of this machine, `local` a new cluster of this machine alone.

        Raises:
            UsageError: Ray is not installed.
        """
        try:
            import ray
        except ImportError:
            raise UsageError("Ray is not installed", hint="pip install 'warpgrade[ray]'") from None
        self._ray: Any = ray
        self._address = address

    def __enter__(self) -> Self:
        ray = self._ray
        _refuse_silence(self._address)
        # Ray starts workers in another folder: PYTHONPATH lets them import the same package.
        paths = os.pathsep.join([str(source_root()), *filter(None, [os.environ.get("PYTHONPATH")])])
        try:
            ray.init(
                address=None if self._address == "local" else self._address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=False if self._address == "local" else None,
                namespace="warpgrade",
                runtime_env={"env_vars": {"PYTHONPATH": paths}},
            )
        except Exception as error:
            first = str(error).strip().splitlines()[:1]
            hint = "start one with `ray start --head`, or say --ray local"
            raise InfraError(f"no Ray cluster answers at {self._address}: {' '.join(first)}", hint=hint) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()

    def slots(self, device: DeviceKind, jobs: int | None) -> list[Slot]:
        """Return the slots of the cluster.

        - `cuda`: one slot for each GPU, and one building slot for each core (or `jobs`).
        - `emulated`: one slot for each core (or `jobs`).
        - `cpu`: one slot for each machine, used exclusively, because other grades would disturb the clock.

        Raises:
            UsageError: `--jobs` has no effect on `cpu`.
            InfraError: the cluster lacks the resources to grade.
        """
        total = self._ray.cluster_resources()
        cpus, gpus = int(total.get("CPU", 0)), int(total.get("GPU", 0))
        match device:
            case DeviceKind.CPU:
                if jobs is not None:
                    raise UsageError("--jobs has no effect on cpu with --ray: each machine runs one grade at a time")
                return [Slot()] * len(self._machines())
            case DeviceKind.EMULATED:
                if not cpus:
                    raise InfraError("the Ray cluster has no CPUs")
                return [Slot()] * (jobs or cpus)
            case DeviceKind.CUDA:
                if not gpus:
                    raise InfraError(
                        "the Ray cluster has no GPU", hint="add a machine with a GPU, or use --device emulated"
                    )
                facts = self._gpu_facts()
                builders = [Slot(part=GradePart.BEGIN, facts=facts)] * (jobs or max(cpus, 1))
                return [*([Slot(part=GradePart.FINISH, facts=facts)] * gpus), *builders]

    def hire(self, device: DeviceKind) -> Callable[[Slot, Path | None], "ActorHandle"]:
        """Return the worker factory of a worker pool."""
        needs = {
            DeviceKind.CUDA: {GradePart.BEGIN: ActorResources(1, 0), GradePart.FINISH: ActorResources(0, 1)},
            DeviceKind.EMULATED: {GradePart.ALL: ActorResources(1, 0)},
            DeviceKind.CPU: {GradePart.ALL: ActorResources(min(self._machines(), default=1), 0)},
        }[device]
        return lambda slot, _log: ActorHandle(self._ray, slot, needs[slot.part])

    def _machines(self) -> list[float]:
        nodes = [node["Resources"].get("CPU", 0.0) for node in self._ray.nodes() if node["Alive"]]
        return [cpus for cpus in nodes if cpus]

    def _gpu_facts(self) -> GpuModel:
        """Ask one machine with a GPU for its description. All GPUs are assumed to be of the same kind."""
        look = self._ray.remote(num_gpus=1, num_cpus=0, max_retries=0)(_own_gpu)
        try:
            return msgspec.json.decode(self._ray.get(look.remote(), timeout=_LOOK_S), type=GpuModel)
        except self._ray.exceptions.RayError as error:
            raise InfraError(f"no machine of the Ray cluster reports its GPU: {error}") from error


def _refuse_silence(address: str) -> None:
    """Raise InfraError at once if nothing listens at `HOST:PORT`: Ray would retry for many minutes."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in host or not port.isdecimal():
        return  # `auto`, `local`, or another kind of address, which Ray resolves
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        hint = "start one with `ray start --head`, or say --ray local"
        raise InfraError(f"no Ray cluster answers at {address}: {error}", hint=hint) from error


class ActorHandle:
    """Worker in the cluster, behind the interface of the worker pool (`worker_handle.WorkerHandle`)."""

    def __init__(self, ray: Any, slot: Slot, needs: ActorResources) -> None:
        """Start the actor. Raises NoWorker if no machine accepts the actor."""
        self._ray = ray
        self._actor = (
            ray.remote(_Actor)
            .options(num_cpus=needs.cpus, num_gpus=needs.gpus, max_restarts=0, max_task_retries=0)
            .remote(slot.part.value)
        )
        try:
            version = ray.get(self._actor.version.remote(), timeout=_PLACE_S)
        except (ray.exceptions.GetTimeoutError, ray.exceptions.RayError) as error:
            self.interrupt()
            raise NoWorker(f"no machine of the Ray cluster has a free slot ({type(error).__name__})") from None
        if version != __version__:
            self.interrupt()
            raise InfraError(f"a machine of the Ray cluster has Warpgrade {version}, this one {__version__}")

    def prepare(self, request: PrepareWorker) -> bool:
        """Let the actor prepare its worker, without waiting. The first grade shows whether the actor was lost."""
        self._actor.prepare.remote(msgspec.json.encode(request))
        return True

    def grade(self, order: WorkerOrder, on_stage: Callable[[StageEntered], None]) -> Result:
        """Make a grade, or a part of a grade."""
        ray = self._ray
        try:
            for answer in self._actor.grade.options(num_returns="streaming").remote(msgspec.json.encode(order)):
                reply = _replies.decode(ray.get(answer))
                if not isinstance(reply, StageEntered):
                    return reply
                on_stage(reply)
        except ray.exceptions.RayError as error:
            return NotGraded(reason=f"the machine that made the grade was lost ({type(error).__name__})", again=True)
        return NotGraded(reason="the machine that made the grade said nothing", again=True)

    def interrupt(self) -> None:
        """End the actor, with any current grade."""
        with contextlib.suppress(Exception):  # Ray may be unreachable: the actor ends with this process.
            self._ray.kill(self._actor, no_restart=True)

    def wait(self) -> None:
        """Return at once: Ray ends the actor's process, and the worker process ends with the actor."""

    def close(self) -> None:
        """End the actor and all its processes."""
        self.interrupt()


class _Actor:
    """Actor on a machine of the cluster: a local worker, and the transfer of libraries between machines."""

    def __init__(self, part: str) -> None:
        # Ray sets the variable to the actor's CPUs, as a hint to libraries. The judge chooses the number of threads.
        os.environ.pop("OMP_NUM_THREADS", None)
        self._part = GradePart(part)
        self._worker = LocalWorker(Slot(builds_at_once=os.cpu_count() or 1), None)

    def version(self) -> str:
        """Return the version of Warpgrade on the actor's machine."""
        return __version__

    def prepare(self, encoded: bytes) -> None:
        """Prepare the worker, for the actor's own GPU."""
        request = msgspec.json.decode(encoded, type=PrepareWorker)
        if self._part is GradePart.FINISH:
            request = replace(request, options=request.options.for_worker(choose(_own_gpu_id()).uuid))
        self._worker.prepare(request)

    def grade(self, encoded: bytes) -> Iterator[bytes]:
        """Yield the stages of a grade, then the result."""
        order = msgspec.json.decode(encoded, type=WorkerOrder)
        if order.begun is not None:
            _cache_libraries(order.begun.libraries)
            order = replace(order, begun=replace(order.begun, libraries=[]))
        if self._part is GradePart.FINISH:
            order = order.on_gpu(choose(_own_gpu_id()).uuid)
        replies: queue.SimpleQueue[StageEntered | Result] = queue.SimpleQueue()
        making = threading.Thread(target=lambda: replies.put(self._worker.grade(order, replies.put)), daemon=True)
        making.start()
        while isinstance(reply := replies.get(), StageEntered):
            yield msgspec.json.encode(reply)
        if isinstance(reply, Built):
            reply = Built(begun=replace(reply.begun, libraries=list(_libraries(reply.begun.outcome))))
        yield msgspec.json.encode(reply)


def _libraries(outcome: Outcome) -> Iterator[Library]:
    cache = BuildCache(cache_folder())
    for unit in outcome.build.units if outcome.build is not None else []:
        if unit.ok and (entry := cache.get(unit.key)) is not None:
            yield Library(key=unit.key, content=entry.library, log=entry.manifest.log, wall_s=entry.manifest.wall_s)


def _cache_libraries(libraries: list[Library]) -> None:
    """Store libraries from another machine in the local cache. Otherwise the GPU would wait for a second build."""
    cache = BuildCache(cache_folder())
    for library in libraries:
        if cache.get(library.key) is None:
            cache.put(library.key, library.content, log=library.log, wall_s=library.wall_s)


def _own_gpu() -> bytes:
    gpu = choose(_own_gpu_id())
    return msgspec.json.encode(GpuModel(gpu.number, gpu.uuid, gpu.name, gpu.capability, gpu.memory_bytes, gpu.driver))


def _own_gpu_id() -> str:
    """Return the index or UUID of the GPU that Ray assigned to the actor."""
    import ray

    return str(ray.get_gpu_ids()[0])


class WorkerSlots(NamedTuple):
    """Slots of grades, and the factory of their workers; None starts local processes."""

    slots: list[Slot]
    hire: Hire | None


def cluster_places(address: str, options: GradeOptions, jobs: int | None, stack: ExitStack) -> WorkerSlots:
    """Connect to a cluster until the exit of `stack`, and return the cluster's slots.

    Raises:
        UsageError: Ray is not installed, or an option has no effect on a cluster.
        InfraError: no cluster answers, or the cluster lacks the resources to grade.
    """
    if options.gpu is not None:
        raise UsageError("--gpu has no effect with --ray: Ray assigns the GPUs")
    with ExitStack() as opened:
        cluster = opened.enter_context(RayCluster(address))
        places = WorkerSlots(cluster.slots(options.device, jobs), cluster.hire(options.device))
        stack.enter_context(opened.pop_all())
    return places
